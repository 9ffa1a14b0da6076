"""Check and write closed episodes."""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from typing_extensions import override

from penstock.core.episode import Episode
from penstock.core.narrowing import is_path
from penstock.core.ragged import Array
from penstock.core.spec import Field, Spec
from penstock.envs.recovery import spec_to_json
from penstock.errors import DataError, FormatError, SpecError
from penstock.files import replaced_path, scratch_folder
from penstock.formats.base.format import format_to_write, recognise
from penstock.formats.base.writer import RowStream, StepRecording, StepTarget, Writer
from penstock.kernels.bounds import are_within
from penstock.locations.location import local_path
from penstock.recording.checks import Checks, Verdict
from penstock.recording.hooks import EpisodeMetadata
from penstock.recording.schema import RecordingSchema

Target = str | os.PathLike[str] | Writer | Callable[[Spec], Writer]
Mode = Literal["create", "append", "overwrite"]


@runtime_checkable
class StreamTarget(Protocol):
    """A function from a `Spec` to a `Writer` that also takes rows while an episode is recorded."""

    def __call__(self, spec: Spec) -> Writer:
        """Create or continue the dataset."""
        ...

    def row_stream(self, fields: Mapping[str, Field]) -> RowStream | None:
        """Begin an episode. Returns None if the target takes no rows."""
        ...


MODES: tuple[Mode, ...] = ("create", "append", "overwrite")


class Sink(ABC):
    """Check and describe closed episodes. Episodes that are not written yet wait in `pending`."""

    def __init__(
        self, schema: RecordingSchema, describe: EpisodeMetadata | None, nan: Verdict, outside: Verdict
    ) -> None:
        self.delivers = False  # steps of open episodes
        self.closed = False
        self.first = 0  # number of the first recorded episode in the dataset
        self.episodes = self.steps = 0
        self.pending: deque[Episode] = deque()
        self._verdicts = (nan, outside)
        self._describe = describe
        # Where kernels are neither compiled nor can be, this is the error, and no episode is lost by it.
        number = np.zeros(1)
        are_within(number, number, number)
        self.use(schema)

    def use(self, schema: RecordingSchema) -> None:
        """Begin with the columns of a schema."""
        self._schema = schema
        self._spec: Spec | None = None
        self._check: Checks | None = None

    @property
    def spec(self) -> Spec:
        """Columns of the dataset. Columns of infos and extras are final after the first episode."""
        return self._spec or self._schema.spec()

    def require_open(self) -> None:
        """Raise `DataError` if no episode can be written any more. Asked before an episode begins."""
        if self.closed:
            raise DataError(
                "expected a recorder that is open, got one that was closed; record(env, path, mode='append') makes one "
                "that goes on with the dataset"
            )

    def row_stream(self) -> RowStream | None:
        """Return what takes rows of the episode that begins, or None. The default is None."""
        return None

    def step_recording(self, lanes: int) -> StepRecording | None:
        """Return what takes the steps of open episodes, or None. The default is None."""
        return None

    def add(self, columns: dict[str, Array], metadata: Mapping[str, Any], lane: int = 0) -> None:
        """Check and describe one episode of an environment, and append it to `pending`."""
        if self._spec is None or self._check is None:
            self._spec = self._schema.spec()
            self._check = Checks(self._spec, *self._verdicts)
            # The buffers of plain columns have checked all values.
            self._make_episode = Episode.trusted if self._schema.is_plain else Episode
        number = self.first + self.episodes + len(self.pending)
        self._check(number, columns)
        about = dict(metadata)
        episode = self._make_episode(self._spec, columns, number, about)
        if self._describe is not None:
            about.update(self._describe(episode))
        self.pending.append(episode)

    def write_due(self) -> None:
        """Write the pending episodes that are due after `add`. The default is all of them."""
        self.flush()

    @abstractmethod
    def flush(self) -> None:
        """Write all pending episodes, oldest first."""

    @abstractmethod
    def close(self) -> None:
        """Write pending episodes, and release the files."""


