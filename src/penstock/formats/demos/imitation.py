"""Trajectories as the imitation library saves them: an `.npz`, a folder of Arrow files, or a pickle."""

from __future__ import annotations

import json
import pickletools
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from penstock.containers.npz import MAX_BYTES, NpzArchive, npz_names
from penstock.containers.pickle import load
from penstock.core.arrays import AnyArray
from penstock.core.boundary import json_object
from penstock.core.narrowing import is_dict, is_list, is_listed
from penstock.errors import FormatError, UnsafeDataError, require
from penstock.files.mapping import map_file
from penstock.files.remote import open_file, read_bytes
from penstock.formats.base.account import LeftOut, unused_files
from penstock.formats.base.source import Source
from penstock.formats.demos.plain import outside_entries, unread_member
from penstock.formats.demos.source import Kind
from penstock.formats.demos.trajectories import Track, numbers, source_of, unpickled

STATE = "state.json"
INFO = "dataset_info.json"
ARRAYS = frozenset(("obs", "acts", "infos", "terminal", "indices"))
COLUMNS = frozenset(("obs", "acts", "rews", "infos", "terminal"))
UNKNOWN = "expected arrays as imitation saves them, got another; open the file with kind='npz' to read it"
LONGEST = 1 << 20  # bytes of a JSON file next to the Arrow files
HEAD = 1 << 12  # bytes that are looked at to recognise a file
DEEPEST = 64  # lists in lists
_SILENT = frozenset({"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT", "MARK"})


class ImitationKind(Kind):
    """What `imitation.data.serialize.save` wrote, in any of its versions. See docs/formats/demos.md."""

    name: ClassVar[str] = "imitation"
    description: ClassVar[str] = "imitation's trajectories (.npz, Arrow folder, pickle)"

    def recognises(self, path: Path) -> bool:
        """Whether an `.npz` has imitation's arrays, a folder its features, or a pickle begins with its trajectories."""
        if path.is_dir():
            return _is_folder(path)
        if npz_names(path) >= ARRAYS:
            return True
        return _is_pickle(path)

    def open(self, path: Path, **options: Any) -> Source:
        """As `read_imitation` does, with its options."""
        return read_imitation(path, **options)


def read_imitation(path: Path, *, max_bytes: int = MAX_BYTES) -> Source:
    """The trajectories of a file or folder, all in memory. `max_bytes` bounds what is inflated."""
    if path.is_dir():
        left_out: list[LeftOut] = []
        return source_of(_from_arrow(path, left_out), {}, path=path, left_out=left_out)
    if npz_names(path):
        archive = NpzArchive(path, max_bytes)
        return source_of(_from_npz(path, archive), {}, path=path, left_out=_others(archive))
    return source_of(_from_pickle(path, max_bytes), {}, path=path)


def _is_folder(path: Path) -> bool:
    try:
        features = _json(path / INFO).get("features")
        return isinstance(features, dict) and {"obs", "acts", "terminal"} <= features.keys() and bool(_files(path))
    except (OSError, FormatError):
        return False


def _is_pickle(path: Path) -> bool:
    """Whether a list begins with a trajectory of imitation's; the class is named before anything that is in it."""
    try:
        if not path.is_file():
            return False
        with open_file(path) as file:
            head = file.read(HEAD)
    except OSError:
        return False
    if not head.startswith(b"\x80") or b"imitation.data.types" not in head:
        return False
    return opening(head, 1) == ["EMPTY_LIST"]


def _from_pickle(path: Path, max_bytes: int) -> list[Track]:
    size = path.stat().st_size
    if size > max_bytes:
        raise UnsafeDataError(f"expected at most {max_bytes} bytes, got {size}; `max_bytes` allows them", path=path)
    value = load(read_bytes(path), path=path)
    if not is_listed(value):
        raise FormatError(f"expected a list of trajectories, got {type(value).__name__}", path=path)
    return [unpickled(item, path=path, where=f"trajectory {i}") for i, item in enumerate(value)]


