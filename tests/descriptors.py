"""What this process has open, by name: other threads, and garbage of other tests, may close files at any time."""

# pyright: basic

from __future__ import annotations

import os
from pathlib import Path


def opened() -> list[str]:
    """The names of what is open: of files their paths."""
    return [name for number in os.listdir("/proc/self/fd") if (name := _name_of(f"/proc/self/fd/{number}"))]


def opened_below(path: Path) -> int:
    """How many descriptors of a file, or of files below a folder, are open."""
    return sum(name == str(path) or name.startswith(f"{path}/") for name in opened())


def _name_of(link: str) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:  # closed meanwhile, as what the folder was listed with
        return ""
