"""A bar on the terminal while many bytes are fetched, as of a packed archive that has to be fetched whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

SHOWN = 128 << 20
"""Bytes of one fetch from which on a terminal shows a bar."""

_one_bar = threading.Lock()


@contextmanager
def fetch_progress(names: set[str], nbytes: int) -> Generator[Callable[[int], None]]:
    """Show a bar on standard error for the block, if that is a terminal, the fetch is large, and no other
    bar is shown.
    """
    if nbytes < SHOWN or not _one_bar.acquire(blocking=False):
        yield _nothing
        return
    try:
        from rich.console import Console  # not at the import of this module, which small fetches need
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            what = next(iter(names)) if len(names) == 1 else f"{len(names)} files"
            task = progress.add_task(f"fetching {what}", total=nbytes)
            yield lambda count: progress.advance(task, count)
    finally:
        _one_bar.release()


def _nothing(_: int) -> None:
    """No bar is shown."""
