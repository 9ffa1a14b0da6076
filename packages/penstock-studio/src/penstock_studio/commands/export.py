"""`penstock export`: an episode as a recording for another viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.options import From, In, Opening, Storage, opened, pairs
from penstock.cli.show import Json, print_json
from penstock.core.text import counted
from penstock.data.dataset import EpisodeDataset
from penstock.errors import DataError
from penstock_studio.viewer.rerun_recording import write_rerun

SUFFIX = ".rrd"
ViewOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--view",
        metavar="NAME=VALUE",
        help="An option of the view of the data, such as map=semantic_map.pb and meta=meta.json of driving logs; "
        "can be repeated.",
    ),
]


def export(
    location: In,
    episode: Annotated[
        int, typer.Option("--episode", "-e", help="The episode; negative numbers count from the end.")
    ] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="The recording, a file of Rerun: .rrd.")] = Path(
        "episode.rrd"
    ),
    view: ViewOptions = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    source: From = None,
    opening: Opening = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Write an episode as a recording of Rerun: pictures, curves, texts, scenes. Open it with: rerun FILE.

    Needs the extra `rerun`. Lists columns that are left out.

    Example: penstock export ./kitchen --episode 3 -o kitchen.rrd
    """
    if out.suffix != SUFFIX:
        raise DataError(f"expected the name of a recording such as episode{SUFFIX}, got {out.name!r}")
    located, dataset = opened(location, opening, source, pairs(storage, "--storage"))
    with dataset:
        written = write_rerun(EpisodeDataset(dataset), episode, out, view=pairs(view, "--view"), overwrite=overwrite)
    if as_json:
        columns = {"columns": list(written.columns), "left_out": written.left_out}
        print_json({"path": str(located), "episode": written.episode, "out": str(out), **columns})
        return
    console = Console(soft_wrap=True)
    console.print(f"{out}: episode {written.episode} of {located}, {counted(len(written.columns), 'column')}")
    for path, reason in written.left_out.items():
        console.print(f"left out {path}: {reason}", highlight=False)
