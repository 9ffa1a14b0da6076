"""`Certificate`: proof of what a conversion kept, by column, made of both datasets after the target was reopened.

Digests of the source are made of what the source returns when it is read again, digests of the target of what the
reopened target returns. So neither the writer nor memory of the conversion can make them equal. A certificate is
written at the end, in one step: a conversion that was killed has none. `verify` compares a dataset with it later.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from penstock.conversion.digests import ColumnDigests, digest
from penstock.conversion.draft import ASKED, Draft, Note
from penstock.core.arrays import AnyArray, ByteArray
from penstock.core.columns import under
from penstock.core.episode import Episode
from penstock.core.frames import is_picture
from penstock.core.narrowing import is_dict
from penstock.core.ragged import Array, Ragged
from penstock.core.text import counted
from penstock.data.dataset import EpisodeDataset, selection_of
from penstock.data.mapped import mappings_of, stored_source
from penstock.errors import FormatError
from penstock.files import write_atomic
from penstock.files.remote import read_text
from penstock.formats.base.source import Source
from penstock.locations.hub import beside
from penstock.locations.location import Url, output_place
from penstock.locations.mirror import mirror

Status = Literal["equal", "changed", "lossy", "filled", "computed", "dropped", "left out", "different"]

SUFFIX = ".certificate.json"
VERSION = 1


@dataclass(frozen=True, eq=False)
class ColumnCertificate:
    """What became of one column.

    Args:
        column: Path in the target, or in the source if it was left out.
        origin: Path in the source. None if the column was filled in or computed of several columns.
        status: `"equal"`: bit for bit. `"changed"`: equal after the change in `change`. `"lossy"`: pictures that were
            compressed with loss. `"filled"`: values that the source lacks. `"computed"`: values of a function.
            `"dropped"`: left out as asked for. `"left out"`: not in the target. `"different"`: the target does not have
            the values that it should have.
        change: Explanation.
        source: Digests of the source's values, or None.
        target: Digests of the target's values, or None.
        psnr: Smallest peak signal-to-noise ratio of an episode in dB, for lossy columns.
        ssim: Smallest structural similarity of an episode, for lossy columns.

    Example:
        >>> ColumnCertificate("rewards", "rewards", "equal").status
        'equal'
    """

    column: str
    origin: str | None
    status: Status
    change: str = ""
    source: ColumnDigests | None = None
    target: ColumnDigests | None = None
    psnr: float | None = None
    ssim: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data. A digest of the source that equals the target's digest is `True`."""
        source = None if self.source is None else self.source.to_json()
        target = None if self.target is None else self.target.to_json()
        return {
            "column": self.column,
            "origin": self.origin,
            "status": self.status,
            "change": self.change,
            "source": True if source is not None and source == target else source,
            "target": target,
            "psnr": self.psnr,
            "ssim": self.ssim,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ColumnCertificate:
        """Make one from the output of `to_json`.

        Args:
            data: Output of `to_json`.
        """
        target = None if data["target"] is None else ColumnDigests.from_json(data["target"])
        source = target if data["source"] is True else None
        if is_dict(data["source"]):
            source = ColumnDigests.from_json(data["source"])
        rest = (data["psnr"], data["ssim"])
        return cls(data["column"], data["origin"], data["status"], data["change"], source, target, *rest)


@dataclass(frozen=True, eq=False)
class Certificate:
    """What a conversion kept.

    Args:
        source: Class that reads the source, its fingerprint, episodes and steps.
        target: Class, fingerprint, episodes and steps of the target.
        columns: A certificate for each column of the target, and for each that was left out.
        notes: Differences of spaces and metadata.
        version: Version of penstock.
        functions: Name, digest and seed of each function that changed the episodes. The default is none.
        left_out: Numbers in the source of the episodes that these functions left out. The default is none.

    Example:
        >>> import penstock, tempfile
        >>> data = penstock.from_arrays({"rewards": [0.0, 1.0]}, lengths=[2])
        >>> target = tempfile.mkdtemp() + "/out"
        >>> _ = penstock.convert(data, target, format="columns")
        >>> Certificate.read(target).lossless
        True
    """

    source: Mapping[str, Any]
    target: Mapping[str, Any]
    columns: tuple[ColumnCertificate, ...]
    notes: tuple[Note, ...]
    version: str
    functions: tuple[Mapping[str, Any], ...] = ()
    left_out: tuple[int, ...] = ()

    @property
    def lossless(self) -> bool:
        """Whether every column is in the target bit for bit, but for dropped ones, and nothing was filled in."""
        return all(column.status in ("equal", "dropped") for column in self.columns)

    @property
    def kept(self) -> bool:
        """Whether the target has the values that it should have."""
        return all(column.status != "different" for column in self.columns)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "certificate": VERSION,
            "penstock": self.version,
            "source": dict(self.source),
            "target": dict(self.target),
            "lossless": self.lossless,
            "columns": [column.to_json() for column in self.columns],
            "notes": [[note.level, note.what, note.message] for note in self.notes],
            **({"functions": list(self.functions), "left_out": list(self.left_out)} if self.functions else {}),
        }

    @classmethod
    def read(cls, target: str | Path, storage_options: Mapping[str, Any] | None = None) -> Certificate:
        """Read the certificate of a dataset.

        Args:
            target: Path or URL of the dataset.
            storage_options: Options of the store of a URL, as fsspec calls them. The default is none.

        Raises:
            FileNotFoundError: There is no certificate next to it.
            FormatError: The file is no certificate.
        """
        place = output_place(target)
        path = path_of(place) if isinstance(place, Path) else Url(beside(place.full, SUFFIX))
        try:
            data: Any = json.loads(read_text(path if isinstance(path, Path) else mirror(path.full, storage_options)))
            if not is_dict(data) or data.get("certificate") != VERSION:
                raise FormatError(f"expected a certificate of version {VERSION}, got another file", path=path)
            columns = tuple(ColumnCertificate.from_json(column) for column in data["columns"])
            notes = tuple(Note(*note) for note in data["notes"])
            functions, left_out = tuple(data.get("functions", ())), tuple(data.get("left_out", ()))
            return cls(data["source"], data["target"], columns, notes, data["penstock"], functions, left_out)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"no certificate at {path}: the conversion did not finish, or was done without one"
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise FormatError(f"expected a certificate, got {error!r}", path=path) from error

    def write(self, target: Path) -> Path:
        """Write the certificate next to a dataset; return its path.

        Args:
            target: Path of the dataset.
        """
        path = path_of(target)
        write_atomic(path, (json.dumps(self.to_json(), indent=1) + "\n").encode())
        return path


