"""A catalogue: the datasets in a folder, one row each, within a bounded time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.table import Column, Table
from rich.text import Text

from penstock.cli.show import Fitted, size
from penstock.core.damage import collected_damage
from penstock.data.located import DatasetFiles, datasets_in
from penstock.errors import PenstockError

SECONDS = 30.0  # after which datasets are listed, and not opened; and of a search without a dataset


def catalogue(folder: Path, seconds: float = SECONDS, fruitless: float = SECONDS) -> list[dict[str, Any]]:
    """Return a row for each dataset in a folder: path, format, episodes, steps, bytes and columns."""
    end = time.monotonic() + seconds
    rows: list[dict[str, Any]] = []
    for path, entry in datasets_in(folder, seconds=fruitless):
        row: dict[str, Any] = {"path": str(path.relative_to(folder)), "format": None}
        row |= {"episodes": None, "steps": None, "bytes": None, "columns": [], "problem": None}
        rows.append(row)
        if isinstance(entry, Exception):
            row["problem"] = str(entry)
            continue
        row["format"] = entry.name
        if time.monotonic() > end:
            row["problem"] = f"not opened within {seconds:g} s"
            continue
        try:
            with collected_damage():
                source = DatasetFiles(entry, (path,)).open(allow_unfinished=True)
            with source:
                row |= {"episodes": len(source), "steps": source.steps, "columns": list(source.spec)}
                row["problem"] = None if source.unfinished is None else source.unfinished.message
            files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
            row["bytes"] = sum(file.stat().st_size for file in files)
        except (PenstockError, OSError) as error:
            row["problem"] = str(error)
    return rows


def render(rows: list[dict[str, Any]]) -> Fitted:
    """Return the catalogue as a table for people."""
    table = Table(Column("dataset", overflow="fold"), "format", box=None, header_style="bold", pad_edge=False)
    for name in ("episodes", "steps", "size"):
        table.add_column(name, justify="right")
    table.add_column("columns", overflow="fold")
    for row in rows:
        numbers = ["" if row[name] is None else f"{row[name]:,}" for name in ("episodes", "steps")]
        nbytes = "" if row["bytes"] is None else size(row["bytes"])
        about = Text(row["problem"], style="red") if row["problem"] else Text(", ".join(row["columns"]))
        table.add_row(Text(row["path"], style="cyan"), row["format"] or "", *numbers, nbytes, about)
    return Fitted(table)
