"""`ConversionReport`: the result of a conversion, with one note for every difference between source and target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from penstock.conversion.certificate import Certificate

Level = Literal["adapted", "inferred", "filled", "left out"]


@dataclass(frozen=True)
class Note:
    """One difference between source and target.

    Args:
        level: `"adapted"`: all values are stored, in another form. `"inferred"`: a space that the source lacks.
            `"filled"`: values that the source lacks. `"left out"`: data that the target cannot store.
        what: Column or metadata entry.
        message: Explanation.

    Example:
        >>> Note("left out", "infos", "the format stores no infos").level
        'left out'
    """

    level: Level
    what: str
    message: str


@dataclass(frozen=True)
class ConversionReport:
    """Result of a conversion. Totals count the whole target.

    Args:
        out: Path of the target, or its URL without credentials.
        format: Format of the target.
        status: `"converted"`, `"resumed"` (from episode `resumed_at`), or `"complete"` (nothing was left to do).
        episodes: Number of episodes.
        steps: Number of steps.
        bytes: Size of the columns, not of the files.
        resumed_at: Number of episodes that an earlier call wrote.
        notes: Differences between source and target.
        certificate: What both datasets have, read again. The default is None: none was made.

    Example:
        >>> ConversionReport(Path("out"), "columns", "converted", 1, 10, 80, 0, ()).to_json()["status"]
        'converted'
    """

    out: Path | str
    format: str
    status: Literal["converted", "resumed", "complete"]
    episodes: int
    steps: int
    bytes: int
    resumed_at: int
    notes: tuple[Note, ...]
    certificate: Certificate | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data; of the certificate, whether the conversion was lossless."""
        return {
            "out": str(self.out),
            "format": self.format,
            "status": self.status,
            "episodes": self.episodes,
            "steps": self.steps,
            "bytes": self.bytes,
            "resumed_at": self.resumed_at,
            "notes": [vars(note) for note in self.notes],
            "lossless": None if self.certificate is None else self.certificate.lossless,
        }
