"""Tables as text."""

from __future__ import annotations

import io
from typing import Any


def printed(renderable: Any, width: int = 140) -> str:
    """Return the output of rich for an object, without colours."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(renderable)
    text = console.file
    return text.getvalue().rstrip("\n") if isinstance(text, io.StringIO) else ""
