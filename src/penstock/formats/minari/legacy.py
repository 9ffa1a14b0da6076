"""The older layout (Minari 0.4): metadata as attributes of the file's root, statistics on the rewards dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np

from penstock.containers.hdf5 import Dataset, File
from penstock.core.narrowing import is_array, is_scalar

JOINED = ("author", "author_email")
STATISTICS = ("max", "min", "mean", "std", "sum")


def read_attributes(file: File) -> dict[str, Any]:
    """The attributes of the root as plain values. Raises `FormatError` for malformed ones."""
    return {name: plain(value) for name, value in file.root.attrs.items()}


def plain(value: Any) -> Any:
    """An attribute as Python has it: text, numbers, lists."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if is_array(value):
        return [plain(item) for item in value.tolist()]
    return value.item() if is_scalar(value) else value


def statistics_of(rewards: Dataset) -> dict[str, Any]:
    """The statistics on a rewards dataset, under the names of today: `rewards_max` and so on."""
    return {f"rewards_{name}": rewards.attrs[name] for name in STATISTICS if name in rewards.attrs}


def attributes_of(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Dataset entries as 0.4 keeps them: text, numbers, lists of them; authors joined by "; "."""
    attributes: dict[str, Any] = {}
    for name, value in entries.items():
        if isinstance(value, (list, tuple, set, frozenset)):
            items = [str(item) for item in cast("Iterable[Any]", value)]
            attributes[name] = "; ".join(items) if name in JOINED else items
        elif value is not None:
            attributes[name] = np.int64(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return attributes
