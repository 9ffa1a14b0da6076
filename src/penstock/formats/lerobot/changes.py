"""Changes of `meta/info.json` of a dataset that exists, while no writer is open."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.errors import ArgumentError
from penstock.files import open_locked, write_atomic
from penstock.formats.lerobot.depth import Unit
from penstock.formats.lerobot.info import INFO, read_info
from penstock.formats.lerobot.pending import FOLDER, LOCK
from penstock.formats.lerobot.written_files import json_bytes


def change_sizes(root: Path, sizes: Mapping[str, int]) -> None:
    """Change the sizes of files and folders for episodes that are saved from now on."""
    if wrong := {name: size for name, size in sizes.items() if size < 1}:
        raise ArgumentError(f"expected sizes of at least 1, got {wrong}")
    with _locked_info(root) as entries:
        entries.update(sizes)


def note_depth_units(root: Path, units: Mapping[str, Unit]) -> None:
    """Note the units of depth maps, before the first episode is saved."""
    with _locked_info(root) as entries:
        for name, unit in units.items():
            feature = entries["features"][name]
            entries["features"][name] = {**feature, "info": {**feature["info"], "depth_unit": unit}}


@contextmanager
def _locked_info(root: Path) -> Generator[dict[str, Any]]:
    """The content of `meta/info.json`, which the block changes, while no writer is open."""
    (root / FOLDER).mkdir(exist_ok=True)
    lock = open_locked(root / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        entries = dict(read_info(root).entries)
        yield entries
        write_atomic(root / INFO, json_bytes(entries), durable="folder")
    finally:
        os.close(lock)
