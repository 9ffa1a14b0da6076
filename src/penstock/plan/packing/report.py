"""`PackReport`: how well packs are filled, and what was left out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PackReport:
    """What packing did. `empty` items have no rows and are in no pack. `rows`, `lost` (cut off or dropped) and
    `efficiency` (share of the room of all packs that rows fill) have an entry an axis; `lower_bound` is a number of
    packs that no method can do without."""

    items: int
    packs: int
    pieces: int
    rows: tuple[int, ...]
    lower_bound: int
    efficiency: tuple[float, ...]
    most_sequences: int
    empty: int
    truncated: int
    split: int
    dropped: int
    own_packs: int
    lost: tuple[int, ...]

    @property
    def excess(self) -> float:
        """Packs above the bound, as a share of it."""
        return self.packs / self.lower_bound - 1 if self.lower_bound else 0.0
