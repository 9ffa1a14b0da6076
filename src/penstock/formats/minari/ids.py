"""Dataset ids and namespaces: their grammar, and the rule that an id never leaves the root."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.errors import DataError, UnsafeDataError
from penstock.formats.minari import metadata

NAMESPACE = re.compile(r"[-_\w][-_\w/]*[-_\w]+")
DATASET_ID = re.compile(rf"(?:(?P<namespace>{NAMESPACE.pattern})/)?(?P<name>[-_\w]+?)(?:-v(?P<version>\d+))?")

ENVIRONMENT_VARIABLE = "MINARI_DATASETS_PATH"
DEFAULT_REMOTE = "hf://farama-minari"
_SCHEMES = {"hf": "hf://datasets/", "gcp": "gs://"}
NAMESPACE_FILE = "namespace_metadata.json"
DATA = "data"  # the folder in the folder of a dataset


class DatasetId(NamedTuple):
    """The three parts of an id: `namespace` (None for none), `name`, and `version` (None where it is left out)."""

    namespace: str | None
    name: str
    version: int | None

    def __str__(self) -> str:
        return generate(self.namespace, self.name, self.version)


def parse(dataset_id: str) -> DatasetId:
    """Take an id such as `"D4RL/door/human-v2"` apart. Source: the Minari 0.5 id grammar."""
    match = DATASET_ID.fullmatch(dataset_id)
    if match is None:
        raise DataError(
            "expected an id of the form (namespace/)name-v(version), of letters, digits, '-' and '_', "
            f"got {dataset_id!r}"
        )
    namespace, name, version = match.group("namespace", "name", "version")
    return DatasetId(namespace, name, None if version is None else int(version))


def generate(namespace: str | None, name: str, version: int | None = None) -> str:
    """Put an id together; the inverse of `parse`."""
    prefix = "" if namespace is None else f"{namespace}/"
    return prefix + name + ("" if version is None else f"-v{version}")


def hierarchy(namespace: str | None) -> Iterator[str]:
    """Every namespace that holds this one, outermost first, and itself."""
    parts = [] if namespace is None else namespace.split("/")
    return ("/".join(parts[: i + 1]) for i in range(len(parts)))


def root() -> Path:
    """Folder of local datasets: `MINARI_DATASETS_PATH`, or `~/.minari/datasets`. Nothing is created."""
    configured = os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(configured) if configured else Path.home() / ".minari" / "datasets"


def remote() -> str:
    """The hub as Minari writes it: `MINARI_REMOTE`, or the Farama Foundation's on Hugging Face."""
    return os.environ.get("MINARI_REMOTE") or DEFAULT_REMOTE


def hub() -> str:
    scheme, separator, place = remote().rstrip("/").partition("://")
    return f"{_SCHEMES.get(scheme, f'{scheme}://')}{place}" if separator else scheme


def inside(name: str, base: Path | None = None) -> Path:
    """The directory of an id or namespace below `base` (default: `root()`), which it never leaves."""
    top = root() if base is None else base
    parts = name.replace("\\", "/").split("/")
    if not name.strip("/. \\") or name.startswith(("/", "~")) or ".." in parts or "\0" in name or ":" in parts[0]:
        raise UnsafeDataError(f"expected a name below the datasets root, got {name!r}", path=top)
    path = top.joinpath(*parts)
    if not path.resolve().is_relative_to(top.resolve()) or path.resolve() == top.resolve():
        raise UnsafeDataError(f"expected {name!r} to stay below the datasets root, got {path.resolve()}", path=top)
    return path


def directory(dataset_id: str, base: Path | None = None) -> Path:
    """The directory of a dataset, whether it exists or not."""
    if parse(dataset_id).version is None:
        raise DataError(f"expected an id with a version, such as {dataset_id}-v0, got {dataset_id!r}")
    return inside(dataset_id, base)


def id_of(path: Path, base: Path | None = None) -> str:
    """The id that a dataset's directory has by its place: relative to the root, or its own name outside of it."""
    top, place = (root() if base is None else base).resolve(), path.resolve()
    return place.relative_to(top).as_posix() if place.is_relative_to(top) and place != top else place.name


def of_joined(part_id: str, part: Path, place: Path) -> str:
    """Return the id of a dataset that parts are joined to: if a part's id says its place, the id says the new place."""
    return id_of(place) if part_id == id_of(part) else part_id


def ensure_namespace(namespace: str | None, base: Path | None = None) -> None:
    """Make a namespace and its parents exist, without metadata where they have none."""
    for parent in hierarchy(namespace):
        path = namespace_file(parent, base)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            metadata.write_json(path, {})


def namespace_file(namespace: str, base: Path | None) -> Path:
    # Only the whole name has to follow the grammar; a parent of one character is a directory like any other.
    return inside(namespace, base) / NAMESPACE_FILE
