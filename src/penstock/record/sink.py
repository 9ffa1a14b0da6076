"""Check and write closed episodes."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.episode import Episode
from penstock.core.ragged import Array
from penstock.core.spaces import Space
from penstock.core.spec import Field, Spec
from penstock.errors import DataError, SpecError
from penstock.files import scratch_folder
from penstock.formats.base.format import named
from penstock.formats.base.writer import Writer
from penstock.record.checks import Checks, Verdict
from penstock.record.hooks import EpisodeMetadata
from penstock.record.infos import InfoSchema
from penstock.record.spaces import space_fields

Target = str | os.PathLike[str] | Writer | Callable[[Spec], Writer]


class Sink:
    """Check, describe and write episodes. Episodes that could not be written wait in `pending`.

    The folder of a path is created at once. The writer is created with the first episode. `close` closes it unless it
    was passed in.

    Args:
        target: Path of a new dataset, a writer, or a function from a spec to a writer.
        format: Format of a new dataset.
        metadata: Metadata of the dataset.
        describe: Returns the metadata of an episode, or None.
        nan: Verdict on values that are not finite.
        outside: Verdict on values outside their space.

    Raises:
        FileExistsError: The path exists.
        OSError: The folder cannot be written.
        SpecError: The target has another type.
    """

    def __init__(
        self,
        target: Target,
        format: str,
        metadata: Mapping[str, Any],
        describe: EpisodeMetadata | None,
        nan: Verdict,
        outside: Verdict,
    ) -> None:
        self.episodes = self.steps = 0
        self.pending: deque[Episode] = deque()
        self._verdicts = (nan, outside)
        self._describe, self._metadata = describe, dict(metadata)
        self._writer = target if isinstance(target, Writer) else None
        self._owned = self._writer is None
        self._make = _maker(target, format, self._metadata)
        self._spec: Spec | None = None
        self._check: Checks | None = None

    @property
    def spec(self) -> Spec | None:
        """Columns of the dataset, or None before the first episode."""
        return self._spec

    def add(self, make_spec: Callable[[], Spec], columns: dict[str, Array], metadata: Mapping[str, Any]) -> None:
        """Check and describe one episode, and queue it for `flush`.

        Args:
            make_spec: Returns the columns of the dataset.
            columns: Columns of the episode.
            metadata: Metadata of the episode.

        Raises:
            DataError: A check fails. The episode is dropped.
        """
        if self._spec is None or self._check is None:
            self._spec = make_spec()
            self._check = Checks(self._spec, *self._verdicts)
        number = self.episodes + len(self.pending)
        self._check(number, columns)
        about = dict(metadata)
        episode = Episode(self._spec, columns, number, about)
        if self._describe is not None:
            about.update(self._describe(episode))
        self.pending.append(episode)

    def flush(self) -> None:
        """Write pending episodes, oldest first. Errors of the writer pass through.

        An episode that the format cannot store is dropped.
        """
        while self.pending:
            episode = self.pending[0]
            try:
                self.writer(episode.spec).write(episode)
            except (DataError, SpecError):
                self.pending.popleft()
                raise
            self.pending.popleft()
            self.episodes += 1
            self.steps += len(episode)

    def writer(self, spec: Spec) -> Writer:
        """Return the writer, which is made at first use.

        Args:
            spec: Columns of the dataset.
        """
        if self._writer is None:
            self._writer = self._make(spec)
        return self._writer

    def close(self) -> None:
        """Write pending episodes, and close the writer unless it was passed in."""
        self.flush()
        if self._owned and self._writer is not None:
            self._writer.close()


def _maker(target: Any, name: str, metadata: Mapping[str, Any]) -> Callable[[Spec], Writer]:
    if isinstance(target, (str, os.PathLike)):
        path = Path(target)
        if path.exists():
            raise FileExistsError(f"expected nothing at {path}, for a dataset is created there; choose another path")
        entry = named(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(path):  # what cannot be written is noticed now, and not when the first episode is over
            pass
        return lambda spec: entry.create(path, spec, metadata)
    if isinstance(target, Writer) or callable(target):
        return target  # type: ignore[return-value]
    raise SpecError(f"expected a path, a Writer or a function from Spec to Writer, got {type(target).__name__}")


def environment_metadata(env: Any, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return metadata with `env_spec`, the spec of the environment as JSON text, if it has one.

    Args:
        env: The environment.
        metadata: More metadata, or None.

    Example:
        >>> environment_metadata(object(), {"author": "me"})
        {'author': 'me'}
    """
    spec = getattr(env, "spec", None)
    if spec is None:
        return dict(metadata or {})
    try:
        text = copy.deepcopy(spec).to_json()
    except (TypeError, ValueError):  # an entry point that is a function has no JSON; the spec is then left out
        return dict(metadata or {})
    return {"env_spec": text, **(metadata or {})}


def about_reset(seed: int | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the metadata of a reset, without None.

    Args:
        seed: Seed of the reset, or None.
        options: Options of the reset, or None.

    Example:
        >>> about_reset(3, None)
        {'seed': 3}
    """
    about: dict[str, Any] = {} if seed is None else {"seed": int(seed)}
    return about if options is None else {**about, "options": copy.deepcopy(options)}


def make_spec(observation_space: Space, action_space: Space, schemas: Iterable[InfoSchema]) -> Spec:
    """Return the spec of a recording: columns of the Minari standard, then columns of the schemas.

    Args:
        observation_space: Space of the observations.
        action_space: Space of the actions.
        schemas: Schemas of infos and extras.

    Example:
        >>> from penstock.core.spaces import Discrete
        >>> list(make_spec(Discrete(2), Discrete(3), []))
        ['observations', 'actions', 'rewards', 'terminations', 'truncations']
    """
    fields = {
        **space_fields(observation_space, "observations", "boundary"),
        **space_fields(action_space, "actions", "step"),
        "rewards": Field(np.dtype(np.float64)),
        "terminations": Field(np.dtype(np.bool_)),
        "truncations": Field(np.dtype(np.bool_)),
    }
    for schema in schemas:
        fields |= schema.all_fields()
    return Spec(fields, observation_space, action_space)
