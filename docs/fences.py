"""For the reference: the `>>>` examples of docstrings become code blocks, and names of stubs are public."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

# A prompt line, indented in a section, and everything down to the next empty line, as doctest reads it.
EXAMPLE = re.compile(r"^( *)>>> .*(?:\n.+)*", re.MULTILINE)


class Fences(griffe.Extension):
    """Puts a fence around every example, and exports the names of a stub."""

    def on_module(self, *, mod: griffe.Module, **kwargs: Any) -> None:
        """Called with every module: a package with a stub exports what the stub imports `as` itself."""
        stub = Path(str(mod.filepath)).with_suffix(".pyi")
        if mod.is_init_module and stub.exists():
            mod.exports = re.findall(r" as (\w+)$", stub.read_text("utf-8"), re.MULTILINE)

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called with every object that was loaded."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(fenced, obj.docstring.value)


def fenced(example: re.Match[str]) -> str:
    """An example between fences of its indentation."""
    return f"{example[1]}```pycon\n{example[0]}\n{example[1]}```"
