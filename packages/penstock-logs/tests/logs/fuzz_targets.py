"""Logs that are fuzzed: MCAP in all layouts, with JSON, CDR and images, and bags of ROS 1 and ROS 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logs.recordings import LAYOUTS, bag, counting, json_log, robot
from tests.fuzz.targets import Target, of_mapping


def targets() -> Iterator[Target]:
    """One file each, which is read topic by topic."""
    for layout, options in LAYOUTS.items():
        yield Target("logs", f"mcap {layout}", _json(options), of_mapping)
    yield Target("logs", "mcap robot", lambda folder: robot(folder / "a.mcap", 0.2), of_mapping)
    for kind in ("bag", "db3"):
        yield Target("logs", kind, _bag(kind), of_mapping)


def _json(options: dict[str, Any]) -> Any:
    return lambda folder: json_log(folder / "a.mcap", {"/joints": counting(9), "/b": counting(3)}, **options)


def _bag(kind: str) -> Any:
    def make(folder: Path) -> None:
        bag(folder / f"a.{kind}")

    return make
