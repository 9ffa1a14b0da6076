"""`penstock index`: build the index of a dataset ahead of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from penstock.cli.jobs import WorkOptions, show_in_parts, works_in_parts
from penstock.cli.options import In, Storage, pairs
from penstock.cli.show import Json, print_json, size
from penstock.core.text import counted
from penstock.data.chosen import ChosenDataset
from penstock.data.located import locate


@works_in_parts
def index(
    location: In,
    force: Annotated[bool, typer.Option("--force", help="Build the index again, even if it is up to date.")] = False,
    storage: Storage = None,
    as_json: Json = False,
    *,
    work: WorkOptions,
) -> None:
    """Build the index of a dataset ahead of time, so that opening it is quick.

    Tar shards, large Minari datasets, and tables of 1,024 files and more have an index in the user's cache. Other
    formats need none, and none is kept of files that changed less than 2 s ago. In parts, jobs read the footers and
    episodes of tables.

    Example: penstock index ./shards --force --jobs 8
    """
    options = pairs(storage, "--storage")
    datasets = locate(location, storage_options=options).datasets
    shown = {"json": as_json, "titles": [str(each) for each in datasets]}
    if work.wanted:
        arguments = {**ChosenDataset(location, storage_options=options).arguments(), "force": force, "show": shown}
        show_in_parts("index", arguments, work, quiet=as_json)
        return
    summaries = [
        {"path": str(each), "format": each.format.name, **each.format.build_index(each.paths, force=force)}
        for each in datasets
    ]
    present(summaries, {"show": shown})


def present(summaries: list[dict[str, Any]], arguments: Mapping[str, Any]) -> None:
    """Print a line for each dataset, or its summary as JSON."""
    for title, summary in zip(arguments["show"]["titles"], summaries, strict=True):
        if arguments["show"]["json"]:
            readable = {"index_size": size(summary["index_size"])} if "index_size" in summary else {}
            print_json({**summary, "path": title, **readable})
            continue
        where = summary["index"]
        said = "no index is kept" if where is None else f"index {'made' if summary['made'] else 'was there'}: {where}"
        counts = f"{counted(summary['episodes'], 'episode')}, {counted(summary['steps'], 'step')}"
        Console(soft_wrap=True).print(f"{title} ({summary['format']}): {counts}; {said}", highlight=False)
