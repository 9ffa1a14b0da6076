"""`Rule`: how lengths become packs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal, get_args

from penstock.core.frozen import set_fields
from penstock.core.narrowing import is_array, is_integer, is_listed
from penstock.errors import PlanError
from penstock.plan.transform import require_int

Method = Literal["best_fit_decreasing", "best_fit", "first_fit", "next_fit", "random_fit", "concat_split"]
Overlong = Literal["error", "truncate_left", "truncate_right", "split", "drop", "own_pack"]
Flush = Literal["oldest", "block"]

LONGEST = 1 << 40
"""The most rows that an item or a pack may have."""


@dataclass(frozen=True)
class Rule:
    """How lengths become packs. Every pack has room for `capacity` rows on each axis (inputs and targets, say).

    `method`:

    * `"best_fit_decreasing"`: the longest first, each into the fullest pack with room for it. Needs the fewest packs.
      Items of equal length change places every epoch, so that companions change and the number of packs does not.
    * `"random_fit"`: best fit in a random order; companions change likewise. A middle way where a pack should not be
      mostly long items or mostly short ones.
    * `"best_fit"`, `"first_fit"`: in the given order, each into the fullest or the oldest pack with room for it.
      `open_bins` limits how many stay open (all of a window where it is None, 1024 if there are several axes). When
      more would be open, `flush="oldest"` closes the oldest and `flush="block"` all of them.
    * `"next_fit"`: in the given order, one pack open. Keeps neighbours together.
    * `"concat_split"`: one item behind the other, cut wherever a pack is full on one axis. The only method that splits
      items which would fit. `head` rows are left free in front of each part that continues an item; with `whole`, an
      item that reaches a limit exactly is not cut, and gets a pack to itself, behind the one being filled.

    `overlong` says what becomes of an item longer than `capacity` on some axis, before it is packed: `"error"`;
    `"truncate_left"` or `"truncate_right"` drops rows there; `"split"` makes part `p` of rows `p * capacity : (p + 1) *
    capacity` on each axis; `"drop"` leaves it out; `"own_pack"` has it alone in a pack that is longer than the others.
    Default: `"split"` for `concat_split`, where it adds no parts, else `"error"`.

    `align`: each sequence starts at a multiple of it, on every axis. `max_sequences` limits those in a pack. Items
    without rows on any axis are left out of all packs; `PackReport.empty` counts them.
    """

    capacity: tuple[int, ...]
    method: Method = "best_fit_decreasing"
    open_bins: int | None = None
    flush: Flush = "oldest"
    overlong: Overlong | None = None
    align: int = 1
    max_sequences: int | None = None
    seed: int = 0
    head: int = 0
    whole: bool = False

    def __post_init__(self) -> None:
        set_fields(self, capacity=_capacity(self.capacity))
        if self.overlong is None:
            set_fields(self, overlong="split" if self.method == "concat_split" else "error")
        for name, choices in (("method", Method), ("flush", Flush), ("overlong", Overlong), ("whole", bool)):
            allowed = (False, True) if choices is bool else get_args(choices)
            if getattr(self, name) not in allowed:
                raise PlanError(f"expected Rule {name} to be one of {allowed}, got {getattr(self, name)!r}")
        require_int(self, "align", 1, LONGEST)
        require_int(self, "seed", 0, (1 << 64) - 1)
        require_int(self, "head", 0, min(self.capacity) - 1)
        for name, most in (("max_sequences", (1 << 31) - 1), ("open_bins", 1 << 16)):
            if getattr(self, name) is not None:
                require_int(self, name, 1, most)
        self._check_used()

    def _check_used(self) -> None:
        limits_open = self.method in ("best_fit", "first_fit")
        if (self.open_bins is not None and not limits_open) or (self.flush == "block" and self.open_bins is None):
            raise PlanError(
                f"expected open_bins with best_fit or first_fit alone, and flush='block' with open_bins, got {self}"
            )
        if (self.head or self.whole) and self.method != "concat_split":
            raise PlanError(f"expected head and whole with concat_split alone, got {self}")

    @property
    def exchanges(self) -> bool:
        """Whether equal items change places every epoch; if not, items keep the given order."""
        return self.method in ("best_fit_decreasing", "random_fit")

    @property
    def most(self) -> int:
        """The most sequences a pack may hold; each has a row on some axis."""
        return self.max_sequences or min(sum(self.capacity), (1 << 31) - 1)

    def seed_for(self, purpose: str) -> int:
        """A seed of 64 bits for one kind of random draw, derived from `seed`."""
        return int.from_bytes(hashlib.sha256(f"{self.seed} {purpose}".encode()).digest()[:8], "little")


def _capacity(value: Any) -> tuple[int, ...]:
    sizes: tuple[Any, ...] = tuple(value) if is_listed(value) or is_array(value) else (value,)
    for size in sizes:
        whole = is_integer(size) and not isinstance(size, bool)
        if not whole or not 1 <= int(size) <= LONGEST:
            raise PlanError(f"expected Rule capacity to be integers within 1 to 2^40, one an axis, got {value!r}")
    if not sizes:
        raise PlanError("expected Rule capacity to have an axis, got ()")
    return tuple(int(size) for size in sizes)
