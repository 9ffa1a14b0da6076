"""Ids of datasets, the versions that can be read, and the versions of packages that a dataset asks for."""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import DataError, require
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


supported_dataset_versions: set[str] = {
    "0.4.0",
    "0.4.1",
    "0.4.2",
    "0.4.3",
    "0.5.0",
    "0.5.1",
    "0.5.2",
    "0.5.3",
    "0.5.4",
}


def is_supported(version: Any) -> bool:
    """Return whether a dataset of `version` can be read: a release, or a range such as the `~=0.4` of old files."""
    if version in supported_dataset_versions:
        return True
    specifiers: Any = require("packaging.specifiers", "minari")
    try:
        wanted = specifiers.SpecifierSet(version)
    except (specifiers.InvalidSpecifier, AttributeError, TypeError):
        return False
    return bool(wanted) and any(wanted.contains(release) for release in supported_dataset_versions)


def check_requirements(requirements: Iterable[str], provided: Mapping[str, str]) -> None:
    """Warn about each pip-style requirement that is malformed, not installed, or installed in another version."""
    parsing: Any = require("packaging.requirements", "minari")
    for text in requirements:
        try:
            requirement = parsing.Requirement(text)
        except parsing.InvalidRequirement:
            warnings.warn(f"Ignoring malformed requirement `{text}`", stacklevel=3)
            continue
        name = str(requirement.name)
        try:
            installed = provided.get(name.lower()) or importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            warnings.warn(f'Package {name} is not installed. Install it with `pip install "{text}"`', stacklevel=3)
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            warnings.warn(
                f"Installed {name} {installed} does not meet {requirement.specifier}. We recommend to "
                f'install the required version with `pip install "{text}"`',
                stacklevel=3,
            )
