"""Repairs of games: a tar of games that was cut off ends again behind its last whole member."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from penstock.containers.tar import END
from penstock.containers.tar.walk import torn_end
from penstock.errors import FormatError
from penstock.formats.base.findings import Repair, cut_repair
from penstock_chess.formats.lc0.files import files_at
from penstock_chess.formats.lc0.index import begins_with_record


def torn_archives(path: Path) -> Iterator[Repair]:
    """Yield a repair for each tar that is torn. A gzip member that was cut off lost its last positions, and stays."""
    for file in files_at(path):
        if file.suffix == ".tar" and begins_with_record(file):
            try:
                members, size, torn = torn_end(file)
            except FormatError:
                continue  # damaged before its end: nothing there can be mended
            if torn and len(members):
                yield replace(cut_repair(file, members.end, size, where=file.name, then=END), finding="truncated")
