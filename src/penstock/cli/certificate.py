"""`penstock certificate`: how much a conversion kept."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.jobs import WorkOptions, show_in_parts, works_in_parts
from penstock.cli.options import Storage, stores
from penstock.cli.show import Fitted, Json, print_json
from penstock.conversion.certificate import Certificate
from penstock.conversion.verify import verify
from penstock.core.text import counted
from penstock.data.chosen import ChosenDataset
from penstock.data.open import open
from penstock.errors import ArgumentError

STYLES = {
    **{"equal": "green", "changed": "cyan", "computed": "cyan", "dropped": "cyan"},
    **{"lossy": "yellow", "filled": "yellow", "left out": "red", "different": "red"},
}


@works_in_parts
def certificate(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Path or URL of a dataset that a conversion wrote.")],
    source: Annotated[
        str | None, typer.Argument(metavar="[SOURCE]", help="With --verify: the source, to compare it as well.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--verify", help="Read the dataset and compare it with the certificate; exit code 1 if not.")
    ] = False,
    curation: Annotated[
        Path | None,
        typer.Option("--curation", metavar="FILE", help="The curation that the source was converted with."),
    ] = None,
    storage: Storage = None,
    as_json: Json = False,
    *,
    work: WorkOptions,
) -> None:
    """Show what a conversion kept, changed and left out; --verify compares again.

    Every conversion ends with a certificate, a JSON file next to the target. It has a digest of each column of each
    episode, of both datasets.

    Example: penstock certificate ./cartpole-minari ./cartpole --verify
    """
    if source is not None and not again:
        raise ArgumentError("expected --verify with a SOURCE, got a SOURCE alone")
    if curation is not None and source is None:
        raise ArgumentError("expected --curation with a SOURCE, got it alone")
    places = [target] if source is None else [target, source]
    options = stores(storage, *places)
    shown = {"json": as_json, "verified": again}
    if work.wanted:
        arguments = _arguments(places, options, curation, shown)
        show_in_parts("verify", arguments, work, quiet=as_json)
        return
    wrong: list[str] = []
    if again:
        stored = Certificate.read(target, options[0])
        with ExitStack() as opened:
            written, *sources = [
                opened.enter_context(open(place, storage_options=given, curation=marks))
                for place, given, marks in zip(places, options, [None, curation], strict=False)
            ]
            wrong = list(verify(stored, written.source, *sources))
    present(wrong, {"location": target, "storage_options": options[0], "show": shown})


def _arguments(
    places: list[str], options: list[dict[str, Any]], curation: Path | None, shown: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of the operation: the target, and the source if it is compared too."""
    if not shown["verified"]:
        raise ArgumentError("expected --verify with the options of work in parts, got none")
    marks = None if curation is None else str(curation)
    target = ChosenDataset(places[0], storage_options=options[0]).arguments()
    own = [ChosenDataset(places[1], storage_options=options[1], curation=marks).arguments()] if places[1:] else [None]
    return {**target, "source": own[0], "show": shown}


def present(wrong: list[str], arguments: Mapping[str, Any]) -> None:
    """Print a certificate, and what is no longer as it says. Exit code 1 if there is something."""
    shown = arguments["show"]
    stored = Certificate.read(arguments["location"], arguments["storage_options"] or None)
    if shown["json"]:
        print_json({**stored.to_json(), **({"verified": not wrong, "wrong": wrong} if shown["verified"] else {})})
    else:
        Console(soft_wrap=True).print(render(stored, wrong if shown["verified"] else None))
    if wrong:
        raise typer.Exit(1)


def render(stored: Certificate, wrong: list[str] | None) -> RenderableType:
    """Return the certificate as text for people, with the result of a comparison if there was one."""
    source, target = stored.source, stored.target
    counts = f"{counted(target['episodes'], 'episode')}, {counted(target['steps'], 'step')}"
    title = Text(f"{source['reader']} -> {target['reader']}: {counts}, by penstock {stored.version}", style="bold")
    table = Table("column", "of", "kept", "how", box=None, header_style="bold", pad_edge=False)
    for column in stored.columns:
        change = column.change
        if column.psnr is not None and column.ssim is not None:
            change += f", at least {column.psnr:.1f} dB PSNR and {column.ssim:.3f} SSIM"
        status = Text(column.status, style=STYLES[column.status])
        table.add_row(Text(column.column), Text(column.origin or ""), status, Text(change))
    for note in stored.notes:
        table.add_row(Text(note.what), "", Text(note.level), Text(note.message))
    parts: list[RenderableType] = [title, Fitted(table)]
    for function in stored.functions:
        parts.append(Text(f"function {function['name']}, digest {function['digest']}, seed {function['seed']}"))
    if wrong is not None:
        lines = [Text(line, style="red") for line in wrong] or [Text("verified: nothing changed since", style="green")]
        parts += lines
    return Group(*parts)
