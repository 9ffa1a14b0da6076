"""How far up the search of the site puts a page: pages that answer a task before those that list names or figures."""

from __future__ import annotations

from typing import Any

WEIGHTS = {"howto": 6.0, "start": 4.0, "concepts": 3.0, "formats": 2.0, "reference": 0.2}
LOW = ("architecture", "benchmarks", "decisions", "licences", "index", "reference", "design")  # by file


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by mkdocs with every page: its metadata weigh it, unless they do already."""
    folder, _, name = page.file.src_uri.removesuffix(".md").rpartition("/")
    weight = 0.2 if name in LOW else WEIGHTS.get(folder, 1.0)
    page.meta.setdefault("search", {"boost": weight})
    return markdown
