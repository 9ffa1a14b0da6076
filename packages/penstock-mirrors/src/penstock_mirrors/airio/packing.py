"""Packers by AirIO's names, each a way to plan packs; and the one that needs the fewest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.plan.pack import Pack

STREAM = 1 << 20
"""Examples that a packer of streams looks at as one stream; what is open then is closed."""

Lengths = Mapping[str, int]


class Packer(Protocol):
    """How examples become packs."""

    @property
    def in_order(self) -> bool:
        """Whether packs follow from the order of the examples, so that it has to be shuffled before."""
        ...

    @property
    def marked(self) -> bool:
        """Whether packs have segment ids and positions."""
        ...

    def planned(self, lengths: Lengths, fill: Mapping[str, int], pool: int) -> Pack:
        """Return the plan of packs with room for `lengths`, from pools of `pool` examples."""
        ...


@dataclass(frozen=True)
class MultiBinPacker:
    """First fit over `num_partial_examples` open packs, the oldest of which is closed when there are more. Features
    that are too long are cut.
    """

    num_partial_examples: int
    in_order = True
    marked = True

    def planned(self, lengths: Lengths, fill: Mapping[str, int], pool: int) -> Pack:
        """By `penstock.plan.Pack`."""
        return Pack(
            lengths,
            method="first_fit",
            open_bins=self.num_partial_examples,
            overlong="truncate_right",
            window=pool,
            fill=fill,
        )


@dataclass(frozen=True)
class NoamPacker:
    """All examples of a pool end to end, cut where a pack is full; no segment ids."""

    in_order = True
    marked = False

    def planned(self, lengths: Lengths, fill: Mapping[str, int], pool: int) -> Pack:
        """By `penstock.plan.Pack`."""
        return Pack(lengths, method="concat_split", window=pool, fill=fill, marks=())


@dataclass(init=False, unsafe_hash=True)
class PlannedPacker:
    """Best-fit-decreasing packer that plans from all lengths at once and comes near the smallest number of packs.

    Features that are too long are truncated, as in the other packers. See `penstock.plan.Pack` for `options`.
    """

    options: tuple[tuple[str, Any], ...]
    in_order = False
    marked = True

    def __init__(self, **options: Any) -> None:
        self.options = tuple(sorted(options.items()))

    def planned(self, lengths: Lengths, fill: Mapping[str, int], pool: int) -> Pack:
        """By `penstock.plan.Pack`."""
        options: dict[str, Any] = {"overlong": "truncate_right", "window": pool, "fill": fill, **dict(self.options)}
        return Pack(lengths, **options)


@dataclass(frozen=True)
class PackPreprocessor:
    """A packer as a preprocessor. `pool_size` examples are packed for themselves: a number, or a function of the
    sequence lengths. It holds no state, so that tasks may share one.
    """

    packer: Packer
    pool_size: int | Callable[[Lengths], int] = STREAM

    def pool(self, lengths: Lengths) -> int:
        """Return the number of examples in a pool."""
        return self.pool_size if isinstance(self.pool_size, int) else self.pool_size(lengths)


def AirIOPackDatasetMapPreprocessor(packer: Packer, pool_size: int | Callable[[Lengths], int]) -> PackPreprocessor:
    return PackPreprocessor(packer, pool_size)


def AirIOPackDatasetIterPreprocessor(packer: Packer) -> PackPreprocessor:
    return PackPreprocessor(packer)


def _pool(lengths: Lengths) -> int:
    return max(128, *lengths.values())


PlannedPackPreprocessor = PackPreprocessor(PlannedPacker(), pool_size=65536)
NoamPackMapPreprocessor = PackPreprocessor(NoamPacker(), pool_size=128)
NoamPackIterPreprocessor = PackPreprocessor(NoamPacker())
SingleBinTruePackMapPreprocessor = PackPreprocessor(MultiBinPacker(1), _pool)
SingleBinTruePackIterPreprocessor = PackPreprocessor(MultiBinPacker(1))
MultiBinTruePackMapPreprocessor = PackPreprocessor(MultiBinPacker(1000), _pool)
MultiBinTruePackIterPreprocessor = PackPreprocessor(MultiBinPacker(1000))
