"""What a conversion tells: one note for everything that is not in the target as it was in the source."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Level = Literal["adapted", "inferred", "filled", "left out"]


@dataclass(frozen=True)
class Note:
    """One difference: `adapted` (all values are there, in another form), `inferred` (a space that the source did not
    have), `filled` (values that the source did not have) or `left out`. `what` is the column or entry."""

    level: Level
    what: str
    message: str


@dataclass(frozen=True)
class Report:
    """What a conversion did: `status` is `converted`, `resumed` (from episode `resumed_at` on) or `complete` (all was
    there before). `episodes`, `steps` and `bytes` count the whole target: bytes of its columns, not of its files.

    >>> Report(Path("out"), "columns", "converted", 1, 10, 80, 0, ()).to_json()["status"]
    'converted'
    """

    out: Path
    format: str
    status: Literal["converted", "resumed", "complete"]
    episodes: int
    steps: int
    bytes: int
    resumed_at: int
    notes: tuple[Note, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {**asdict(self), "out": str(self.out), "notes": [asdict(note) for note in self.notes]}
