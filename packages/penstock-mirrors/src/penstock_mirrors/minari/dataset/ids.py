"""Dataset ids under the names and messages of the original."""

from __future__ import annotations

from penstock.errors import DataError
from penstock.formats.minari import ids


def parse_dataset_id(dataset_id: str) -> tuple[str | None, str, int]:
    """Return namespace (or None), name and version of an id."""
    try:
        namespace, name, version = ids.parse(dataset_id)
    except DataError as error:
        raise DataError(f"Malformed dataset ID: {error}") from error
    if version is None:
        raise DataError(f"Malformed dataset ID: expected a version, such as {dataset_id}-v0, got {dataset_id!r}")
    return namespace, name, version


def gen_dataset_id(namespace: str | None, dataset_name: str, version: int | None = None) -> str:
    """Return the id from its parts; the inverse of `parse_dataset_id`."""
    return ids.generate(namespace, dataset_name, version)


def latest(dataset_ids: list[str]) -> list[str]:
    """Return the ids with the highest version of each name, in their order."""
    newest: dict[tuple[str | None, str], int] = {}
    for namespace, name, version in map(parse_dataset_id, dataset_ids):
        newest[namespace, name] = max(version, newest.get((namespace, name), version))
    return [
        dataset_id
        for dataset_id, (namespace, name, version) in zip(dataset_ids, map(parse_dataset_id, dataset_ids), strict=True)
        if newest[namespace, name] == version
    ]
