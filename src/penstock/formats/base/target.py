"""`Target`: what a writer can store, as far as it differs from what a source may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.core.columns import under
from penstock.core.spec import Align, Field

NUMBERED = ("frame_index", "episode_index", "index", "task_index")  # columns that LeRobot's layout computes


@dataclass(frozen=True)
class Target:
    """The rules of one way to write.

    `needs` are the required columns. `aligns` are the alignments that optional columns may have. `ragged` names the
    ragged columns that it stores. `spaces` says whether it needs both spaces. `options` are the options of `create`,
    and `kept` the ones that `append` knows as well; None where that is unknown.
    """

    name: str
    needs: tuple[str, ...] = ()
    aligns: tuple[Align, ...] = ("step", "boundary", "episode")
    ragged: Literal["any", "bytes", "infos", "text"] = "any"
    flat: bool = False  # whether rows of unequal length are lists of numbers, and not of vectors
    spaces: bool = False
    options: tuple[str, ...] | None = None
    kept: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # the files of a dataset that we wrote, as patterns of names
    restored: frozenset[str] | None = None  # the only metadata of episodes, which reading gives again; None: any

    @property
    def seed(self) -> bool:
        """Whether episodes are cut at their dones."""
        return self.name == "webdataset, layout seed"

    @property
    def lerobot(self) -> bool:
        """Whether all columns have T rows, the first observation next to the first action."""
        return self.name == "lerobot"

    @property
    def minari(self) -> bool:
        """Whether it is one of Minari's."""
        return self.name.startswith("minari")

    def fits(self, path: str, field: Field) -> bool:
        """Whether an optional column has a place as it is."""
        if field.align not in self.aligns or not self._has_dtype(field):
            return False
        if field.ragged and field.shape:
            return self.name == "rlds"  # no other format has rows of unequal length whose values are vectors
        if not field.ragged or self.ragged == "any":
            return True
        if self.ragged == "text":
            return field.kind == "text"
        if self.ragged == "infos":
            return field.kind == "text" and under("infos", path)
        return field.kind == "text" or field.dtype.itemsize == 1

    def _has_dtype(self, field: Field) -> bool:
        """Whether values and shapes have a place."""
        if self.lerobot and not field.ragged:
            numbers = field.dtype.kind in "biuf" and field.dtype.itemsize <= 8
            return numbers and len(field.shape) <= 5 and 0 not in field.shape
        if self.name == "rlds" or self.minari:
            return field.dtype.kind in "biuf"
        return not self.seed or field.ragged or field.dtype.kind in "biufc"