def path_of(target: Path) -> Path:
    """Return the path of the certificate of a dataset."""
    return target.with_name(target.name + SUFFIX)


def _is_frame(shape: tuple[int, ...]) -> bool:
    """Whether rows of that shape may be stored as frames of a video, which loses detail. Small ones are frames, too."""
    return is_picture(shape) or (len(shape) == 3 and shape[2] == 3)


class _Column:
    """Comparison of one column of the target with what it should be, episode by episode."""

    def __init__(self, column: str, origin: str | None, level: str, change: str) -> None:
        self.is_computed = level == "computed"
        self._column = column
        self._origin = origin
        by_level: dict[str, Status] = {"filled": "filled", "computed": "computed"}
        self._status: Status = by_level.get(level, "changed" if change else "equal")
        self._change = change
        self._source = bytearray()
        self._target = bytearray()
        self._psnr = math.inf
        self._ssim = 1.0
        self._different = ""

    def add(self, episode: int, stored: Array | None, expected: Array, read: Array) -> None:
        """Compare the values read from the target with the expected ones; `stored` has the values of the source."""
        before = b"" if stored is None else digest(stored)
        after = digest(read)
        self._source += before
        self._target += after
        if after == (before if expected is stored else digest(expected)):
            return
        if isinstance(expected, Ragged) or isinstance(read, Ragged) or expected.shape != read.shape:
            self._different = self._different or f"episode {episode}: {_shape(expected)} became {_shape(read)}"
        elif expected.dtype != read.dtype and np.array_equal(expected.astype(read.dtype), read, equal_nan=_nan(read)):
            self._alter("changed", f"{read.dtype}, from {expected.dtype}")
        elif expected.dtype == read.dtype == np.uint8 and _is_frame(expected.shape[1:]):
            self._alter("lossy", "pictures were compressed with loss")
            self._psnr = min(self._psnr, psnr(expected, read))
            self._ssim = min(self._ssim, ssim(_frames(expected), _frames(read)))
        else:
            self._different = self._different or f"episode {episode}: values differ"

    def _alter(self, status: Status, change: str) -> None:
        """Note how the values of the target differ. Those of a function stay computed ones unless loss is added."""
        if status != "changed" or not self.is_computed:
            self._status, self._change = status, self._change or change

    def state(self) -> dict[str, Any]:
        """The comparison so far, as plain values."""
        return {
            "status": self._status,
            "change": self._change,
            "different": self._different,
            "psnr": self._psnr,
            "ssim": self._ssim,
            "source": bytes(self._source),
            "target": bytes(self._target),
        }

    def extend(self, state: Mapping[str, Any]) -> None:
        """Add the comparison of the episodes that follow."""
        if state["status"] in ("changed", "lossy"):
            self._status, self._change = state["status"], self._change or state["change"]
        self._different = self._different or state["different"]
        self._psnr = min(self._psnr, state["psnr"])
        self._ssim = min(self._ssim, state["ssim"])
        self._source += state["source"]
        self._target += state["target"]

    def certificate(self) -> ColumnCertificate:
        status: Status = "different" if self._different else self._status
        lossy = (self._psnr, self._ssim) if status == "lossy" else (None, None)
        source = ColumnDigests.joined(self._source) if self._source else None
        change = self._different or self._change
        return ColumnCertificate(
            self._column, self._origin, status, change, source, ColumnDigests.joined(self._target), *lossy
        )


