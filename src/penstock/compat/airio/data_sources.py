"""Where examples come from: anything with a length and an index, one for each split."""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset
from penstock.errors import FormatError, PlanError
from penstock.formats.records import RandomAccess

Examples = EpisodeDataset | MapDataset | RandomAccess


class DataSource(Protocol):
    """What a task reads from."""

    splits: Iterable[str]

    def get_data_source(self, split: str) -> Any:
        """The examples of a split: a penstock dataset, or anything with `__len__` and `__getitem__`."""
        ...

    def num_input_examples(self, split: str) -> int:
        """How many there are."""
        ...


class PenstockDataSource:
    """Examples that are at hand: for each split a penstock dataset, a list of dicts, an array, or a reader of records.

    An `EpisodeDataset` gives whole episodes, its step columns being the features.

    >>> source = PenstockDataSource({"train": [{"targets": [3, 9, 1]}]})
    >>> source.num_input_examples("train")
    1
    """

    def __init__(self, split_to_examples: Mapping[str, Examples]) -> None:
        self._examples = dict(split_to_examples)
        self.splits = frozenset(self._examples)

    def get_data_source(self, split: str) -> Examples:
        """Those of the split. Raises `PlanError` if there is none of that name."""
        return self._examples[_known(split, self.splits)]

    def num_input_examples(self, split: str) -> int:
        """How many there are."""
        return len(self.get_data_source(split))


class FunctionDataSource:
    """Examples that `dataset_fn(split=...)` returns, asked anew for every dataset that is made.

    >>> FunctionDataSource(lambda split: range(3), splits=["train"]).num_input_examples("train")
    3
    """

    def __init__(self, dataset_fn: Callable[..., Any], splits: Iterable[str]) -> None:
        self._dataset_fn = dataset_fn
        self.splits = frozenset(splits)

    def get_data_source(self, split: str) -> Any:
        """What the function returns. Raises `PlanError` for an unknown split."""
        return self._dataset_fn(split=_known(split, self.splits))

    def num_input_examples(self, split: str) -> int:
        """How many there are."""
        return len(self.get_data_source(split))


class JsonDataSource:
    """JSON files: a list in each, or one value a line. Examples are JSON text: `MapFnTransform(json.loads)` reads it.

    `split_to_filepattern` has a path or several for each split, `*` and `?` allowed. All text is held in memory.

    Raises `FormatError` for a file that is neither, `PlanError` for a pattern that no file fits.
    """

    def __init__(self, split_to_filepattern: Mapping[str, str | Iterable[str]]) -> None:
        self._texts = {split: _texts(patterns) for split, patterns in split_to_filepattern.items()}
        self.splits = frozenset(self._texts)

    def get_data_source(self, split: str) -> list[str]:
        """The texts. Raises `PlanError` for an unknown split."""
        return self._texts[_known(split, self.splits)]

    def num_input_examples(self, split: str) -> int:
        """How many there are."""
        return len(self.get_data_source(split))


def _known(split: str, splits: frozenset[str]) -> str:
    if split not in splits:
        raise PlanError(f"expected a split among {sorted(splits)}, got {split!r}")
    return split


def _texts(patterns: str | Iterable[str]) -> list[str]:
    texts: list[str] = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        paths = sorted(glob.glob(pattern))
        if not paths:
            raise PlanError(f"expected files that fit {pattern!r}, got none")
        for path in paths:
            texts.extend(_of_file(path))
    return texts


def _of_file(path: str) -> list[str]:
    text = Path(path).read_text("utf-8")
    if not text.lstrip().startswith("["):
        return [line for line in text.splitlines() if line.strip()]
    try:
        found: list[Any] = json.loads(text)
    except ValueError:
        lines = [line for line in text.splitlines() if line.strip()]
        for number, line in enumerate(lines):
            _check(line, path, number)
        return lines
    return [json.dumps(value) for value in found]


def _check(line: str, path: str, number: int) -> None:
    try:
        json.loads(line)
    except ValueError as error:
        raise FormatError(
            f"expected a JSON list, or a JSON value a line, got {error}", path=path, where=f"line {number + 1}"
        ) from error
