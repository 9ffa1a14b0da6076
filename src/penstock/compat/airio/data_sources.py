"""Where examples come from: anything with a length and an index, one for each split."""

from __future__ import annotations

import glob
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset
from penstock.errors import FormatError, PlanError
from penstock.formats.records import RandomAccess


class DataSource(Protocol):
    """What a task reads from."""

    splits: Iterable[str]

    def get_data_source(self, split: str) -> Any:
        """The examples of a split: a penstock dataset, or anything with `__len__` and `__getitem__`."""
        ...

    def num_input_examples(self, split: str) -> int:
        """How many there are."""
        ...


class _Splits(ABC):
    """Examples by split."""

    def __init__(self, splits: Iterable[str]) -> None:
        self.splits = frozenset(splits)

    def get_data_source(self, split: str) -> Any:
        """The examples of the split. Raises `PlanError` if there is none of that name."""
        if split not in self.splits:
            raise PlanError(f"expected a split among {sorted(self.splits)}, got {split!r}")
        return self._of(split)

    def num_input_examples(self, split: str) -> int:
        """How many there are."""
        return len(self.get_data_source(split))

    @abstractmethod
    def _of(self, split: str) -> Any:
        """Those of a split that there is."""


class PenstockDataSource(_Splits):
    """Examples that are at hand: for each split a penstock dataset, a list of dicts, an array, or a reader of records.

    An `EpisodeDataset` gives whole episodes, its step columns being the features.

    >>> source = PenstockDataSource({"train": [{"targets": [3, 9, 1]}]})
    >>> source.num_input_examples("train")
    1
    """

    def __init__(self, split_to_examples: Mapping[str, EpisodeDataset | MapDataset | RandomAccess]) -> None:
        super().__init__(split_to_examples)
        self._examples = dict(split_to_examples)

    def _of(self, split: str) -> Any:
        return self._examples[split]


class FunctionDataSource(_Splits):
    """Examples that `dataset_fn(split=...)` returns, asked anew for every dataset that is made.

    >>> FunctionDataSource(lambda split: range(3), splits=["train"]).num_input_examples("train")
    3
    """

    def __init__(self, dataset_fn: Callable[..., Any], splits: Iterable[str]) -> None:
        super().__init__(splits)
        self._dataset_fn = dataset_fn

    def _of(self, split: str) -> Any:
        return self._dataset_fn(split=split)


class JsonDataSource(_Splits):
    """JSON files: a list in each, or one value a line. Examples are JSON text: `MapFnTransform(json.loads)` reads it.

    `split_to_filepattern` has a path or several for each split, `*` and `?` allowed. All text is held in memory.

    Raises `FormatError` for a file that is neither, `PlanError` for a pattern that no file fits.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.jsonl").write_text('{"n": 1}\\n{"n": 2}')
    ...     JsonDataSource({"train": f"{folder}/*.jsonl"}).get_data_source("train")
    ['{"n": 1}', '{"n": 2}']
    """

    def __init__(self, split_to_filepattern: Mapping[str, str | Iterable[str]]) -> None:
        super().__init__(split_to_filepattern)
        self._texts = {split: _texts(patterns) for split, patterns in split_to_filepattern.items()}

    def _of(self, split: str) -> list[str]:
        return self._texts[split]


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
    """The values of a list, or the lines, which are looked at only where the file begins like a list."""
    try:
        text = Path(path).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"expected UTF-8, got {error}", path=path) from error
    lines = [line for line in text.splitlines() if line.strip()]
    if not text.lstrip().startswith("["):
        return lines
    try:
        return [json.dumps(value) for value in json.loads(text)]
    except (ValueError, RecursionError):
        for number, line in enumerate(lines):
            _check(line, path, number)
        return lines


def _check(line: str, path: str, number: int) -> None:
    try:
        json.loads(line)
    except (ValueError, RecursionError) as error:
        told = f"expected a JSON list, or a JSON value a line, got {error}"
        raise FormatError(told, path=path, where=f"line {number + 1}") from error
