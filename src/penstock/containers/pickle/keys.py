"""Filling dicts and sets: keys that cannot be hashed, take forever to hash or are made to collide are refused.

A tuple of tuples of tuples that share one another takes exponential time to hash, and integers or tuples that all have
one hash make a dict quadratic. So keys are strings, numbers or short tuples of them, and unusual ones are counted.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.containers.pickle.machine import Machine, brief
from penstock.core.narrowing import is_scalar, is_tuple
from penstock.errors import FormatError

TWINS = 64  # keys of one container that may share a hash
PARTS = 16  # of a tuple that is a key
_PLAIN = (str, bytes, int, float, bool, type(None))


def set_items(m: Machine, target: dict[Any, Any], items: list[Any]) -> None:
    """Put `items`, keys and values in turn, into `target`."""
    if len(items) % 2:
        raise m.error(f"expected keys with values, got {len(items)} objects")
    try:
        for i in range(0, len(items), 2):
            key = items[i]
            if type(key) is not str:
                _check(m, target, key)
            target[key] = items[i + 1]
    except (TypeError, ValueError) as error:
        raise _located(m, error) from None


def add_items(m: Machine, target: set[Any], items: list[Any]) -> None:
    """Put `items` into `target`."""
    try:
        for item in items:
            _check(m, target, item)
            target.add(item)
    except (TypeError, ValueError) as error:
        raise _located(m, error) from None


def _located(m: Machine, error: Exception) -> Exception:
    """NumPy's scalars and tuples of one hash cannot be compared; our own errors stay as they are."""
    return error if isinstance(error, FormatError) else m.error(f"expected keys that can be compared, got {error}")


def _check(m: Machine, container: Any, key: Any) -> None:
    kind = key.__class__
    if kind is str or kind is bytes:
        return
    plain = len(key) <= PARTS and all(map(_is_plain, key)) if kind is tuple else _is_plain(key)
    if not plain:
        raise m.error(f"expected keys that are strings, numbers or short tuples of them, got {_kind(key)}")
    if kind is tuple or (kind is int and key.bit_length() > 64):
        _count(m, container, key)


def _kind(key: Any) -> str:
    return f"a tuple of {len(key)}" if is_tuple(key) else brief(key)


def _is_plain(key: Any) -> bool:
    return key.dtype.kind in "biufSU" if is_scalar(key) else type(key) in _PLAIN


def _count(m: Machine, container: Any, key: Any) -> None:
    crowd = m.crowds.setdefault(id(container), (container, Counter()))[1]  # kept alive: its id is its name
    crowd[hash(key)] += 1
    if crowd[hash(key)] > TWINS:
        raise m.unsafe(f"more than {TWINS} keys of a container have one hash")
