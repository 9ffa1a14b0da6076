"""`penstock split`: parts of a dataset without leakage, as new datasets or as curations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.options import From, In, Opening, Storage, opened, pairs, stores
from penstock.cli.show import Json, print_json
from penstock.conversion.convert import convert
from penstock.data.curation import SUFFIX, Curation
from penstock.data.dataset import EpisodeDataset
from penstock.data.episode_marks import EpisodeMarks
from penstock.errors import ArgumentError
from penstock.locations.location import has_url


def split(
    location: In,
    share: Annotated[
        list[str], typer.Option("--share", metavar="NAME=SHARE", help="A part: a fraction or a number of episodes.")
    ],
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Metadata or column that two parts may not share.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="NAME", help="Metadata or column that orders the episodes.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help="Folder of the new datasets.")] = None,
    curations: Annotated[
        bool, typer.Option("--curations", help="Write a curation for each part next to the dataset instead.")
    ] = False,
    to: Annotated[str, typer.Option("--to", help="Format of the new datasets.")] = "columns",
    duplicates: Annotated[
        bool, typer.Option("--divide-duplicates", help="Equal episodes may be in different parts; reads no values.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the draw.")] = 0,
    source: From = None,
    opening: Opening = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Split a dataset into parts without leakage.

    Episodes are divided one by one, by groups or by time. Episodes with the same values, the same value of --by or the
    same time are in one part. The parts are new datasets in --out, or with --curations files that
    `penstock.open(curation=)` applies.

    Example: penstock split ./cartpole --share train=0.9 --share test=0.1 --out ./parts
    """
    if (out is None) != curations:
        raise ArgumentError("expected --out FOLDER for new datasets, or --curations")
    if curations and has_url(location):
        raise ArgumentError(
            "expected a local dataset with --curations, which are written next to it; use --out for a URL"
        )
    (options_of_store,) = stores(storage, location)
    located, dataset = opened(location, opening, source, options_of_store)
    written: list[dict[str, Any]] = []
    with dataset:
        data = EpisodeDataset(dataset)
        shares = pairs(share, "--share")
        for name, part in data.split(shares, by=by, time=time, duplicates=duplicates, seed=seed).items():
            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
                place = Path(convert(part, out / name, format=to).out)
            else:
                place = _curation(Path(located.paths[0]), name, part)
            written.append({"name": name, "episodes": len(part), "steps": part.total_steps, "path": str(place)})
    if as_json:
        print_json({"parts": written})
        return
    table = Table("part", "episodes", "steps", "path", box=None, header_style="bold", pad_edge=False)
    for each in written:
        table.add_row(each["name"], f"{each['episodes']:,}", f"{each['steps']:,}", Text(each["path"]))
    Console(soft_wrap=True).print(table)


def _curation(path: Path, name: str, part: EpisodeDataset) -> Path:
    """Write a curation that excludes the episodes of the other parts."""
    place = path.with_name(f"{path.name}.{name}{SUFFIX}")
    if place.exists():
        raise FileExistsError(f"{place} exists; remove it, or choose another name for the part")
    others = np.setdiff1d(np.arange(len(part.source)), np.asarray(part.episodes.index, np.int64))
    with Curation.edit(place, part.source) as curation:
        for episode in others.tolist():
            curation[episode] = EpisodeMarks(excluded=True)
    return place
