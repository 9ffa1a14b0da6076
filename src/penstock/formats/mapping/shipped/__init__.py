"""Mappings of public datasets that ship with penstock, one TOML file each, and how their data is recognised.

The table `recognise` of a file has `arrays` that the first file of an episode must have.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from penstock.errors import ArgumentError, PenstockError, suggestion
from penstock.files.remote import read_text
from penstock.formats.mapping.kinds import tree_of
from penstock.formats.mapping.rules import VERSION, EpisodeMapping, Pattern
from penstock.formats.mapping.units import names_within

LOOKED_AT = 512  # names of a folder that are compared with patterns


@cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    """The tables of each mapping that ships, by its name."""
    places = [Path(str(file)) for file in files(__name__).iterdir() if file.name.endswith(".toml")]
    return {file.stem: tomllib.loads(read_text(file)) for file in sorted(places)}


def shipped_names() -> list[str]:
    return list(_tables())


@cache
def shipped_mapping(name: str) -> EpisodeMapping:
    """Return a mapping that ships. Raises `ArgumentError`."""
    if name not in _tables():
        message = f"expected a file with a mapping, or one of {shipped_names()}, got {name!r}"
        raise ArgumentError(message + suggestion(name, shipped_names()))
    entries = {key: value for key, value in _tables()[name].items() if key not in (VERSION, "recognise")}
    return EpisodeMapping.of(entries)


def recognised_mapping(path: Path) -> str | None:
    """Return the name of the mapping that fits the names and the content of a folder, or of an `.npz` file."""
    if path.is_dir():
        return next(_fitting(path, list(islice(names_within(path), LOOKED_AT))), None)
    return next(_fitting(path.parent, [path.name]), None) if path.suffix == ".npz" else None


def _fitting(folder: Path, names: list[str]) -> Iterator[str]:
    arrays: dict[str, set[str]] = {}
    for name, tables in _tables().items():
        wanted: list[str] = tables.get("recognise", {}).get("arrays", [])
        pattern = Pattern(tables["files"])
        first = next((each for each in names if pattern.match(each) is not None), None) if wanted else None
        if first is None:
            continue
        if first not in arrays:
            arrays[first] = _arrays_of(folder / first)
        if arrays[first] >= {*wanted}:
            yield name


def _arrays_of(path: Path) -> set[str]:
    """Names of the arrays of a file; none where it cannot be read."""
    try:
        tree = tree_of([path])
        return {*tree.leaves, *tree.values}
    except (PenstockError, OSError):
        return set()