def _from_npz(path: Path, archive: NpzArchive) -> list[Track]:
    """`obs` has a row more a trajectory than `acts`; `indices` are the cuts between trajectories in `acts`."""
    missing = ARRAYS - set(archive)
    if missing:
        raise FormatError(f"expected imitation's arrays, got none for {sorted(missing)}", path=path)
    acts, terminal = (numbers(archive.array(n), n, path=path, where=n) for n in ("acts", "terminal"))
    cuts = archive.array("indices")  # of floats where there are none
    if cuts.ndim != 1 or terminal.shape != (len(cuts) + 1,) or (cuts.size and cuts.dtype.kind not in "iu"):
        message = f"expected a cut between each two of {len(terminal)} trajectories, got {cuts.dtype}{list(cuts.shape)}"
        raise FormatError(message, path=path, where="indices")
    offsets = np.concatenate([[0], cuts, [len(acts)]]).astype(np.int64)
    if (np.diff(offsets) < 0).any():
        raise FormatError(f"expected cuts that grow and are within {len(acts)} steps", path=path, where="indices")
    steps = {"infos": archive.array("infos")}
    if "rews" in archive.members:
        steps["rews"] = numbers(archive.array("rews"), "rews", path=path, where="rews")
    obs = numbers(archive.array("obs"), "obs", path=path, where="obs")
    rows = {"obs": (obs, len(acts) + len(terminal)), **{name: (a, len(acts)) for name, a in steps.items()}}
    for name, (array, expected) in rows.items():
        if len(array) != expected:
            raise FormatError(f"expected {expected} rows, got {len(array)}", path=path, where=name)
    tracks: list[Track] = []
    for e, (a, b) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        infos = list(steps["infos"][a:b])
        if not all(isinstance(info, Mapping) for info in infos):
            raise FormatError("expected a dict a step", path=path, where=f"infos of trajectory {e}")
        seen = {"": [obs[a + e : b + e + 1]]}
        rewards = steps["rews"][a:b] if "rews" in steps else None
        tracks.append(Track(seen, {"": acts[a:b]}, rewards, infos, bool(terminal[e])))
    return tracks


def _others(archive: NpzArchive) -> list[LeftOut]:
    """Entries of what the archive has besides imitation's arrays."""
    entries = outside_entries(archive)
    for name in [name for name in archive if name not in (*ARRAYS, "rews")]:
        try:
            archive.header(name)
        except FormatError as error:
            entries.append(unread_member(name, error))
        else:
            entries.append(LeftOut("array", name, "unused-array", UNKNOWN))
    return entries


def _json(path: Path) -> dict[str, Any]:
    with open_file(path) as file:
        raw = file.read(LONGEST + 1)
    if len(raw) > LONGEST:
        raise FormatError(f"expected a JSON object of at most {LONGEST} bytes, got more", path=path)
    return json_object(raw, path)


def _files(path: Path) -> list[Path]:
    """The Arrow files of a folder, which are in it and nowhere else."""
    listed = _json(path / STATE).get("_data_files")
    names = [f.get("filename") if is_dict(f) else None for f in listed] if is_list(listed) else []
    if not names:
        raise FormatError("expected `_data_files` with at least one", path=path / STATE)
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
            raise UnsafeDataError(f"expected the name of a file next to this one, got {name!r}", path=path / STATE)
    return [path / str(name) for name in names]


def _from_arrow(path: Path, left_out: list[LeftOut]) -> list[Track]:
    """The trajectories of a folder. Entries of the files and columns that are not read are added to `left_out`."""
    pa: Any = require("pyarrow", "arrow")
    require("pyarrow.ipc", "arrow")
    tracks: list[Track] = []
    files = _files(path)
    used = {STATE, INFO, *(file.name for file in files)}
    others = (file.name for file in path.iterdir() if file.name not in used)
    left_out += unused_files(others, f"files that {STATE} lists")
    unknown: set[str] = set()
    for file in files:
        try:
            with pa.ipc.open_stream(pa.py_buffer(map_file(file))) as stream:
                table = stream.read_all()
                table.validate(full=True)
                tracks += _tracks(table, file, len(tracks))
                unknown |= {*table.column_names} - COLUMNS
        except (OSError, pa.ArrowException) as error:
            raise FormatError(f"expected an Arrow stream, got {error}", path=file) from error
    message = f"expected the columns {sorted(COLUMNS)} of imitation, got another"
    left_out += [LeftOut("column", name, "unused-array", message) for name in sorted(unknown)]
    return tracks