def certify(
    data: EpisodeDataset,
    target: Source,
    draft: Draft,
    *,
    notes: Sequence[Note],
    on_episode: Callable[[int], object] | None = None,
) -> Certificate:
    comparison = Comparison(data, target, draft, notes)
    if not mappings_of(data.source):
        comparison.check_size(target)  # before anything is read
    comparison.compare(target.episodes(), 0, len(data), on_episode)
    comparison.check_size(target)
    return comparison.certificate(target, notes)


class Comparison:
    """Comparison of the columns of a target with its source, also of one part of the episodes at a time."""

    def __init__(self, data: EpisodeDataset, target: Source, draft: Draft, notes: Sequence[Note]) -> None:
        self._data = data
        self._draft = draft
        self._left_out: list[int] = []  # places among the chosen episodes
        self._missing = [path for path in draft.fields if path not in target.spec]
        self._columns = {path: _column(path, draft, notes) for path in draft.fields if path not in self._missing}

    def compare(
        self, written: Iterable[Episode], first: int, last: int, on_episode: Callable[[int], object] | None = None
    ) -> None:
        draft = self._draft
        pairs = zip(self._kept(range(first, last)), written, strict=False)  # `check_size` compares their numbers
        for number, (before, after) in enumerate(pairs, first):
            expected = draft.of(before.columns, len(before))
            for path, column in self._columns.items():
                stored = None if column.is_computed else before.columns.get(draft.origins.get(path, path))
                column.add(number, stored, expected[path], after.columns[path])
            if on_episode is not None:
                on_episode(number + 1)

    def _kept(self, chosen: range) -> Iterator[Episode]:
        """The episodes of the source that its function, if there is one, does not leave out."""
        for position, episode in zip(chosen, selection_of(self._data).read_mapped(chosen), strict=True):
            if episode is None:
                self._left_out.append(position)
            else:
                yield episode

    def check_size(self, target: Source) -> None:
        """Raise `FormatError` if a target does not have the episodes and steps that it should have."""
        data = self._data
        episodes = len(data) - len(self._left_out)
        steps = data.total_steps - int(data.episodes.length[self._left_out].sum())
        if len(target) != episodes or target.steps != steps:
            raise FormatError(
                f"expected {counted(episodes, 'episode')} of {counted(steps, 'step')} in the target, got "
                f"{counted(len(target), 'episode')} of {counted(target.steps, 'step')}",
                path=target.location,
            )

    def state(self) -> dict[str, Any]:
        """Return what was compared, as plain values."""
        columns = {path: column.state() for path, column in self._columns.items()}
        return {"columns": columns, "left_out": self._left_out}

    def add(self, state: Mapping[str, Any]) -> None:
        """Add what another comparison compared, of the episodes that follow."""
        self._left_out += state["left_out"]
        for path, column in self._columns.items():
            column.extend(state["columns"][path])

    def certificate(self, target: Source, notes: Sequence[Note]) -> Certificate:
        """Return the certificate of the episodes that were compared."""
        data = self._data
        lost = [ColumnCertificate(path, path, "different", "it is not in the target") for path in self._missing]
        left_out = [
            ColumnCertificate(note.what, note.what, "dropped" if note.message == ASKED else "left out", note.message)
            for note in notes
            if note.level == "left out" and any(under(note.what, path) for path in data.spec)
        ]
        certificates = [column.certificate() for column in self._columns.values()]
        known = {column.column for column in (*certificates, *left_out)}
        numbers = data.episodes.index[self._left_out].tolist()
        return Certificate(
            _identity(stored_source(data.source), len(data), data.total_steps),
            _identity(target, len(target), target.steps),
            (*certificates, *lost, *left_out),
            tuple(note for note in notes if note.what not in known),
            version("penstock"),
            tuple(mapping.to_json() for mapping in mappings_of(data.source)),
            tuple(numbers),
        )


