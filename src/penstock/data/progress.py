"""Progress bars of long loops over blocks."""

from __future__ import annotations

from collections.abc import Iterable


def tracked(blocks: range, what: str, progress: bool | None) -> Iterable[int]:
    """Return blocks to loop over, with a progress bar on standard error that disappears at the end."""
    from rich.console import Console  # not at the import of this module, which is part of every start
    from rich.progress import track

    console = Console(stderr=True)
    shown = console.is_terminal and len(blocks) > 1 if progress is None else progress
    return track(blocks, what, console=console, transient=True) if shown else blocks
