"""`penstock reshard`: write tar shards again, with another size, compression or layout."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from penstock.cli.jobs import WorkOptions, show_in_parts, works_in_parts
from penstock.cli.options import In, Storage, nbytes, storage_options
from penstock.cli.show import Json, print_json, size
from penstock.containers.tar.compress import Compression
from penstock.conversion.convert import convert
from penstock.core.text import counted
from penstock.data.chosen import ChosenDataset
from penstock.data.located import locate
from penstock.errors import DataError
from penstock.formats.webdataset.copying import copy
from penstock.formats.webdataset.shards import SUFFIXES
from penstock.formats.webdataset.source import ShardSource
from penstock.formats.webdataset.writer import SHARD_EPISODES
from penstock.jobs.operations.reshard import archives_at
from penstock.jobs.staging import local_target
from penstock.locations.location import output_place
from penstock.locations.upload import uploading

COMPRESSIONS = ("none", "gzip", "zstd")


@works_in_parts
def reshard(
    location: In,
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="A new folder, or the name of one new archive; a path or a URL.")
    ],
    shard_bytes: Annotated[
        str, typer.Option("--shard-bytes", help="The size limit of a shard, such as 500MB.")
    ] = "1GiB",
    shard_episodes: Annotated[
        int, typer.Option("--shard-episodes", min=1, help="The limit of episodes, or single samples, in a shard.")
    ] = SHARD_EPISODES,
    compression: Annotated[str, typer.Option("--compression", help="none, gzip or zstd.")] = "none",
    layout: Annotated[
        str | None, typer.Option("--layout", help="npy or seed; by default the source's layout, without decoding.")
    ] = None,
    storage: Storage = None,
    as_json: Json = False,
    *,
    work: WorkOptions,
) -> None:
    """Write tar shards again, with another size, compression or layout.

    If the layout stays the same, members are copied unchanged. OUT appears only when it is complete. For a URL, shards
    are written to the user's cache and then uploaded. In parts, each new archive is written by another job, with the
    same bytes.

    Example: penstock reshard ./demos.tgz ./demos --shard-bytes 500MB --compression zstd --jobs 4
    """
    if compression not in COMPRESSIONS:
        raise DataError(f"expected a compression of {', '.join(COMPRESSIONS)}, got {compression!r}")
    packed: Compression = None if compression == "none" else _kind(compression)
    limits = (max(nbytes(shard_bytes), 1), shard_episodes)
    read_options, write_options = storage_options(storage, location, out)
    shown = {"json": as_json}
    if work.wanted:
        if layout is not None:
            hint = f"run in parts: penstock convert IN OUT --format webdataset --option layout={layout}"
            raise DataError(f"expected no --layout in parts, which copy members unchanged, got {layout!r}; {hint}")
        arguments = {
            **ChosenDataset(location, storage_options=read_options).arguments(),
            **{"out": str(local_target(out).absolute()), "show": {**shown, "path": str(local_target(out))}},
            **{"shard_bytes": limits[0], "shard_episodes": limits[1], "compression": packed},
        }
        show_in_parts("reshard", arguments, work, quiet=as_json)
        return
    place = output_place(out)
    shards = archives_at(locate(location, storage_options=read_options), out)
    with ShardSource(shards) as source, ExitStack() as stack:
        path = place if isinstance(place, Path) else stack.enter_context(uploading(place, write_options))
        if not isinstance(place, Path):
            _remove_leftover(path)
        if layout in (None, source.layout):
            copy(source, path, limits, packed)
        elif source.layout == "samples" or layout not in ("npy", "seed"):
            hint = "write other datasets with: penstock convert IN OUT --format webdataset"
            raise DataError(
                f"expected the layout {source.layout!r}, or npy or seed of episodes, got {layout!r}; {hint}"
            )
        else:
            options = {"layout": layout, "shard_bytes": limits[0], "shard_episodes": limits[1], "compression": packed}
            convert(source, path, format="webdataset", options=options)
        summary = {"path": str(place), **_summary(path, layout or source.layout, len(source))}
    present(summary, {"show": {**shown, "path": str(place)}})


def present(summary: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Print how many shards were written."""
    path = arguments["show"]["path"]
    if arguments["show"]["json"]:
        print_json({**summary, "path": path})
    else:
        counts = (counted(summary[name], name.rstrip("s")) for name in ("shards", "episodes"))
        text = ", ".join((*counts, size(summary["bytes"])))
        Console(soft_wrap=True).print(f"{path}: {text}", highlight=False)


def _kind(name: str) -> Literal["gzip", "zstd"]:
    return "gzip" if name == "gzip" else "zstd"


def _remove_leftover(path: Path) -> None:
    """Remove the shards of an upload that was interrupted: they are written again."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _summary(out: Path, layout: str, episodes: int) -> dict[str, Any]:
    shards = sorted(p for p in out.iterdir() if p.name.endswith(SUFFIXES)) if out.is_dir() else [out]
    total = sum(shard.stat().st_size for shard in shards)
    return {"layout": layout, "episodes": episodes, "shards": len(shards), "bytes": total}