def _column(path: str, draft: Draft, notes: Sequence[Note]) -> _Column:
    origin = draft.origins.get(path, path)
    levels = ("adapted", "filled", "computed")
    about = [note for note in notes if note.what in (path, origin) and note.level in levels]
    ordered = (note for level in levels[:0:-1] for note in about if note.level == level)
    known = next(ordered, about[0] if about else None)
    level = "" if known is None else known.level
    change = "" if known is None else known.message
    if level == "adapted" and change == f"renamed to {path}":
        level = ""
    return _Column(path, origin if level not in levels[1:] else None, level, change)


def _identity(source: Source, episodes: int, steps: int) -> dict[str, Any]:
    reader = type(source).__name__
    return {"reader": reader, "fingerprint": source.fingerprint, "episodes": episodes, "steps": steps}


def _frames(rows: ByteArray) -> ByteArray:
    """Pictures as `[n, height, width, channels]`: the channels of `[n, channels, height, width]` go to the end."""
    return np.moveaxis(rows, 1, -1) if rows.ndim == 4 and rows.shape[1] < rows.shape[3] else rows


def _shape(rows: Array) -> str:
    return f"{counted(len(rows), 'ragged row')}" if isinstance(rows, Ragged) else f"{rows.dtype}{list(rows.shape)}"


def _nan(rows: AnyArray) -> bool:
    return rows.dtype.kind in "fc"


WINDOW = 8  # pixels of a side of the squares that the structural similarity compares


def psnr(one: ByteArray, other: ByteArray) -> float:
    """Return the peak signal-to-noise ratio of pictures in dB; infinite for equal ones."""
    error = float(np.mean(np.square(one.astype(np.float64) - other.astype(np.float64)))) if one.size else 0.0
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)


def ssim(one: ByteArray, other: ByteArray) -> float:
    """Return the mean structural similarity of pictures (Wang et al., 2004), over squares of 8 x 8 pixels."""
    n, height, width = one.shape[:3]
    rows, cols = height // WINDOW, width // WINDOW

    def squares(frames: ByteArray) -> AnyArray:
        whole = frames.reshape(n, height, width, -1)[:, : rows * WINDOW, : cols * WINDOW].astype(np.float64)
        return np.moveaxis(whole.reshape(n, rows, WINDOW, cols, WINDOW, -1), (2, 4), (-2, -1))

    if not rows or not cols or not n:
        return 1.0 if np.array_equal(one, other) else 0.0
    a, b = squares(one), squares(other)
    mean_a, mean_b = a.mean((-2, -1)), b.mean((-2, -1))
    var_a, var_b = a.var((-2, -1)), b.var((-2, -1))
    both = (a * b).mean((-2, -1)) - mean_a * mean_b
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    ratio: AnyArray = (2 * mean_a * mean_b + c1) * (2 * both + c2)
    similarity: AnyArray = ratio / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
    return float(similarity.mean())
