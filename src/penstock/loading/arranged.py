"""Dicts and tuples with a ticket, which layouts make, and the way of their arrays through an output."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NoReturn, Self

from penstock.core.columns import Columns
from penstock.core.narrowing import is_array, is_mapping, is_tuple
from penstock.core.ragged import Array, Ragged
from penstock.errors import SpecError
from penstock.loading.ticket import Batch, Ticket

Mark = tuple[Ticket | None, float]
"""Ticket of a batch, or None, and the weight of the share of this rank."""


class BatchDict(dict[str, Any]):
    """A batch as nested dicts of arrays and plain values, with a `ticket` and the `weight` of the share of this rank.

    Args:
        tree: Nested dict. The default is empty.
        ticket: Batch ticket. The default is None: no ticket.
        weight: Weight of the share of this rank, as in `Batch`. The default is 1.

    Example:
        >>> import numpy as np
        >>> BatchDict({"tokens": np.zeros((2, 3)), "longest": 3}).weight
        1.0
    """

    def __init__(self, tree: Mapping[str, Any] = {}, ticket: Ticket | None = None, weight: float = 1.0) -> None:
        super().__init__(tree)
        self.ticket = ticket
        self.weight = weight

    def __getattr__(self, name: str) -> NoReturn:
        hint = f"; it is the item batch[{name!r}]" if name in self else ""
        hint = "; batch.ticket.count is the number of rows" if name == "n" else hint
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    @classmethod
    def of(cls, tree: Mapping[str, Any], columns: Columns) -> Self:
        """Return a dict with the ticket and the weight of a batch, if the columns are one.

        Args:
            tree: Nested dict.
            columns: The batch.
        """
        return cls(tree, *mark_of(columns))


@lru_cache
def tuple_class(*names: str) -> type[Any]:
    """Return a class of named tuples that have a `ticket` and a `weight`. The field of a path is its last name."""
    fields = [name.rpartition("/")[2] for name in names]
    named: Any = namedtuple  # the names are known when it is called
    base = named("BatchTuple", fields, rename=True)

    def reduced(self: Any) -> tuple[Any, ...]:
        return _restored, (names, tuple(self), (self.ticket, self.weight))

    def pinned(self: Any) -> Any:
        return _restored(names, tuple(map(_pinned, self)), (self.ticket, self.weight))

    # PyTorch's DataLoader calls `pin_memory`, where a batch has one, in place of making the tuple again.
    members = {"ticket": None, "weight": 1.0, "__reduce__": reduced, "pin_memory": pinned}
    return type("BatchTuple", (base,), members)


def _pinned(value: Any) -> Any:
    """Tensors in page-locked memory."""
    if is_mapping(value):
        return {key: _pinned(inner) for key, inner in value.items()}
    return value.pin_memory() if hasattr(value, "pin_memory") else value


def _restored(names: tuple[str, ...], values: tuple[Any, ...], mark: Mark) -> Any:
    restored = tuple_class(*names)(*values)
    restored.ticket, restored.weight = mark
    return restored


def mark_of(columns: Columns) -> Mark:
    """Return the ticket and the weight of columns, if they are a batch."""
    if not isinstance(columns, Batch):
        return None, 1.0
    return columns.ticket if columns.has_ticket else None, columns.weight


def marked(value: Any, mark: Mark) -> Batch | BatchDict | tuple[Any, ...]:
    """Return columns, a dict or a tuple with a ticket and a weight."""
    if isinstance(value, Columns):
        return Batch.of(value, *mark)
    if is_mapping(value):
        return BatchDict(value, *mark)
    if is_tuple(value):
        fields: Any = getattr(value, "_fields", map(str, range(len(value))))
        return _restored(tuple(fields), value, mark)
    raise SpecError(f"expected columns, a dict or a tuple from a layout, got {type(value).__name__}")


def through(arranged: Any, n: int, output: Callable[[Batch], Any]) -> Any:
    """Return dicts and tuples with their arrays as an output makes them. Other values stay as they are."""
    arrays: dict[str, Array] = {}
    _replaced(arranged, lambda array: arrays.update({str(len(arrays)): array}))
    mark: Mark = arranged.ticket, arranged.weight
    outputs = output(Batch.of(Columns.of_flat(arrays, n), *mark))
    keys = iter(arrays)
    tree = _replaced(arranged, lambda _: outputs[next(keys)])
    return type(outputs)(tree, *mark) if is_mapping(tree) else marked(tree, mark)


def _replaced(value: Any, of: Callable[[Array], Any]) -> Any:
    """Return dicts and tuples with a function's result in place of each array, in order."""
    if is_array(value) or isinstance(value, Ragged):
        return of(value)
    if is_mapping(value):
        return {key: _replaced(inner, of) for key, inner in value.items()}
    if is_tuple(value):
        inner = [_replaced(each, of) for each in value]
        make: Any = getattr(type(value), "_make", tuple)
        return make(inner)
    return value
