"""Notebooks made of pages: the text, the code, and the outputs of the run that tested the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import page_outputs

PAGES = (
    "start/tutorial.md",
    "start/notebooks.md",
    "howto/offline_rl.md",
    "howto/robot_video.md",
    "howto/robots.md",
    "howto/packed_sequences.md",
)
FOLDER = Path("notebooks")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]+\)")  # a notebook is moved, and leaves the pages
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


def file_of(page: Path) -> Path:
    """The notebook of a page; both are relative to the site."""
    return FOLDER / f"{page.stem}.ipynb"


def notebook(page: Path) -> dict[str, Any]:
    """The notebook of a page of `docs`, as `nbformat` 4.5 has it."""
    text, outputs = page.read_text("utf-8"), page_outputs.load(page)
    cells: list[dict[str, Any]] = []
    end = 0
    for block in page_outputs.blocks(text):
        cells += _prose(text[end : block.start], len(cells))
        cells += _code(block, outputs.get(block.key, []))
        end = block.end
    cells += _prose(text[end:], len(cells))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}


def _prose(text: str, number: int) -> list[dict[str, Any]]:
    """A cell of Markdown, if there is any text."""
    text = COMMENT.sub("", LINK.sub(r"\1", text)).strip()
    return [{"cell_type": "markdown", "id": f"text-{number}", "metadata": {}, "source": text}] if text else []


def _code(block: page_outputs.Block, outputs: list[str]) -> list[dict[str, Any]]:
    """The cell of a block of Python, or one of each command."""
    if block.language == "python":
        return [_cell(block.key, block.code, outputs)]
    commands = [line.removeprefix("$ ") for line in block.code.splitlines() if line.startswith("$ ")]
    printed = dict(zip((line.removeprefix("$ ") for line in block.commands), outputs, strict=False))
    return [
        _cell(f"{block.key}-{number}", f"!{command}", [printed[command]] if printed.get(command) else [])
        for number, command in enumerate(commands)
    ]


def _cell(key: str, source: str, outputs: list[str]) -> dict[str, Any]:
    """A cell of code with its output: printed text, or an object with HTML on its last line."""
    shown: list[dict[str, Any]] = []
    if len(outputs) == 2:
        data = {"text/plain": outputs[0], "text/html": outputs[1]}
        shown = [{"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": data}]
    elif outputs:
        shown = [{"output_type": "stream", "name": "stdout", "text": outputs[0] + "\n"}]
    cell = {"cell_type": "code", "id": key, "metadata": {}, "execution_count": None}
    return cell | {"source": source.rstrip("\n"), "outputs": shown}
