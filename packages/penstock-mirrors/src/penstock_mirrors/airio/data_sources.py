"""Where examples come from: anything with a length and an index, one for each split."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset
from penstock.errors import FormatError, PlanError
from penstock.files.remote import read_text
from penstock.formats.records import RandomAccess
from penstock.locations.location import Location
from penstock.locations.objects import shown


class DataSource(Protocol):
    """Source of a task's examples."""

    splits: Iterable[str]

    def get_data_source(self, split: str) -> Any:
        """Return the examples of a split: a penstock dataset, or anything with `__len__` and `__getitem__`."""
        ...

    def num_input_examples(self, split: str) -> int: ...


class _Splits(ABC):
    """Examples by split."""

    def __init__(self, splits: Iterable[str]) -> None:
        self.splits = frozenset(splits)

    def get_data_source(self, split: str) -> Any:
        if split not in self.splits:
            raise PlanError(f"expected a split among {sorted(self.splits)}, got {split!r}")
        return self._of(split)

    def num_input_examples(self, split: str) -> int:
        return len(self.get_data_source(split))

    @abstractmethod
    def _of(self, split: str) -> Any:
        """Return the examples of a split that is known to exist."""


class PenstockDataSource(_Splits):
    """Examples in memory or in a dataset: for each split a penstock dataset, list of dicts, array or record reader.

    An `EpisodeDataset` yields whole episodes; its step columns are the features.
    """

    def __init__(self, split_to_examples: Mapping[str, EpisodeDataset | MapDataset | RandomAccess]) -> None:
        super().__init__(split_to_examples)
        self._examples = dict(split_to_examples)

    def _of(self, split: str) -> Any:
        return self._examples[split]


class FunctionDataSource(_Splits):
    """Examples that `dataset_fn(split=...)` returns. The function is called again for every dataset."""

    def __init__(self, dataset_fn: Callable[..., Any], splits: Iterable[str]) -> None:
        super().__init__(splits)
        self._dataset_fn = dataset_fn

    def _of(self, split: str) -> Any:
        return self._dataset_fn(split=split)


class JsonDataSource(_Splits):
    """JSON files: a list in each, or one value a line. Examples are JSON text:
    `MapFnTransform(json.loads)` reads it.

    `split_to_filepattern` has a path, pattern or URL for each split, or several, as `penstock.open` takes them. All
    text stays in memory.
    """

    def __init__(self, split_to_filepattern: Mapping[str, str | Iterable[str]]) -> None:
        super().__init__(split_to_filepattern)
        self._texts = {split: _texts(patterns) for split, patterns in split_to_filepattern.items()}

    def _of(self, split: str) -> list[str]:
        return self._texts[split]


def _texts(patterns: str | Iterable[str]) -> list[str]:
    texts: list[str] = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        try:
            files = Location.of(pattern).resolve()
            texts.extend(text for name, path in files for text in _of_file(name, path))
        except (FileNotFoundError, IsADirectoryError) as error:
            raise PlanError(f"expected files that fit {shown(pattern)!r}, got none") from error
    return texts


def _of_file(name: str, path: Path) -> list[str]:
    """Return the values of a list, or the lines. Only a file that begins like a list is parsed."""
    try:
        text = read_text(path)
    except UnicodeDecodeError as error:
        raise FormatError(f"expected UTF-8, got {error}", path=name) from error
    lines = [line for line in text.splitlines() if line.strip()]
    if not text.lstrip().startswith("["):
        return lines
    try:
        return [json.dumps(value) for value in json.loads(text)]
    except (ValueError, RecursionError):
        for number, line in enumerate(lines):
            _check(line, name, number)
        return lines


def _check(line: str, path: str, number: int) -> None:
    try:
        json.loads(line)
    except (ValueError, RecursionError) as error:
        message = f"expected a JSON list, or a JSON value a line, got {error}"
        raise FormatError(message, path=path, where=f"line {number + 1}") from error
