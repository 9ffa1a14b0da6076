"""Tests for `tools/measures.py`, whose table `make check` prints."""

from __future__ import annotations

import runpy
from pathlib import Path

MEASURES = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "measures.py"))

SOURCE = '''"""Opening comment,
of two lines."""

from typing import Any

LIMIT = 3  # rows
"""Text of a constant."""


def check(rows: Any) -> Any:
    """Text of a function."""
    # a comment
    text = "no # comment"
    return rows, text
'''


def test_lines_are_counted_by_kind() -> None:
    file = MEASURES["measured"](SOURCE)
    assert (file.lines, file.code, file.comments, file.texts, file.anys) == (14, 5, 4, 4, 2)


CLASS = '''class Rows:
    """Rows."""

    def read(self):
        """Read
        rows."""
        a, b, c = 1, 2, 3
        a, b, c = c, a, b
'''


def test_functions_and_classes_are_measured() -> None:
    file = MEASURES["measured"](CLASS)
    assert (file.functions, file.classes, file.crowded, file.short_texts) == ({"read:4": 3}, ("Rows",), 1, 2)


def test_files_that_share_lines_are_pairs() -> None:
    shared = [f"value_{i} = {i}" for i in range(MEASURES["SHARED"])]
    one, other, third = "\n".join(["a = 1", *shared]), "\n".join([*shared, "import b"]), "\n".join(shared[1:])
    files = {name: MEASURES["measured"](source) for name, source in {"1": one, "2": other, "3": third}.items()}
    assert MEASURES["pairs"](files) == {("1", "2")}


def test_retired_names_are_counted_where_they_are_bound() -> None:
    file = MEASURES["measured"]("def read(at):\n    found, rows = at, 1\n    return [held for held in found]\n")
    assert file.retired == ("1: at", "2: found", "3: held")


def test_broken_limits_are_named() -> None:
    crowded = MEASURES["measured"]("a, b, c = 1, 2, 3\n")
    assert MEASURES["broken_limits"]({"a.py": crowded}) == ["a.py: 1 lines with three assignments"]
    typed = MEASURES["measured"]("def f(x: Any) -> Any: ...\n" * 30)
    assert MEASURES["broken_limits"]({"kernels/a.py": typed}) == ["kernels/a.py: uses `Any` 60 times"]
    assert MEASURES["broken_limits"]({"plan/a.py": typed}) == []
