"""`penstock export`: a dataset or an episode as a page of one file, or an episode as a recording of Rerun."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.options import From, In, Opening, Storage, opened, pairs
from penstock.cli.show import Json, print_json
from penstock.core.text import counted
from penstock.data.dataset import EpisodeDataset
from penstock.doctor.examine import examine
from penstock.errors import DataError
from penstock.files import write_atomic
from penstock_studio.viewer.rerun_recording import write_rerun

SUFFIXES = (".html", ".rrd")
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
        int | None,
        typer.Option(
            "--episode",
            "-e",
            help="The episode; negative numbers count from the end. By default the whole dataset, for .rrd the first.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A recording of Rerun, .rrd, or a page of one file, .html.")
    ] = Path("episode.rrd"),
    view: ViewOptions = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    source: From = None,
    opening: Opening = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Write a dataset or an episode as one HTML file, or an episode for Rerun.

    The page of a dataset has the findings of a check. A recording has pictures, curves, texts and scenes, needs the
    extra `rerun`, and lists columns that are left out.

    Example: penstock export ./kitchen --episode 3 -o kitchen.rrd
    """
    if out.suffix not in SUFFIXES:
        raise DataError(f"expected a name such as kitchen.html or episode.rrd, got {out.name!r}")
    located, dataset = opened(location, opening, source, pairs(storage, "--storage"))
    with dataset:
        data = EpisodeDataset(dataset)
        if out.suffix == ".html":
            _write_page(data, located.name, episode, out, overwrite=overwrite)
            what = "dataset" if episode is None else f"episode {episode}"
            if as_json:
                print_json({"path": str(located), "episode": episode, "out": str(out)})
            else:
                Console(soft_wrap=True).print(f"{out}: {what} of {located}", highlight=False)
            return
        written = write_rerun(data, episode or 0, out, view=pairs(view, "--view"), overwrite=overwrite)
    if as_json:
        columns = {"columns": list(written.columns), "left_out": written.left_out}
        print_json({"path": str(located), "episode": written.episode, "out": str(out), **columns})
        return
    console = Console(soft_wrap=True)
    console.print(f"{out}: episode {written.episode} of {located}, {counted(len(written.columns), 'column')}")
    for path, reason in written.left_out.items():
        console.print(f"left out {path}: {reason}", highlight=False)


def _write_page(data: EpisodeDataset, name: str, episode: int | None, out: Path, *, overwrite: bool) -> None:
    """Write the page of a dataset with its findings, or the one of an episode."""
    if episode is None:
        content = data.show(examine(data.source).findings).document(name)
    else:
        if not -len(data) <= episode < len(data):
            raise DataError(f"expected an episode within {-len(data)}:{len(data)}, got {episode}")
        content = data[episode].show().document(f"{name}, episode {episode}")
    write_atomic(out, content.encode(), overwrite=overwrite)
