"""`penstock demo`: the command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.demo.report import draw, tables
from penstock.cli.demo.road import Result, travel
from penstock.cli.demo.tasks import TASKS
from penstock.cli.show import Json, print_json


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="A folder that is made, for all files.")] = Path("out/demo"),
    quick: Annotated[bool, typer.Option("--quick", help="A few episodes and one epoch: do all parts work?")] = False,
    as_json: Json = False,
) -> None:
    """Record, train, stop, resume and evaluate, from end to end.

    Three environments (control, physics, pixels) are played by an expert and at random, and recorded in two formats.
    A small network imitates the episodes worth it. The training is done twice: in one go, and stopped half-way, saved,
    and continued in a new process; batches and weights have to be the same. Exit code 1 if a check fails.

    Example: penstock demo --out out/demo
    """
    out.mkdir(parents=True)
    console = Console(stderr=as_json)
    results: list[Result] = []
    for task in TASKS:
        with console.status(f"{task.env_id}: recording, training, resuming, playing"):
            results.append(travel(task.quick() if quick else task, out))
    draw(results, out / "demo.png")
    if as_json:
        print_json([result.to_json() for result in results])
    else:
        console.print(tables(results))
        console.print(f"Picture and datasets are in {out}; look at one with: penstock info {results[0].recorded.path}")
    if not all(held for result in results for held in result.checks.values()):
        raise typer.Exit(1)
