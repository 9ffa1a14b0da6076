"""`penstock merge-curations`: the curations of several people as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from penstock.cli.options import Storage, stores
from penstock.cli.show import Json, print_json
from penstock.core.text import counted
from penstock.data.curation import Curation, MarkConflict
from penstock.data.open import open


def merge_curations(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Curations of one dataset. The last one wins.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The merged curation.")],
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="LOCATION", help="The dataset, if episodes were appended between the curations."
        ),
    ] = None,
    storage: Storage = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing file, such as one of those that are merged.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Merge the curations of several people; exit code 1 if they conflict.

    The new file has all tags, spans and notes. Ratings and exclusions that differ are listed, and the last file wins.

    Example: penstock merge-curations ann.json ben.json --out kitchen.curation.json
    """
    if data is None:
        if storage:
            raise typer.BadParameter("expected --data with --storage")
        merged, conflicts = Curation.merge_files(files, out, overwrite=overwrite)
    else:
        (options,) = stores(storage, data)
        with open(data, storage_options=options) as dataset:
            merged, conflicts = Curation.merge_files(files, out, dataset.source, overwrite=overwrite)
    marked = sum(1 for _ in merged.marks())
    if as_json:
        listed = [_to_json(conflict) for conflict in conflicts]
        print_json({"out": str(out), "episodes": merged.episodes, "marked": marked, "conflicts": listed})
    else:
        console = Console(soft_wrap=True)
        for conflict in conflicts:
            console.print(Text(str(conflict)))
        marks = f"{marked:,} of {counted(merged.episodes, 'episode')} marked"
        console.print(Text(f"{out}: {marks}, {counted(len(conflicts), 'conflict')}"))
    if conflicts:
        raise typer.Exit(1)


def _to_json(conflict: MarkConflict) -> dict[str, object]:
    return {"episode": conflict.episode, "mark": conflict.mark, "values": list(conflict.values)}
