"""`python -m examples.demo`, which `make demo` calls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from examples.demo import pictures, story
from examples.demo.report import tables
from examples.demo.road import Result, travel
from examples.demo.shards import ImageTask
from examples.demo.tasks import TASKS
from penstock.cli.show import Json, print_json


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="The new folder for all files.")] = Path("out/demo"),
    quick: Annotated[bool, typer.Option("--quick", help="Run all parts with a few episodes and one epoch.")] = False,
    as_json: Json = False,
) -> None:
    """Record, train, stop, resume and evaluate, from end to end.

    An expert and a random player record four environments (control, physics, two games) in two formats. A small network
    imitates the good episodes. It trains twice: once without a stop, and once stopped half-way, saved and resumed in a
    new process. Batches and weights must be equal. `demo.png` shows one environment from recording to the trained
    agent. Then pictures of a game are written to tar shards, and a small encoder learns from pairs of them. Exit code 1
    if a check fails.

    Example: python -m examples.demo --out out/demo
    """
    out.mkdir(parents=True)
    console = Console(stderr=as_json)
    results: list[Result] = []
    for task in TASKS:
        with console.status(f"{task.env_id}: recording, training, resuming, playing"):
            results.append(travel(task.quick() if quick else task, out))
    images = ImageTask()
    with console.status(f"toy/{images.name}: recording shards, learning from pairs, resuming"):
        seen = pictures.learn(images.quick() if quick else images, out)
    story.draw(results[-1], out / "demo.png")
    if as_json:
        print_json([*(result.to_json() for result in results), seen.to_json()])
    else:
        console.print(tables(results), pictures.table(seen))
        dataset = results[-1].recorded.path
        console.print(f"The picture is {out / 'demo.png'}; look at a dataset with: penstock info {dataset}")
    if not all(passed for outcome in (*results, seen) for passed in outcome.checks.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(demo)
