"""`metadata.json` and its like: bounded reading, atomic writing, and the entries a Minari dataset has."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from penstock.containers.hdf5.encode import write_all
from penstock.core.boundary import json_object
from penstock.core.narrowing import is_array, is_dict, is_integer, is_list, is_mapping, is_path, is_scalar
from penstock.core.spaces import Space
from penstock.errors import DataError, FormatError, SpecError
from penstock.files import write_atomic
from penstock.files.descriptors import open_regular
from penstock.files.remote import open_file
from penstock.formats.base.account import LeftOut

FILE = "metadata.json"
LIMIT = 64 << 20  # bytes; bounds of a (480, 640, 3) image take 9 MB
VERSION = "0.5.4"  # the standard that is written
LEGACY_VERSION = "~=0.4"
_STANDARD = frozenset(("Box", "Discrete", "MultiDiscrete", "MultiBinary", "Text", "Tuple", "Dict"))
STATISTICS = ("max", "min", "mean", "std", "sum")  # of the rewards of an episode, after `rewards_`
_TOTALS = ("total_episodes", "total_steps", "dataset_size")
FIXED = frozenset(
    ("dataset_id", "observation_space", "action_space", "env_spec", "data_format", "jpeg_encoding", "minari_version")
)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is no file, or an empty one (what a killed writer leaves)."""
    try:
        with open_file(path) as file:
            # Asked for one byte more than there is, for a buffer of the limit's size would be allocated whole.
            raw = file.read(min(os.fstat(file.fileno()).st_size, LIMIT) + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(raw) > LIMIT:
        raise FormatError(f"expected metadata of at most {LIMIT} bytes, got more", path=path)
    if not raw.strip(b" \t\r\n\0"):
        return None
    return json_object(raw, path)


def lost() -> LeftOut:
    """The entry of a file of metadata that is missing or empty."""
    message = "expected metadata, got an empty or no file, as a killed writer leaves it: spaces and other entries are "
    message += "lost; write them anew with penstock.formats.minari.recover.rebuild_metadata"
    return LeftOut("file", FILE, "bad-file", message)


def write_json(path: Path, data: Mapping[str, Any], *, durable: bool = True) -> None:
    """Replace a file by the JSON of `data`, atomically: a reader or a crash sees the old one or the new one."""
    raw = strict_dumps(data).encode()
    write_atomic(path, raw, durable="folder" if durable else "none")


class TotalsFile:
    """An open `metadata.json` whose totals stand padded at its start, where they are changed in place.

    A replacement for every episode costs more than the episode where a file system makes it last at once. The last
    eight digits of a number are an aligned word, so that a reader sees them before or after a change.
    """

    def __init__(self, path: Path, head: bytes, others: int, *, durable: bool) -> None:
        self._path, self._durable = os.fspath(path), durable
        self._head = head
        self._others = others  # bytes of all files but the one with the episodes
        self._fd = open_regular(path, os.O_RDWR)
        status = os.fstat(self._fd)
        self._identity = status.st_dev, status.st_ino

    @classmethod
    def write(cls, main: Path, entries: Mapping[str, Any], episodes: int, steps: int, *, durable: bool) -> TotalsFile:
        """Replace the file next to `main` by one with these entries and totals."""
        nbytes = os.path.getsize(main)
        others = bytes_of(main.parent) - nbytes
        head = _totals(episodes, steps, others + nbytes)
        rest = strict_dumps({key: value for key, value in entries.items() if key not in _TOTALS})
        path = main.with_name(FILE)
        raw = head + (b", " if len(rest) > 2 else b"") + rest[1:].encode()
        write_atomic(path, raw, durable="folder" if durable else "none")
        return cls(path, head, others, durable=durable)

    def holds(self) -> bool:
        """Whether it still is the file at its path, with the totals that were written last."""
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        same = (there.st_dev, there.st_ino) == self._identity
        return same and os.pread(self._fd, len(self._head), 0) == self._head

    def update(self, episodes: int, steps: int, nbytes: int) -> None:
        """Change the totals, for episodes in `nbytes`."""
        self._head = _totals(episodes, steps, self._others + nbytes)
        write_all(self._fd, self._head, 0)
        if self._durable:
            os.fsync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def _totals(episodes: int, steps: int, nbytes: int) -> bytes:
    """The start of the file, with numbers that end at bytes 32, 64 and 96."""
    size = megabytes(nbytes)
    return f'{{"total_episodes":{episodes:>14}, "total_steps":{steps:>16}, "dataset_size":{size:>15}'.encode()


def dumps(data: Any) -> str:
    """JSON text of plain data, NumPy values and sets included."""
    try:
        return json.dumps(data, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"expected metadata that JSON can hold, got {error}") from error


def strict_dumps(data: Any) -> str:
    """JSON that every parser reads: an infinite float is 1e999, which is read as infinite, and NaN is null."""
    text = dumps(data)
    if not any(word in text for word in ("Infinity", "NaN")):  # also where they stand in text
        return text
    marks = {sign * math.inf: f"{secrets.token_hex(16)}{sign}" for sign in (1, -1)}
    text = json.dumps(_without_nan(json.loads(text), marks))
    for value, mark in marks.items():
        text = text.replace(f'"{mark}"', f"{'-' * (value < 0)}1e999")
    return text


def _without_nan(data: Any, marks: Mapping[float, str]) -> Any:
    if is_dict(data):
        return {key: _without_nan(inner, marks) for key, inner in data.items()}
    if is_list(data):
        return [_without_nan(inner, marks) for inner in data]
    if isinstance(data, float) and not math.isfinite(data):
        return marks.get(data)  # none for NaN
    return data


def _plain(value: object) -> Any:
    if is_array(value):
        return value.tolist()
    if is_scalar(value):
        return value.item()
    if isinstance(value, (set, frozenset)):
        return sorted(cast("set[Any]", value), key=str)
    if is_path(value):
        return os.fspath(value)
    raise TypeError(f"{value!r} of type {type(value).__name__}")


def space(metadata: Mapping[str, Any], name: str, path: Path) -> Space | None:
    """The space `"observation_space"` or `"action_space"`. Nothing is executed."""
    stored = metadata.get(name)
    if stored is None:
        return None
    try:
        return Space.from_json(stored)
    except SpecError as error:
        if not _STANDARD.issuperset(_types(stored)):
            return None
        raise FormatError(str(error), path=path, where=name) from error


def _types(stored: Any) -> Iterator[str]:
    """The types that the JSON of a space names, as far as it can be read."""
    try:
        waiting = [json.loads(stored) if isinstance(stored, str) else stored]
    except (ValueError, RecursionError):
        return
    while waiting:
        data = waiting.pop()
        if is_mapping(data) and isinstance(data.get("type"), str):
            yield str(data["type"])
            inner = data.get("subspaces")
            waiting.extend(inner.values() if is_mapping(inner) else inner if is_list(inner) else ())


def prepare(metadata: Mapping[str, Any], observation_space: Space, action_space: Space) -> dict[str, Any]:
    """The entries of a new dataset: the given ones, with spaces as JSON text, and totals of zero."""
    given = {key: value for key, value in metadata.items() if value is not None}
    for name in ("author", "author_email"):
        if isinstance(given.get(name), str):
            given[name] = [given[name]]
    texts = {"observation_space": dumps(observation_space.to_json()), "action_space": dumps(action_space.to_json())}
    for name, space in (("observation_space", observation_space), ("action_space", action_space)):
        read = Space.from_json(texts[name])
        if read != space or _shapes(read) != _shapes(space):  # several axes without a value are [[], []]
            raise SpecError(f"expected {name} to be one that its text holds, got {space}, which has no values")
    return {**given, "total_episodes": 0, "total_steps": 0, **texts}


def _shapes(space: Space) -> list[tuple[int, ...]]:
    return [getattr(leaf, "shape", ()) for _, leaf in space.leaves()]


def changed(stored: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, Any]:
    """The stored entries with `update` over them."""
    wrong = sorted(key for key in FIXED & update.keys() & stored.keys() if update[key] != stored[key])
    if wrong:
        raise DataError(f"expected entries that may change, got {', '.join(wrong)}, which describe the stored data")
    return {**stored, **update}


def flattened(options: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Nested entries with keys joined by "/", as HDF5 attributes have them."""
    for key, value in options.items():
        if is_mapping(value):
            yield from flattened(value, f"{prefix}/{key}")
        else:
            yield f"{prefix}/{key}", value


def unflattened(entries: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The inverse of `flattened`, for all entries of an episode."""
    tree: dict[str, Any] = {}
    for name, value in entries:
        *parents, leaf = name.split("/")
        node = tree
        for parent in parents:
            inner = node.get(parent)
            node[parent] = node = inner if is_dict(inner) else {}
        node[leaf] = value
    return tree


def episode_entries(stored: Mapping[str, Any], episode: int, steps: int) -> dict[str, Any]:
    """The metadata of an episode as it is handed out: `id` and `total_steps` true, `seed` an int or absent."""
    entries = {**unflattened(stored.items()), "id": episode, "total_steps": steps}
    seed = entries.pop("seed", None)
    if seed is not None and str(seed) != "None":
        entries["seed"] = _seed(seed)
    return entries


def _seed(seed: Any) -> Any:
    return int(seed) if is_integer(seed) or str(seed).lstrip("-").isdigit() else seed


def statistics(rewards: Any) -> dict[str, float]:
    """Sum, mean, deviation, largest and smallest of `[T]` rewards, under the standard's names; empty without steps."""
    values = np.asarray(rewards, np.float64)
    if len(values) == 0:
        return {}
    with np.errstate(invalid="ignore", over="ignore"):  # infinite rewards: the deviation is NaN
        total = float(values.sum())
        mean = total / len(values)
        spread = values - mean
        deviation = math.sqrt(float(spread @ spread) / len(values))
    low, high = float(values.min()), float(values.max())
    return {
        "rewards_sum": total,
        "rewards_mean": mean,
        "rewards_std": deviation,
        "rewards_max": high,
        "rewards_min": low,
    }


def size_of(data: Path) -> float:
    """Size of a dataset in MB (10^6 bytes), rounded to 0.1. Cost: a walk over its files."""
    return megabytes(bytes_of(data))


def bytes_of(data: Path) -> int:
    """Bytes of all files below a directory."""
    return sum(os.lstat(os.path.join(base, name)).st_size for base, _, names in os.walk(data) for name in names)


def megabytes(nbytes: int) -> float:
    """Bytes as MB, rounded to 0.1."""
    return math.floor(nbytes / 1e5 + 0.5) / 10
