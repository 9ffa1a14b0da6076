"""Say that kernels compile, which takes seconds: while they do, and once what it was for."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

QUIET_SECONDS = 1.0
"""How long this process may compile before it says so."""

_logger = logging.getLogger("penstock")


@dataclass
class _Compiled:
    """What this process has compiled."""

    seconds: float = 0.0
    announced: bool = False


_compiled = _Compiled()


@contextmanager
def compiling(name: str, folder: str) -> Generator[None]:
    """Show on a terminal which kernel compiles, until the block ends."""
    begun = time.perf_counter()
    line = f"penstock: compiling kernels, once: {name}" if _on_terminal() else ""
    if line:
        print(f"\r{line}", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if line:
            print(f"\r{' ' * len(line)}\r", end="", file=sys.stderr, flush=True)
    compiled_for(time.perf_counter() - begun, folder)


def compiled_for(seconds: float, folder: str) -> None:
    """Say once that this process has compiled for a while: on a terminal to stderr, else to the log."""
    _compiled.seconds += seconds
    if _compiled.announced or _compiled.seconds <= QUIET_SECONDS:
        return
    _compiled.announced = True
    message = (
        f"compiled kernels for {_compiled.seconds:.1f} s, and may compile more at their first use; later runs load "
        f"them from {folder}; `penstock warmup` compiles all of them"
    )
    if _on_terminal():
        print(f"penstock: {message}", file=sys.stderr, flush=True)
    else:
        _logger.info(message)


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