def _tracks(table: Any, path: Path, before: int) -> list[Track]:
    missing = {"obs", "acts", "terminal"} - set(table.column_names)
    if missing:
        raise FormatError(f"expected imitation's columns, got none for {sorted(missing)}", path=path)
    parts: dict[str, list[AnyArray]] = {}
    for name in {"obs", "acts", "rews"} & set(table.column_names):
        parts[name] = [_nested(chunk, path, name) for chunk in _lists(table.column(name), path, name)]
    terminal = table.column("terminal").to_pylist()
    infos = [None] * len(terminal)
    if "infos" in table.column_names:
        infos = table.column("infos").to_pylist()
    tracks: list[Track] = []
    for e, ended in enumerate(terminal):
        where = f"trajectory {before + e}"
        if not isinstance(ended, bool):
            raise FormatError(f"expected whether it is terminal, got {ended!r}", path=path, where=where)
        steps = None if infos[e] is None else _decoded(infos[e], path, where)
        acts, rewards = parts["acts"][e], parts["rews"][e] if "rews" in parts else None
        if steps is not None and len(steps) != len(acts):
            message = f"expected {len(acts)} infos, one a step, got {len(steps)}"
            raise FormatError(message, path=path, where=where)
        tracks.append(Track({"": [parts["obs"][e]]}, {"": acts}, rewards, steps, ended))
    return tracks


def _lists(column: Any, path: Path, name: str) -> list[Any]:
    """The list of each row, as an Arrow array of what is in it."""
    out: list[Any] = []
    for chunk in column.chunks:
        storage = chunk.storage if hasattr(chunk, "storage") else chunk
        if storage.null_count or not hasattr(storage, "value_lengths"):
            raise FormatError(f"expected a list a trajectory, got {storage.type}", path=path, where=name)
        out += [scalar.values for scalar in storage]
    return out


def _nested(array: Any, path: Path, name: str) -> AnyArray:
    """Lists in lists of equal lengths as one array of numbers."""
    shape = [len(array)]
    for _ in range(DEEPEST):
        if array.null_count:
            raise FormatError("expected numbers, got nulls", path=path, where=name)
        if not hasattr(array, "value_lengths"):
            break
        lengths = set(array.value_lengths().to_pylist())
        if len(lengths) > 1:
            raise FormatError(f"expected rows of one shape, got lengths {sorted(lengths)}", path=path, where=name)
        shape.append(lengths.pop() if lengths else 0)
        array = array.flatten()
    values = np.asarray(array.to_numpy(zero_copy_only=False))
    return numbers(values, name, path=path, where=name).reshape(shape)


def _decoded(texts: Any, path: Path, where: str) -> Sequence[Mapping[str, Any]]:
    """Infos out of jsonpickle's texts, which are read as JSON: plain values alone, and None for other objects."""
    out: list[Mapping[str, Any]] = []
    for text in texts if is_list(texts) else [None]:
        try:
            value = _unjsonpickled(json.loads(text)) if isinstance(text, str) else None
        except (ValueError, RecursionError) as error:
            raise FormatError(f"expected JSON, got {str(text)[:80]!r}", path=path, where=f"infos of {where}") from error
        if not is_dict(value):
            raise FormatError("expected a JSON object a step", path=path, where=f"infos of {where}")
        out.append(value)
    return out


def _unjsonpickled(value: Any) -> Any:
    """The same without objects of Python: None replaces them, and a list replaces a tuple."""
    if is_list(value):
        return [_unjsonpickled(item) for item in value]
    if not is_dict(value):
        return value
    if value.keys() == {"py/tuple"}:
        return _unjsonpickled(value["py/tuple"])
    if any(key.startswith("py/") for key in value):
        return None
    return {key: _unjsonpickled(item) for key, item in value.items()}


def opening(head: bytes, count: int) -> list[Any]:
    """The first `count` values and opcodes of a pickle, without those that add nothing. Nothing is executed."""
    opened: list[Any] = []
    if not head.startswith(b"\x80"):  # older protocols are text, and pickletools warns of other text that it tries
        return opened
    try:
        for opcode, argument, _ in islice(pickletools.genops(head), 8 * count):
            if opcode.name not in _SILENT:
                opened.append(argument if "UNICODE" in opcode.name else opcode.name)
            if len(opened) == count:
                break
    except (ValueError, UnicodeDecodeError, OverflowError, MemoryError):
        return opened
    return opened
