"""`penstock warmup`: compile all kernels now."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.cli.show import Json, print_json
from penstock.flow.limits import cores
from penstock.kernels.warmup import compile_all


def warmup(as_json: Json = False) -> None:
    """Compile all kernels now, where no wheel has them, so that first calls are fast.

    Needs the extra `jit`. The cache is next to the installed package, or in `NUMBA_CACHE_DIR`.

    Example: penstock warmup
    """
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), disable=as_json, transient=True) as progress:
        task = progress.add_task("compile")

        def advance(done: int, total: int, name: str) -> None:
            progress.update(task, completed=done, total=total, description=name)

        total, compiled = compile_all(cores(), advance)
    if as_json:
        print_json({"kernels": total, "compiled": compiled})
    else:
        Console().print(f"{total} kernels are ready: {compiled} compiled now, {total - compiled} were before")
