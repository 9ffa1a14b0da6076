"""Progress bars of long loops over blocks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager


def tracked(blocks: range, what: str, progress: bool | None) -> Iterable[int]:
    """Return blocks to loop over, with a progress bar on standard error that disappears at the end."""
    from rich.console import Console  # not at the import of this module, which is part of every start
    from rich.progress import track

    console = Console(stderr=True)
    shown = console.is_terminal and len(blocks) > 1 if progress is None else progress
    return track(blocks, what, console=console, transient=True) if shown else blocks


@contextmanager
def progress_bar(what: str, *, quiet: bool = False) -> Generator[Callable[[int, int], object]]:
    """Show a bar on standard error. Gives the function to call with the number that is done, and the number of all."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)
