"""`penstock index`: build the index of a dataset ahead of time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from penstock.cli.show import Json, print_json, size
from penstock.core.text import counted
from penstock.errors import FormatError
from penstock.formats.base.format import recognise
from penstock.formats.minari import index_cache
from penstock.formats.minari.arrow_source import ArrowSource
from penstock.formats.minari.format import place as minari_place
from penstock.formats.minari.hdf5_source import Hdf5Source
from penstock.formats.webdataset import index as shard_index
from penstock.formats.webdataset.source import ShardSource


def index(
    location: Annotated[str, typer.Argument(metavar="PATH_OR_ID", help="A path, or an id that a format knows.")],
    force: Annotated[bool, typer.Option("--force", help="Build the index again, even if it is up to date.")] = False,
    as_json: Json = False,
) -> None:
    """Build the index of a dataset ahead of time, so that opening it is quick.

    Tar shards and large Minari datasets have an index in the user's cache. Other formats need none.

    Example: penstock index ./shards --force
    """
    found, path = recognise(location)
    if found.name == "webdataset":
        summary = _of_shards(path, force=force)
    elif found.name == "minari":
        summary = _of_minari(path, force=force)
    else:
        with found.open(path) as source:
            summary = {"episodes": len(source), "steps": source.steps, "index": None, "made": False}
    summary: dict[str, Any] = {"path": str(path), "format": found.name, **summary}
    if as_json:
        print_json(summary)
        return
    where = summary["index"]
    said = "needs no index" if where is None else f"index {'made' if summary['made'] else 'was there'}: {where}"
    counts = f"{counted(summary['episodes'], 'episode')}, {counted(summary['steps'], 'step')}"
    Console(soft_wrap=True).print(f"{path} ({found.name}): {counts}; {said}", highlight=False)


class _Indexed(ShardSource):
    """Shards whose index is saved even for few members."""

    def keep(self) -> None:
        """Write the index. Raises `OSError` where the cache folder cannot be written."""
        shard_index.save(shard_index.place(self.path), self._state_key(), self.state.content)

    @property
    def is_kept(self) -> bool:
        """Return whether the cache has an index of this state."""
        return shard_index.load(shard_index.place(self.path), self._state_key()) is not None

    def _state_key(self) -> str:
        return shard_index.state_of(self._key, self.shards, self.state.archives.buffers)


def _of_shards(path: Path, *, force: bool) -> dict[str, Any]:
    place = shard_index.place(path)
    if force:
        place.unlink(missing_ok=True)
    with _Indexed(path) as source:
        made = force or not source.is_kept
        if made:
            source.keep()
        counts = {"episodes": len(source), "steps": source.steps, "samples": len(source.samples)}
        shards = {"shards": len(source.shards), "layout": source.layout}
    return {**counts, **shards, "index": str(place), "index_size": size(place.stat().st_size), "made": made}


def _of_minari(path: Path, *, force: bool) -> dict[str, Any]:
    """Open the dataset, which saves the index of a large dataset."""
    folder, main = minari_place(path)
    place = index_cache.place((folder / main if main is not None else folder).absolute(), "user")
    if place is None:
        raise FormatError("expected a folder for the index, got none; set PENSTOCK_CACHE", path=path)
    if force:
        place.unlink(missing_ok=True)
    before = place.stat().st_mtime_ns if place.exists() else None
    with Hdf5Source(folder, main) if main is not None else ArrowSource(folder) as source:
        counts = {"episodes": len(source), "steps": source.steps}
    kept = place.exists()
    made = kept and place.stat().st_mtime_ns != before
    return {**counts, "index": str(place) if kept else None, "made": made}
