"""The format of data without a standard: a mapping, next to the data or given when they are opened."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.core.narrowing import is_mapping
from penstock.errors import ArgumentError, UnknownFormatError
from penstock.files.remote import open_file
from penstock.formats.base.format import Format
from penstock.formats.mapping.kinds import is_of_package, suffix_of, tree_of
from penstock.formats.mapping.rules import NAME, VERSION, EpisodeMapping
from penstock.formats.mapping.shipped import LOOKED_AT, recognised_mapping, shipped_mapping, shipped_names
from penstock.formats.mapping.sketch import Sketch
from penstock.formats.mapping.source import CACHE_BYTES, FilesSource, Where
from penstock.formats.mapping.units import names_within


class MappingFormat(Format):
    """Files of any kind, read in place as a mapping says. See docs/howto/own_data.md."""

    name: ClassVar[str] = "mapping"
    description: ClassVar[str] = (
        "your own files, by a mapping: CSV, JSON, npz, HDF5, Zarr, MATLAB, Parquet, images, video, sound, MCAP, bags"
    )
    extras: ClassVar[tuple[str, ...]] = ("arrow", "audio", "images", "video", "zarr")
    file_suffixes: ClassVar[tuple[str, ...]] = (".toml",)

    def recognises(self, path: Path) -> bool:
        """Whether a folder has the file of a mapping or data of one that ships, or a file is one of these or a log."""
        return _mapping_at(path) is not None or recognised_mapping(path) is not None or _is_of_logs(path)

    def open(
        self,
        path: Path,
        *,
        mapping: str | Path | Mapping[str, Any] | EpisodeMapping | None = None,
        cache_bytes: int = CACHE_BYTES,
        cache: Where = "user",
        **entries: Any,
    ) -> FilesSource:
        """Open files as episodes, by the mapping in a file, in a dict, in keyword arguments, or one that ships, by its
        name. `cache`: whether an index in the user's cache is read and kept (`"user"`), made again (`"refresh"`), or
        neither (`"off"`)."""
        if mapping is not None and entries:
            raise ArgumentError(f"expected a mapping or its entries, got mapping and {sorted(entries)}")
        place = _mapping_at(path)
        if mapping is None and place is None and not entries:
            mapping = recognised_mapping(path)
        if mapping is None and place is None and not entries and _is_of_logs(path):
            mapping = _sure_guess(path)
        chosen = entries or place or {} if mapping is None else mapping
        root = path.parent if path == place else path
        return FilesSource(root, _as_mapping(chosen), cache_bytes=cache_bytes, cache=cache)

    @override
    def advice(self, path: Path) -> str | None:
        sketch = Sketch.of(path)
        return f"There: {sketch.contents}. To use it, {sketch.advice}"


def _as_mapping(given: str | Path | Mapping[str, Any] | EpisodeMapping) -> EpisodeMapping:
    if isinstance(given, EpisodeMapping):
        return given
    if is_mapping(given):
        return EpisodeMapping.of(given)
    named = isinstance(given, str) and (given in shipped_names() or not Path(given).exists())
    return shipped_mapping(str(given)) if named else EpisodeMapping.at(Path(given))


def _is_of_logs(path: Path) -> bool:
    """Whether a file is of a kind that another distribution reads, or a folder has such files and no other data."""
    if not path.is_dir():
        return path.is_file() and is_of_package(suffix_of(path.name))
    suffixes = {suffix_of(name) for name in islice(names_within(path), LOOKED_AT)} - {None}
    return bool(suffixes) and all(map(is_of_package, suffixes))


def _sure_guess(path: Path) -> EpisodeMapping:
    """The mapping of logs that say enough themselves. Raises `UnknownFormatError` with advice where they do not."""
    if path.is_file():
        _ = tree_of([path])
    sketch = Sketch.of(path)
    guesses = [look.guess for look in sketch.looks if look.guess is not None]
    if sketch.guess is not None and guesses and all(guess.is_sure for guess in guesses):
        return sketch.guess
    message = f"expected a mapping, which says what the columns are. There: {sketch.contents}"
    raise UnknownFormatError(f"{message}. To use it, {sketch.advice}", path=path)


def _mapping_at(path: Path) -> Path | None:
    """The file of a mapping in a folder, or the file itself if it is one."""
    if path.is_dir():
        inside = path / NAME
        return inside if inside.is_file() else None
    if path.suffix != ".toml":
        return None
    with open_file(path) as file:
        return path if VERSION.encode() in file.read(1 << 16) else None
