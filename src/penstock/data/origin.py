"""How a dataset was made, so that it can be made again over other episodes.

An origin is a chain: each `DerivedOrigin` has the dataset before and one transform or function, and the first origin
has the episodes or the mix. `as_of` makes the dataset again over the first episodes of its sources, for states that
were saved before the sources grew. `remade` makes it again over another root, for a mix that changes in mid-run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from penstock.data.map_function import Mapped
from penstock.data.names import step_text
from penstock.plan.select import Take
from penstock.plan.transform import PlanTransform
from penstock.plan.weighted import Weighted

if TYPE_CHECKING:
    from penstock.data.map_dataset import MapDataset


class DatasetOrigin(Protocol):
    """Protocol for rebuilding a dataset over fewer episodes."""

    @property
    def chain(self) -> tuple[str, ...]:
        """The source, and the transforms that were applied, in order, as text."""
        ...

    def as_of(self, episodes: Sequence[int]) -> MapDataset | None:
        """Return the dataset over earlier sources, or None if a source does not know its earlier fingerprint."""
        ...

    def remade(self, make: Callable[[object], MapDataset | None]) -> MapDataset | None:
        """Return the dataset over another root, with the same transforms and functions, or None."""
        ...


@dataclass(frozen=True)
class DerivedOrigin(DatasetOrigin):
    """The dataset before, and the transform or function that was applied to it."""

    parent: MapDataset
    step: PlanTransform | Mapped
    repeat: Callable[[MapDataset], MapDataset] = field(repr=False, compare=False)

    @property
    @override
    def chain(self) -> tuple[str, ...]:
        return *self.parent.chain, step_text(self.step)

    @override
    def as_of(self, episodes: Sequence[int]) -> MapDataset | None:
        return self._repeated(self.parent.as_of(episodes))

    @override
    def remade(self, make: Callable[[object], MapDataset | None]) -> MapDataset | None:
        return self._repeated(self.parent.remade(make))

    def _repeated(self, parent: MapDataset | None) -> MapDataset | None:
        if parent is None or isinstance(self.step, Take | Weighted):  # a table of samples fits only these samples
            return None
        return self.repeat(parent)
