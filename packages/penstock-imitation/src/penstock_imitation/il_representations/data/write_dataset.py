"""Writer of frames, one by one, into an archive of il-representations' layout, with the task's description."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.tar import TarAppender, member
from penstock.containers.tar.compress import pack
from penstock.containers.tar.writer import Piece
from penstock.core.columns import under
from penstock.core.episode import Episode
from penstock.core.narrowing import is_array, is_scalar
from penstock.core.spec import Field, Spec
from penstock.errors import DataError, SpecError
from penstock.files import atomic_path, move
from penstock.formats.base.writer import Writer
from penstock.formats.webdataset.seed_writer import SeedWriter, around, dumps
from penstock.formats.webdataset.writer import packing
from penstock_imitation.envs.registry import available, color_space_of, spaces_of
from penstock_imitation.il_representations.data.metadata import NAME, TRAJECTORY, Meta
from penstock_imitation.il_representations.envs.config import EnvConfig, current

PIECE = 8 << 20  # bytes of members that are written at a time


def get_meta_dict(env_cfg: EnvConfig | None = None) -> Meta:
    """Return the description of a task for its archives: `env_cfg` without other benchmarks' keys, `action_space`,
    `observation_space` and `color_space`. Spaces are `penstock.spaces`; no environment is built.
    """
    config = current().env_cfg if env_cfg is None else env_cfg
    others = tuple(f"{name}_" for name in available() if name != config.benchmark_name)
    kept = {key: value for key, value in config.to_mapping().items() if not key.startswith(others)}
    observation_space, action_space = spaces_of(config)
    return {
        "env_cfg": kept,
        "action_space": action_space,
        "observation_space": observation_space,
        "color_space": color_space_of(config),
    }


def write_frames(
    out_file_path: str | os.PathLike[str], meta_dict: Mapping[str, Any], frame_dicts: Iterable[Mapping[str, Any]]
) -> None:
    """Write one archive: the description, then of every frame a pickle for each of its keys, and its number as `frame`
    if it has none.

    The suffix chooses the compression: `.tgz` or `.tar.gz` (for older readers of the original), `.tar.zst` (for the
    newest, extra `zstd`), `.tar` for none. The folder is created; the archive is created or replaced atomically.
    Values are arrays, numbers, text, dicts, lists, `penstock.spaces` and `ColorSpace`.

    In an archive only a done ends a trajectory. Frames read from several archives have their trajectory's number,
    `__trajectory__`. If it changes after a frame that is not done, the archive would join two trajectories, so this is
    an error.

    Memory: some MB, however many frames there are.
    """
    target = Path(out_file_path)
    single, kind = packing(target, None)
    if not single:
        raise DataError(f"expected a name that ends with .tar, .tgz or .tar.zst, got {target.name!r}")
    with replaced(target) as path:
        plain = path.with_name("plain.tar")
        with TarAppender.create(plain, member(NAME, dumps(dict(meta_dict)))) as archive:
            for pieces in _gathered(frame_dicts):
                archive.append(pieces)
        if kind is None:
            move(plain, path)
        else:
            pack(plain, path, kind)


@contextmanager
def replaced(target: Path) -> Generator[Path]:
    """Yield a path for a file that replaces `target` when the block ends, and is deleted if the block raises."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target, overwrite=True) as path:
        yield path


class TaskWriter(Writer):
    """Writer of episodes of a task's demonstrations or rollouts as frames, described by `get_meta_dict`.

    `names` are the columns of observations and actions, where episodes have others besides. Infos of T + 1 rows
    (recorded from environments) lose their first, which is of no step; columns that the layout has no place for are
    left out.
    """

    def __init__(self, path: Path, spec: Spec, meta: Mapping[str, Any], names: Mapping[str, str] = {}) -> None:
        self._spec = spec
        self._from = {name: names.get(name, name) for name in ("observations", "actions")}
        for name, space in (("observations", meta["observation_space"]), ("actions", meta["action_space"])):
            stored_fields = {p: (str(spec[p].dtype), spec[p].shape) for p in spec.paths(self._from[name])}
            wanted = (str(space.dtype), getattr(space, "shape", ()))
            if stored_fields != {self._from[name]: wanted}:
                raise SpecError(f"expected {name} of the task's space, {wanted}, got {stored_fields}")
        steps = [p for p, f in spec.items() if (f.align == "step" or _late(p, f)) and not under("actions", p)]
        self._from |= {path: path for path in steps}
        fields = {name: spec[path] for name, path in self._from.items()}
        fields = {name: replace(f, align="step") if _late(name, f) else f for name, f in fields.items()}
        stored_meta = {"env_cfg": meta["env_cfg"], "color_space": meta["color_space"].value}
        self._inner = SeedWriter.create(
            path, Spec(fields, meta["observation_space"], meta["action_space"]), stored_meta
        )

    @property
    def spec(self) -> Spec:
        """The columns that episodes must have."""
        return self._spec

    @override
    def write(self, episode: Episode) -> int:
        late = {name: 1 if _late(path, self._spec[path]) else 0 for name, path in self._from.items()}
        columns = {name: episode.columns[path][late[name] :] for name, path in self._from.items()}
        return self._inner.write(Episode(self._inner.spec, columns, episode.id, episode.metadata))

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Add or replace entries of the description."""
        self._inner.update_metadata(metadata)

    @override
    def close(self) -> None:
        self._inner.close()


def _late(path: str, field: Field) -> bool:
    return path.startswith("infos/") and field.align == "boundary"


def _gathered(frames: Iterable[Mapping[str, Any]]) -> Iterator[list[Piece]]:
    """Yield the members of all frames, some MB at a time."""
    pieces: list[Piece] = []
    size = count = 0
    before: Mapping[str, Any] = {}
    for count, frame in enumerate(frames, 1):
        _check_separate(before, frame, count - 1)
        before = frame
        values = {"frame": count - 1, **frame}
        for name in sorted(values.keys() - {"__key__", TRAJECTORY}):
            pieces.append(member(f"frame_{count - 1:09d}.{name}.pickle", _pickled(values[name])))
            size += len(pieces[-1])
        if size > PIECE:
            yield pieces
            pieces, size = [], 0
    if not count:
        raise DataError("expected at least one frame, got none")
    if pieces:
        yield pieces


def _check_separate(before: Mapping[str, Any], frame: Mapping[str, Any], number: int) -> None:
    """Raise `DataError` where a trajectory begins though the frame before it is not done."""
    numbers = [each[TRAJECTORY] for each in (before, frame) if TRAJECTORY in each]
    if len(set(numbers)) > 1 and not np.any(before.get("dones", False)):
        raise DataError(
            f"expected a done before frame {number}, with which trajectory {numbers[1]} begins, got none at the end of "
            f"trajectory {numbers[0]}; write an archive for each archive that was read, or read with join=True"
        )


def _pickled(value: Any) -> bytes:
    """Pickle a value like `dumps`, and cache the bytes around the data of each kind of array."""
    if (is_array(value) or is_scalar(value)) and value.dtype.kind in "biufc":
        before, after = around(value.dtype.str, value.shape, isinstance(value, np.generic))
        return b"".join((before, value.tobytes(), after))
    return dumps(value)
