"""`EpisodeMap`: a function from one episode to columns of it, or to the answer that it is left out."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.callables import named_function, takes_argument, takes_nothing
from penstock.core.columns import under
from penstock.core.episode import Episode
from penstock.core.narrowing import is_listed, is_mapping
from penstock.core.ragged import Array, Ragged
from penstock.core.spec import ALIGNS, Align, Field, Spec
from penstock.core.turns import ForkSafeLock
from penstock.data.function_digest import FunctionDigest
from penstock.data.names import name_of
from penstock.errors import ArgumentError, DataError, FingerprintWarning, SpecError

FUNCTION = "a function or class of episodes as module:name"
EpisodeFn = Callable[..., Any]
Result = Mapping[str, Any]
ROWS: dict[Align, str] = {"step": "one for each step", "boundary": "one for each step and one more", "episode": "one"}

_DIGESTS: dict[tuple[str, str | int | None], FunctionDigest] = {}
"""Digest of each function that was named in this process, before its first call, which may fill global variables."""


class RandomizedFunction(Protocol):
    """A function of an episode with an argument `rng`."""

    def __call__(self, episode: Episode, /, *, rng: np.random.Generator) -> Any:
        """Return columns of the episode, or whether it stays."""
        ...


class EpisodeMap:
    """A function of an episode, how to call it, and how to read what it returns.

    Arguments are as of `EpisodeDataset.map_episodes`. `entries` describe it to other processes, and
    `of_entries` finds it there.
    """

    def __init__(
        self,
        fn: EpisodeFn,
        column: str | None = None,
        align: Align | Mapping[str, Align] | None = None,
        seed: int = 0,
        version: str | int | None = None,
        digest: FunctionDigest | None = None,
    ) -> None:
        if not callable(fn):
            raise ArgumentError(f"expected a function of an episode, or a class of such functions, got {fn!r}")
        by_path: Mapping[str, Align] | None = align if isinstance(align, Mapping) else None
        aligns = [] if align is None else [align] if by_path is None else [*by_path.values()]
        if wrong := [each for each in aligns if each not in ALIGNS]:
            raise ArgumentError(f"expected align to be of {ALIGNS}, got {wrong[0]!r}")
        if seed < 0:
            raise ArgumentError(f"expected a seed of 0 or more, got {seed}")
        self.fn = fn
        self.column = column
        self.align: Align | Mapping[str, Align] | None = align
        self.seed, self.version = seed, version
        self.name = name_of(fn)
        self.digest = FunctionDigest.of(fn, version) if digest is None else digest
        self._lock = ForkSafeLock()

    @classmethod
    def of_entries(cls, entries: Mapping[str, Any]) -> EpisodeMap:
        """Return what `entries` of another process describe: the function is imported here."""
        name, version = entries["function"], entries["version"]
        fn = named_function(name, FUNCTION, entries["folder"])
        if (name, version) not in _DIGESTS:
            _DIGESTS[name, version] = FunctionDigest.of(fn, version)
        return cls(fn, entries["column"], entries["align"], entries["seed"], version, _DIGESTS[name, version])

    def entries(self) -> dict[str, Any]:
        """Return plain values by which other processes find the function. Raises `DataError` if they cannot."""
        module = str(getattr(self.fn, "__module__", None))
        name = f"{module}:{getattr(self.fn, '__qualname__', type(self.fn).__qualname__)}"
        try:
            named = None if module == "__main__" else named_function(name, FUNCTION)
        except DataError:
            named = None
        if named is not self.fn:
            raise DataError(
                f"expected a function or class of a module, which other processes can import, got {self.name}; put it "
                "into a separate file, such as embed.py, and import it from there: a lambda, an inner function, an "
                "object or a function of the main program can be written without jobs= and runner="
            )
        _DIGESTS[name, self.version] = self.digest
        root = importlib.import_module(module.partition(".")[0])
        folders = [str(Path(folder).parent) for folder in getattr(root, "__path__", ())]
        if not folders and getattr(root, "__file__", None):
            folders = [str(Path(str(root.__file__)).parent)]
        aligns = dict(self.align) if isinstance(self.align, Mapping) else self.align
        how = {"column": self.column, "align": aligns, "seed": self.seed, "version": self.version}
        return {"function": name, "folder": os.path.abspath(folders[0]) if folders else None, **how}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.fn, self.column, self.align, self.seed, self.version, self.digest)

    def __repr__(self) -> str:
        return f"map_episodes({self.name})"

    @property
    def fingerprint(self) -> str:
        """Digest of the function and of how it is used."""
        aligns = sorted(self.align.items()) if isinstance(self.align, Mapping) else self.align
        return f"map_episodes({self.digest.text}, {self.column!r}, {aligns!r}, {self.seed})"

    def to_json(self) -> dict[str, Any]:
        """Return the name and the digest, for a certificate."""
        return {"name": self.name, "digest": self.digest.digest, "seed": self.seed}

    @property
    def function(self) -> EpisodeFn:
        """The function. A class, or a function without arguments, is called once in this process to return it."""
        with self._lock:
            return self._function

    @cached_property
    def _function(self) -> EpisodeFn:
        if not isinstance(self.fn, type) and not takes_nothing(self.fn):
            return self.fn
        try:
            function = self.fn()
        except Exception as error:
            raise DataError(
                f"expected a function from {self.name}(), got {type(error).__name__}: {error}; a class is called "
                "without arguments, and its object with each episode"
            ) from error
        if not callable(function):
            raise DataError(f"expected {self.name}() to return a function of an episode, got {type(function).__name__}")
        return function

    @cached_property
    def _takes_rng(self) -> bool:
        return takes_argument(self.function, "rng")

    def result(self, episode: Episode) -> Result | None:
        """Call the function. Returns what it returned by the paths of columns, or None: the episode is left out."""
        function = self.function
        given = {"rng": np.random.default_rng([self.seed, episode.id])} if self._takes_rng else {}
        try:
            result = function(episode, **given)
        except Exception as error:
            hint = "; arrays of an episode are read-only: copy what you change" if "read-only" in str(error) else ""
            raise DataError(
                f"expected columns from {self.name}, got {type(error).__name__}: {error} - at episode "
                f"{episode.id}{hint}"
            ) from error
        if self.column is not None:
            return None if result is None else flatten_result({self.column: result})
        if result is None or isinstance(result, (bool, np.bool_)):
            return {} if result else None
        if not is_mapping(result):
            raise SpecError(
                f"expected a dict of columns from {self.name}, or True, or None or False for an episode that is left "
                f"out, got {type(result).__name__} - at episode {episode.id}; column= names what a function returns "
                "that returns one array"
            )
        return flatten_result(result)

    def fields_of(self, episodes: Iterable[Episode]) -> dict[str, Field]:
        """Return the fields of the columns that the function returns, by the first episode that it keeps."""
        for episode in episodes:
            result = self.result(episode)
            if result is not None:
                self._check_paths(result, episode.spec)
                fields = {path: self._field(path, value, episode) for path, value in result.items()}
                self._warn_of_chance(self.columns(result, fields, episode), fields, episode)
                return fields
        raise SpecError(f"expected an episode that {self.name} keeps, got none")

    def _warn_of_chance(self, columns: Mapping[str, Array], fields: Mapping[str, Field], episode: Episode) -> None:
        """Warn if a second call gives other values for the same episode."""
        result = self.result(episode)
        again = None if result is None else self.columns(result, fields, episode)
        if again is None or any(not _same(columns[path], again[path]) for path in fields):
            warnings.warn(
                f"{self.name} gave other values when it was called again - at episode {episode.id}; a function with an "
                "argument `rng` gets a generator that is seeded by the episode, so that a repeated job gives the same",
                FingerprintWarning,
                stacklevel=4,
            )

    def _check_paths(self, result: Result, spec: Spec) -> None:
        for path in result:
            if not path or any(not part for part in path.split("/")):
                raise SpecError(f"expected paths of columns from {self.name}, got {path!r}")
            if around := [known for known in spec if known != path and (under(path, known) or under(known, path))]:
                raise SpecError(f"expected a new column or one that exists, got {path!r}, and {around[0]!r} exists")

    def _align(self, path: str) -> Align | None:
        return self.align if self.align is None or isinstance(self.align, str) else self.align.get(path)

    def _field(self, path: str, value: Any, episode: Episode) -> Field:
        """The field of a column by its value in one episode."""
        former, align = episode.spec.fields.get(path), self._align(path)
        array = _array(path, value, self.name, episode)
        if array is None:
            return Field(np.dtype(np.uint8), (), align or "episode", "text")
        if isinstance(array, Ragged):
            text = is_listed(value) or (former is not None and former.kind == "text")
            inner = array.values.shape[1:]
            return Field(array.dtype, inner, align or self._by_rows(path, len(array), former, episode), _kind(text))
        if align == "episode" or array.ndim == 0:
            return Field(array.dtype, array.shape, align or "episode")
        return Field(array.dtype, array.shape[1:], align or self._by_rows(path, len(array), former, episode))

    def _by_rows(self, path: str, rows: int, former: Field | None, episode: Episode) -> Align:
        """The alignment of so many rows: as in the column that is replaced, or of steps before boundaries."""
        steps = len(episode)
        if former is not None and rows == rows_of(former.align, steps):
            return former.align
        fitting: list[Align] = [align for align in ALIGNS[:2] if rows == rows_of(align, steps)]
        if not fitting:
            raise SpecError(
                f"expected {path!r} from {self.name} with {steps} rows ({ROWS['step']}), {steps + 1} "
                f"({ROWS['boundary']}) or one number or text, got {rows} rows - at episode {episode.id}; "
                'align="episode" says that an array is one row, of the episode'
            )
        return fitting[0]

    def columns(self, result: Result, fields: Mapping[str, Field], episode: Episode) -> dict[str, Array]:
        """Return the values of an episode as columns with these fields. They are copies, and read-only."""
        place = f"at episode {episode.id}"
        if result.keys() != fields.keys():
            raise SpecError(
                f"expected the columns {list(fields)} from {self.name}, as of the first episode, got {list(result)} - "
                f"{place}; return the same columns for every episode"
            )
        return {path: self._column(path, result[path], field, episode, place) for path, field in fields.items()}

    def _column(self, path: str, value: Any, field: Field, episode: Episode, place: str) -> Array:
        array = _array(path, value, self.name, episode)
        array = Ragged.from_strings([str(value)]) if array is None else array
        if isinstance(array, Ragged) != field.ragged:
            raise SpecError(f"expected {path!r} from {self.name} as {field.kind}, got {_described(array)} - {place}")
        if isinstance(array, Ragged):
            inner = array.values.shape[1:]
        else:
            if field.align == "episode" and array.shape == field.shape:
                array = array[None]
            if array.ndim == 0:
                raise SpecError(f"expected rows of {path!r} from {self.name}, got a single number - {place}")
            inner = array.shape[1:]
        rows = rows_of(field.align, len(episode))
        if inner != field.shape or array.dtype != field.dtype:
            raise SpecError(
                f"expected {path!r} from {self.name} with rows of {field.dtype}{list(field.shape)}, as of the first "
                f"episode, got {array.dtype}{list(inner)} - {place}; return one dtype and shape"
            )
        if len(array) != rows:
            raise SpecError(
                f"expected {rows} rows of {path!r} from {self.name} ({ROWS[field.align]}), got {len(array)} - {place}; "
                "a function does not change the length of an episode: exclude spans of steps by a curation"
            )
        return frozen_copy(array)


def rows_of(align: Align, steps: int) -> int:
    """Return the rows of a column in an episode of so many steps."""
    return {"step": steps, "boundary": steps + 1, "episode": 1}[align]


def flatten_result(result: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a nested dict by paths, with the values as they are."""
    flat: dict[str, Any] = {}
    for key, value in result.items():
        if is_mapping(value):
            flat |= {f"{key}/{inner}": each for inner, each in flatten_result(value).items()}
        else:
            flat[str(key)] = value
    return flat


