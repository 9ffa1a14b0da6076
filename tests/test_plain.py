"""Tests for `tools/plain.py`, which `make check` runs over the whole project: none here does."""

from __future__ import annotations

import runpy
from pathlib import Path

PLAIN = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "plain.py"))

SOURCE = '''
"""Rows lie in order.

What is `beside` them in code does not count.

    >>> whatever = "beside"
"""


def check(rows: int) -> None:
    # one that nobody
    # reads
    if rows < 0:
        raise ValueError(f"row {rows} is not there")
'''


def test_docstrings_comments_and_messages_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(SOURCE)
    counts = PLAIN["count"](file, "module.py")
    assert [(line, phrase) for _, line, phrase, _ in counts.flags] == [
        (2, "lie"),
        (4, "What is"),
        (11, "nobody"),
        (14, "is not there"),
    ]
    assert counts.words == 21


def test_code_and_tables_of_markdown_do_not_count(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n\n```python\nbeside = 1\n```\n\n| lies | held |\n\nRows `lie` in\norder, beside others.\n"
    )
    counts = PLAIN["count"](page, "page.md")
    assert [(line, phrase) for _, line, phrase, _ in counts.flags] == [(10, "beside")]


def test_a_file_above_its_limit_is_reported() -> None:
    counts = PLAIN["Counts"](250, [("a.py", 1, "beside", "next to")] * 2)
    wrong = PLAIN["over_limits"]({"a.py": ("new", counts)}, {"new": counts})
    assert [line.split(":")[0] for line in wrong] == ["all", "new", "a.py"]
