"""For the reference: the `>>>` examples of docstrings become code blocks."""

from __future__ import annotations

import re
from typing import Any

import griffe

# A prompt line, indented in a section, and everything down to the next empty line, as doctest reads it.
EXAMPLE = re.compile(r"^( *)>>> .*(?:\n.+)*", re.MULTILINE)


class Fences(griffe.Extension):
    """Puts a fence around every example."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called with every object that was loaded."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(fenced, obj.docstring.value)


def fenced(example: re.Match[str]) -> str:
    """An example between fences of its indentation."""
    return f"{example[1]}```pycon\n{example[0]}\n{example[1]}```"