def frozen_copy(array: Array) -> Array:
    """Return a read-only copy: a function may use its memory again."""
    if isinstance(array, Ragged):
        return Ragged(_frozen(array.values), array.offsets.copy(), array.grid)
    return _frozen(array)


def _frozen(array: AnyArray) -> AnyArray:
    copied = np.array(array, order="C")
    copied.flags.writeable = False
    return copied


def _same(one: Array, other: Array) -> bool:
    return type(one) is type(other) and _bytes(one) == _bytes(other)


def _bytes(array: Array) -> bytes:
    return array.offsets.tobytes() + array.values.tobytes() if isinstance(array, Ragged) else array.tobytes()


def _kind(text: bool) -> Any:
    return "text" if text else "ragged"


def _array(path: str, value: Any, name: str, episode: Episode) -> Array | None:
    """A value as an array, texts as ragged rows. None for one text."""
    if isinstance(value, Ragged):
        return value
    if isinstance(value, str):
        return None
    if is_listed(value) and value and all(isinstance(each, str) for each in value):
        return Ragged.from_strings(value)
    try:
        array: AnyArray = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # rows of unequal lengths, or a tensor on a device
        raise SpecError(
            f"expected numbers or text for {path!r} from {name}, got {type(value).__name__}: {error} - at episode "
            f"{episode.id}; return NumPy arrays, or penstock's Ragged for rows of varying length"
        ) from error
    if array.dtype.kind not in "biufcmM":
        raise SpecError(
            f"expected numbers or text for {path!r} from {name}, got {type(value).__name__} of {array.dtype} - at "
            f"episode {episode.id}; return an array, or a list of str"
        )
    return array


def _described(array: Array) -> str:
    return "rows of varying length" if isinstance(array, Ragged) else f"{array.dtype}{list(array.shape)}"
