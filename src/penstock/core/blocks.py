"""Iterators over blocks of columns, with a state."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from penstock.core.boundary import loading_state
from penstock.core.columns import Columns
from penstock.core.ragged import Array, Ragged
from penstock.core.turns import Turns

IteratorState = dict[str, Any]


class BlockIterator(ABC):
    """Iterator over blocks of columns whose position can be saved and restored.

    Threads may share one; each block is yielded once. A forked process gets a `WorkerError`.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Make `__next__` of a subclass thread-safe, and check the states that it loads."""
        super().__init_subclass__(**options)
        if "__next__" in cls.__dict__:
            setattr(cls, "__next__", _in_turn(cls.__dict__["__next__"]))  # noqa: B010  a wrapper has other parameters
        if "load_state_dict" in vars(cls):
            setattr(cls, "load_state_dict", loading_state(cls.load_state_dict))  # noqa: B010  a wrapper has other parameters

    def __iter__(self) -> Iterator[Columns]:
        return self

    @abstractmethod
    def __next__(self) -> Columns:
        """Return the next block, with any number of rows."""

    @abstractmethod
    def state_dict(self) -> IteratorState:
        """Return the position as plain JSON values. An iterator that loads it continues with the next block."""

    @abstractmethod
    def load_state_dict(self, state: IteratorState) -> None:
        """Continue from a saved state."""


def _in_turn(advance: Callable[[Any], Columns]) -> Callable[[Any], Columns]:
    @functools.wraps(advance)
    def following(self: Any) -> Columns:
        # Made at the first call, in one step; subclasses need not call an `__init__` of ours.
        turns = self.__dict__.get("_turns") or self.__dict__.setdefault("_turns", Turns("iterator over blocks"))
        with turns:
            return advance(self)

    return following


class BlockOrigin(Protocol):
    """Makes new iterators over the same blocks."""

    @property
    def fingerprint(self) -> str:
        """Digest of data and order."""
        ...

    def __call__(self) -> BlockIterator:
        """Return a new iterator, at the start."""
        ...


def concatenated(parts: list[Columns]) -> Columns:
    """Concatenate the rows of columns. A single part is not copied."""
    if len(parts) == 1:
        return parts[0]
    return Columns({path: _joined([part.flat[path] for part in parts]) for path in parts[0]})


def _joined(arrays: list[Array]) -> Array:
    ragged = [a for a in arrays if isinstance(a, Ragged)]
    return Ragged.concatenate(ragged) if ragged else np.concatenate([a for a in arrays if not isinstance(a, Ragged)])
