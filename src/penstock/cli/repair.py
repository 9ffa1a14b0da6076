"""`penstock repair`: mend what can be mended without loss."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from penstock.cli.check import render as render_findings
from penstock.cli.options import From, Opening, pairs
from penstock.cli.show import Fitted, Json, print_json
from penstock.doctor.repair import RepairReport, repair_log, undo_repair
from penstock.doctor.repair import repair as mended
from penstock.replay import journal as replay_journal


def journals() -> dict[bytes, Callable[[Path], int]]:
    """By the first bytes of a journal: the function that finds its whole size. The entry points `penstock.journals`
    name modules with `MAGIC` and `whole_size`, such as the journal of replay.
    """
    modules = [replay_journal, *(point.load() for point in importlib.metadata.entry_points(group="penstock.journals"))]
    return {module.MAGIC: module.whole_size for module in modules}


def repair(
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="A file or folder on this machine, or a journal.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="COPY", help="Where a mended copy goes.")] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Change the dataset, after a backup of the bytes that change.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only list what would change.")] = False,
    undo: Annotated[
        Path | None, typer.Option("--undo", metavar="BACKUP", help="Put the bytes of a backup of DATASET back.")
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read all values, which finds more.")] = False,
    source: From = None,
    opening: Opening = None,
    as_json: Json = False,
) -> None:
    """Mend what can be mended without loss, in a copy or in place.

    That is torn tails, totals, numbering, missing Parquet footers and statistics.
    Exit code 1 if errors remain that cannot be mended; they are listed.

    Example: penstock repair ./cartpole --plan
    """
    if undo is not None:
        place = undo_repair(undo)
        if as_json:
            print_json({"path": str(place), "undone": str(undo)})
        else:
            Console(soft_wrap=True).print(Text(f"{place} is as it was before the repair"))
        return
    how: dict[str, Any] = {"out": out, "in_place": in_place, "plan": plan}
    if (whole_size := _journal(dataset)) is not None:
        report = repair_log(dataset, whole_size, **how)
    else:
        report = mended(dataset, **how, deep=deep, format=source, **pairs(opening, "--open"))
    if as_json:
        print_json(_plain(report))
    else:
        Console(soft_wrap=True).print(_render(report, dataset, plan=plan))
    if not report.sound:
        raise typer.Exit(1)


def _journal(path: Path) -> Callable[[Path], int] | None:
    """The function for the journal that a file is, or None for a dataset."""
    if not path.is_file():
        return None
    known = journals()
    with path.open("rb") as file:
        head = file.read(max(map(len, known)))
    return next((whole_size for magic, whole_size in known.items() if head.startswith(magic)), None)


def _plain(report: RepairReport) -> dict[str, Any]:
    repairs = [{"finding": each.finding, "file": str(each.path), "change": each.message} for each in report.repairs]
    return {
        "repairs": repairs,
        "left": [finding.to_json() for finding in report.left],
        "out": None if report.out is None else str(report.out),
        "backups": [str(path) for path in report.backups],
        "sound": report.sound,
    }


def _render(report: RepairReport, path: Path, *, plan: bool) -> RenderableType:
    parts: list[RenderableType] = []
    if report.repairs:
        title = "would change" if plan else "changed"
        table = Table("finding", Column("file", overflow="fold"), title, box=None, header_style="bold", pad_edge=False)
        for each in report.repairs:
            table.add_row(Text(each.finding), Text(str(each.path)), Text(each.message))
        parts.append(Fitted(table))
    else:
        parts.append(Text(f"{path}: nothing to mend"))
    parts += [Text(f"backup: {backup}") for backup in report.backups]
    if report.out is not None:
        parts.append(Text(f"mended: {report.out}", style="green"))
    left = [each for each in report.left if not (plan and each.repair)]
    if left:
        parts.append(render_findings("not mended", str(path), left))
    return Group(*parts)