class WriterSink(Sink):
    """Write episodes with a `Writer`.

    The folder of a path is created at once. The writer is created with the first episode. `close` closes it unless it
    was passed in.
    """

    def __init__(
        self,
        target: Target,
        schema: RecordingSchema,
        format: str | None,
        mode: Mode,
        metadata: Mapping[str, Any],
        describe: EpisodeMetadata | None,
        nan: Verdict,
        outside: Verdict,
    ) -> None:
        super().__init__(schema, describe, nan, outside)
        if mode not in MODES:
            raise SpecError(f"expected mode to be one of {list(MODES)}, got {mode!r}")
        self._writer = target if isinstance(target, Writer) else None
        self._owned = self._writer is None
        self._streams: StreamTarget | None = None
        self.delivers = isinstance(target, StepTarget)  # steps, unless there are infos or extras
        self._steps: StepRecording | None = None
        self._lanes: deque[int] = deque()  # of the pending episodes
        if is_path(target):
            self._make = self._maker(local_path(target), format, mode, dict(metadata))
        elif mode != "create":
            raise SpecError(f"expected a path for mode={mode!r}, got {type(target).__name__}")
        elif isinstance(target, Writer) or callable(target):
            self._make: Any = target
            if isinstance(target, StreamTarget):
                self._streams = target
        else:
            raise SpecError(f"expected a path, a Writer or a function from Spec to Writer, got {type(target).__name__}")

    def _maker(self, path: Path, format: str | None, mode: Mode, metadata: dict[str, Any]) -> Callable[[Spec], Writer]:
        exists = os.path.lexists(path)
        if exists and mode == "create":
            raise FileExistsError(
                f"expected nothing at {path}, for a dataset is created there; choose another path, or "
                "mode='append' or 'overwrite'"
            )
        if exists and mode == "append":
            return self._continuer(path, format, metadata)
        entry = format_to_write(path, format)
        if not exists:
            path.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(path):  # what cannot be written is noticed now, and not when the first episode is over
            pass
        if not exists:
            return lambda spec: entry.create(path, spec, metadata)
        recognise(path)  # only datasets are replaced

        def replace(spec: Spec) -> Writer:
            with replaced_path(path):
                return entry.create(path, spec, metadata)

        return replace

    def _continuer(self, path: Path, format: str | None, metadata: dict[str, Any]) -> Callable[[Spec], Writer]:
        entry, _ = recognise(path)
        if format not in (None, entry.name):
            raise FormatError(f"expected the format {entry.name!r} to append to the dataset, got {format!r}", path=path)
        with entry.open(path) as source:
            self._schema.adopt(source.spec, path)
            self.first = len(source)
            entries = {k: v for k, v in metadata.items() if k != "env_spec" or k not in source.metadata}

        def append(_: Spec) -> Writer:
            writer = entry.append(path)
            if entries:
                writer.update_metadata(entries)
            return writer

        return append

    @override
    def row_stream(self) -> RowStream | None:
        """Return what the target takes rows with, or None."""
        if self._streams is None:
            return None
        spec = self.spec
        return self._streams.row_stream({path: spec[path] for path in spec if path.split("/")[0] == "observations"})

    @override
    def step_recording(self, lanes: int) -> StepRecording | None:
        """Return what takes the steps of open episodes, or None. Asked when the first step was stored."""
        if self._steps is None and self.delivers:
            self.delivers = self._schema.is_plain and isinstance(self._writer, StepTarget)
            if isinstance(self._writer, StepTarget) and self.delivers:
                self._steps = self._writer.__record_steps__(self.spec, lanes)
                self.delivers = self._steps is not None
        return self._steps

    @override
    def add(self, columns: dict[str, Array], metadata: Mapping[str, Any], lane: int = 0) -> None:
        try:
            super().add(columns, metadata)
        except DataError:
            if self._steps is not None:
                self._steps.drop(lane)
            raise
        self._lanes.append(lane)

    def flush(self) -> None:
        """Write pending episodes, oldest first. Errors of the writer pass through.

        An episode that the format cannot store is dropped.
        """
        while self.pending:
            episode = self.pending[0]
            try:
                if self._writer is None:
                    self._writer = self._make(episode.spec)
                if self._steps is None:
                    self._writer.write(episode)
                else:
                    self._steps.save(self._lanes[0], episode)
            except (DataError, SpecError):
                self.pending.popleft()
                self._lanes.popleft()
                raise
            self.pending.popleft()
            self._lanes.popleft()
            self.episodes += 1
            self.steps += len(episode)

    def close(self) -> None:
        """Write pending episodes, and close the writer unless it was passed in."""
        self.flush()
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        if self._owned and self._writer is not None:
            self._writer.close()
        self.closed = True


class Recording:
    """Base of recorders: the counts and columns of the sink."""

    _sink: Sink

    @property
    def episodes(self) -> int:
        """Number of episodes written by this recorder."""
        return self._sink.episodes

    @property
    def steps(self) -> int:
        """Total number of steps of these episodes."""
        return self._sink.steps

    @property
    def pending(self) -> int:
        """Number of closed episodes that wait in memory because writing failed."""
        return len(self._sink.pending)

    @property
    def dataset_spec(self) -> Spec:
        """Columns of the dataset. Columns of infos and extras are final after the first episode."""
        return self._sink.spec

    def flush(self) -> None:
        """Write the episodes that wait in memory because writing failed, for example on a full disk.

        Raises:
            OSError: Writing failed again. Call `flush` later.
        """
        self._sink.flush()


def environment_metadata(env: Any, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return metadata with `env_spec`, the spec of the environment as JSON text, if it has one."""
    text = spec_to_json(getattr(env, "spec", None))
    return {**({} if text is None else {"env_spec": text}), **(metadata or {})}


def about_reset(seed: int | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata of a reset, without None."""
    about: dict[str, Any] = {} if seed is None else {"seed": int(seed)}
    return about if options is None else {**about, "options": copy.deepcopy(options)}
