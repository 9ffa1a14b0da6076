"""Logs that are fuzzed: MCAP in all layouts, with JSON, CDR and images, and bags of ROS 1 and ROS 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from logs.recordings import LAYOUTS, bag, counting, json_log, robot
from tests.fuzz.targets import Target, of_mapping


def targets() -> Iterator[Target]:
    """One file each, which is read topic by topic."""
    for layout, options in LAYOUTS.items():
        yield Target("logs", f"mcap {layout}", _json(options), of_mapping)
    yield Target("logs", "mcap robot", _told(lambda folder: robot(folder / "a.mcap", 0.2)), of_mapping)
    for kind in ("bag", "db3"):
        yield Target("logs", kind, _bag(kind), of_mapping)


def _told(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Makes a file, and a mapping that takes all its arrays."""

    def made(folder: Path) -> None:
        make(folder)
        (folder / "penstock.toml").write_text("penstock_mapping = 1\nfiles = 'a.*'\n")

    return made


def _json(options: dict[str, Any]) -> Callable[[Path], object]:
    topics = {"/joints": counting(9), "/b": counting(3)}
    return _told(lambda folder: json_log(folder / "a.mcap", topics, **options))


def _bag(kind: str) -> Callable[[Path], object]:
    return _told(lambda folder: bag(folder / f"a.{kind}"))
