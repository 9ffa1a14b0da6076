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
    """One difference between source and target."""

    level: Level
    what: str
    message: str


@dataclass(frozen=True)
class ConversionReport:
    """Result of a conversion. Totals count the whole target."""

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
