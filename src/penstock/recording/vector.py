"""`VectorCollector`: record episodes from a vectorised environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

from penstock.core.arrays import AnyArray, BoolArray, IntArray
from penstock.core.narrowing import is_listed, is_mapping
from penstock.core.ragged import Array
from penstock.errors import DataError, SpecError
from penstock.recording.batch import CLOSED, BatchBuffer, split_infos
from penstock.recording.checks import Verdict
from penstock.recording.hooks import EpisodeMetadata, reward_statistics, seed_stream
from penstock.recording.infos import InfoColumns, Policy, make_infos
from penstock.recording.recorder import Unfinished, cast_of
from penstock.recording.same_step import FINAL, LastInfos, OverwriteCheck, copy_before_reset, flat_infos, pick_final
from penstock.recording.schema import RecordingSchema
from penstock.recording.sink import Mode, Recording, Target, WriterSink, about_reset, environment_metadata
from penstock.recording.spaces import from_gymnasium


class VectorCollector(Recording, VectorWrapper[Any, Any, Any, Any, Any]):
    """Vector environment wrapper that records. Each episode of each environment is written when it ends.

    Use it in place of the environment. It handles all autoreset modes: every episode has T + 1 observations, the last
    one is from before the reset, and a step that only resets an environment is in no episode.

    The metadata of an episode has `env`, the number of its environment. `stream_seed` and `stream_episode` identify the
    episode by the seed of a reset and the number of episodes since. The first one also has `seed`. Environments that
    take one seed together have `vector_seed` instead of `stream_seed`.

    Cost: a few assignments for each step of all environments together. Recording infos costs a loop over environments.

    Args:
        env: Vector environment to record.
        target: Path of a dataset, an open `Writer` (which you close), or a function from a `Spec` to a `Writer`.
        mode: `"create"`, `"append"` or `"overwrite"`, as in `Collector`. The default is `"create"`.
        format: Format of the dataset, as in `Collector`. The default is None.
        metadata: Metadata of the dataset, in addition to `env_spec`. The default is none.
        record_infos: False, True, `"union"` or `"error"`, as in `Collector`. In SAME_STEP mode, an environment without
            `final_info` has no infos of last steps: their masks are False. The default is False.
        info_example: An info with keys that may first appear after the first episode. The default is None.
        episode_metadata: Function from an `Episode` to its metadata. The default is statistics of its rewards.
        seed: Seed of the generator that draws seeds for resets without one. The default is None: a random seed.
        autoseed: Whether to draw these seeds. The default is True.
        nan: What to do with values that are not finite: `"error"`, `"warn"` or `"keep"`. The default is `"error"`.
        outside: The same for values outside their space. The default is `"warn"`.
        overwritten: What to do with an episode whose last observation or info equals the one of the next reset, which
            happens in SAME_STEP mode if an environment reuses its arrays. `"error"` does not save it and raises,
            `"warn"` saves it, `"keep"` does not check. A `SyncVectorEnv` needs no check, because its environments are
            made to return copies. The default is `"error"`.
        dtypes: `"error"` or `"cast"`, as in `Collector`. The default is `"error"`.
        unfinished: What `close` does with open episodes: `"save"` them as truncated, or `"drop"` them. The default is
            `"save"`.
        autoreset_mode: Autoreset mode of `env`. The default is None: read it from the metadata of `env`.

    Raises:
        SpecError: A space has no columns, or the autoreset mode is unknown.
        FileExistsError: The path exists.
        DataError: While stepping, a value cannot be recorded, or an episode was overwritten.
        OSError: While stepping, the disk is full. See `flush`.

    Example:
        >>> import gymnasium, numpy as np
        >>> from penstock.recording.memory import MemoryWriter
        >>> with VectorCollector(gymnasium.make_vec("CartPole-v1", 2), writer := MemoryWriter(), seed=0) as envs:
        ...     _ = envs.reset()
        ...     for _ in range(20):
        ...         _ = envs.step(np.ones(2, np.int64))
        >>> writer.episodes[0].metadata["env"], bool(writer.episodes[0].terminations[-1])
        (0, True)
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        target: Target,
        *,
        mode: Mode = "create",
        format: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        record_infos: bool | Policy = False,
        info_example: Mapping[str, Any] | None = None,
        episode_metadata: EpisodeMetadata | None = reward_statistics,
        seed: int | None = None,
        autoseed: bool = True,
        nan: Verdict = "error",
        outside: Verdict = "warn",
        overwritten: Verdict = "error",
        dtypes: Literal["error", "cast"] = "error",
        unfinished: Unfinished = "save",
        autoreset_mode: AutoresetMode | str | None = None,
    ) -> None:
        one: Any = env  # which has spaces of no type
        self._spaces = from_gymnasium(one.single_observation_space), from_gymnasium(one.single_action_space)
        self._mode = _mode(env, autoreset_mode)
        infos = make_infos(record_infos, info_example)
        schema = RecordingSchema(*self._spaces, infos)
        about = environment_metadata(env, metadata)
        self._sink = WriterSink(target, schema, format, mode, about, episode_metadata, nan, outside)
        self._infos = [] if infos is None else [InfoColumns(infos) for _ in range(env.num_envs)]
        self._seeds = seed_stream(seed) if autoseed else None
        self._seeds_each = isinstance(env.unwrapped, (SyncVectorEnv, AsyncVectorEnv))
        self._buffer = BatchBuffer(*self._spaces, env.num_envs, cast=cast_of(dtypes))
        self._unfinished = unfinished
        self._about: list[dict[str, Any]] = [{} for _ in range(env.num_envs)]
        self._resetting: list[int] = []  # environments whose next step resets them
        self._ready = False
        copied = self._mode is AutoresetMode.SAME_STEP and copy_before_reset(env)
        self._overwritten = OverwriteCheck("keep" if copied else overwritten)
        self._last = LastInfos(env) if self._mode is AutoresetMode.SAME_STEP and self._infos else None
        super().__init__(env)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in some. Open episodes there are saved as truncated.

        Args:
            seed: Seed for the environments, or a list with one for each. The default is None: draw them, or none
                without `autoseed`.
            options: Options of the environments. `options["reset_mask"]`, `[num_envs]` bool, selects the environments
                to reset. The default is None: all.

        Returns:
            Observations and infos of the environments.

        Raises:
            DataError: There is a mask, and all environments must be reset first; or the collector was closed.
        """
        self._sink.require_open()
        mask = np.ones(self.num_envs, np.bool_)
        if options is not None and "reset_mask" in options:
            mask = np.array(options["reset_mask"])
            if not self._ready:
                raise DataError("expected a reset of all environments before one of some, or after a failed step")
        self._save([(k, self._cut(k, False, True)) for k in self._among(mask)])
        whole = bool(mask.all())
        self._ready = self._ready and not whole
        seeds = self._draw(mask) if seed is None else seed
        kept = {key: value for key, value in (options or {}).items() if key != "reset_mask"} or None
        about = [self._about_env(k, seeds, kept) for k in range(self.num_envs)]
        observations, infos = self.env.reset(seed=seeds, options=options)  # type: ignore[arg-type]
        self._begin(observations, infos, mask, whole)
        for k in np.flatnonzero(mask).tolist():
            self._about[k] = about[k]
        self._resetting = [k for k in self._resetting if not mask[k]]
        self._ready = True
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments and record it.

        Args:
            actions: Batch of actions.

        Returns:
            The result of the environments.

        Raises:
            DataError: A reset is needed first, or an action cannot be recorded; the environments did not step then. Or
                the result cannot be recorded; all open episodes then end with the step before.
        """
        self._require_open()
        buffer, i = self._buffer, self._buffer.row
        active = np.flatnonzero(np.array(buffer.start) != CLOSED) if self._sink.delivers else None
        buffer.store_action(i, actions)
        result = self.env.step(actions)
        observations, rewards, terminations, truncations, infos = result
        self._ready = False  # until the step is recorded
        buffer.store_reward(i, rewards)
        buffer.store_observation(i + 1, observations)
        for k in self._resetting:
            self._restart(k, i + 1)
        self._resetting = []
        ended = [
            k for k in np.flatnonzero(np.logical_or(terminations, truncations)).tolist() if buffer.start[k] != CLOSED
        ]
        infos_each = self._store_infos(infos, ended, i + 1)
        rows = None if active is None else (active, *buffer.rows(active))
        began = [] if active is None else [k for k in active.tolist() if buffer.start[k] == i]
        buffer.row = i + 1
        closed = [(k, self._cut(k, bool(terminations[k]), bool(truncations[k]))) for k in ended]
        refused = self._go_on(closed, infos, infos_each)
        if rows is not None:
            self._deliver(*rows, began, dict(closed), refused)
        self._ready = True
        self._save(closed, refused)
        return result

    def truncate(self, mask: BoolArray | None = None) -> None:
        """End open episodes here as truncated, and save them.

        The next episodes start with the last observation, and their metadata has `continued`. Episodes without steps
        stay open.

        Args:
            mask: `[num_envs]` bool, environments whose episodes to end. The default is None: all.

        Raises:
            DataError: No episode is open.
        """
        if not self._ready:
            raise DataError("expected open episodes to truncate, got none; call reset() first")
        closed: list[tuple[int, dict[str, Array]]] = []
        for k in self._among(np.ones(self.num_envs, np.bool_) if mask is None else mask):
            closed.append((k, self._cut(k, False, True, carry=True)))
            self._buffer.start[k] = self._buffer.row
        before = [{key: about[key] for key in _STREAM if key in about} for about in self._about]
        self._save(closed)
        for k, _ in closed:
            self._about[k] = {**before[k], "continued": True}

    def close(self, **kwargs: Any) -> None:
        """Save or drop open episodes, close the writer unless it was passed in, and close the environments.

        Args:
            kwargs: Keyword arguments for `close` of the environments.

        Raises:
            OSError: Writing failed. `close` can be called again.
        """
        try:
            every = np.ones(self.num_envs, np.bool_)
            closed = [(k, self._cut(k, False, True)) for k in self._among(every) if self._unfinished == "save"]
            self._ready, self._buffer.start = False, [CLOSED] * self.num_envs
            self._save(closed)
            self._sink.close()
        finally:
            super().close(**kwargs)

    def __enter__(self) -> VectorCollector:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _require_open(self) -> None:
        if not self._ready:
            raise DataError("expected reset() before step(): the environments were not reset, or the last step failed")
        if self._mode is AutoresetMode.DISABLED and CLOSED in self._buffer.start:
            ended = [k for k, start in enumerate(self._buffer.start) if start == CLOSED]
            raise DataError(
                f"expected reset(options={{'reset_mask': ...}}) of the environments {ended}: they have ended"
            )

    def _among(self, mask: BoolArray) -> list[int]:
        return [k for k in np.flatnonzero(mask).tolist() if self._buffer.steps(k)]

    def _begin(self, observations: Any, infos: dict[str, Any], mask: BoolArray, whole: bool) -> None:
        if whole:
            self._buffer.begin(observations)
        else:
            self._buffer.begin_some(observations, mask)
        if self._infos:
            if self._last is not None:
                self._last.note_reset(infos)
            parts = split_infos(infos, self.num_envs)
            for k in np.flatnonzero(mask).tolist():
                self._infos[k].store(0, parts[k])

    def _restart(self, k: int, row: int) -> None:
        """Start an episode that the environment itself began."""
        self._buffer.start[k] = row
        self._about[k] = self._next_about(k)

    def _next_about(self, k: int) -> dict[str, Any]:
        kept = {key: self._about[k][key] for key in ("stream_seed", "vector_seed") if key in self._about[k]}
        count = {"stream_episode": self._about[k].get("stream_episode", 0) + 1} if kept else {}
        return {"env": k, **kept, **count}

    def _store_infos(self, infos: dict[str, Any], ended: list[int], row: int) -> list[dict[str, Any]]:
        """Store the infos of the open episodes, and return the infos of each environment's current episode."""
        if not self._infos:
            return []
        parts = split_infos({key: value for key, value in infos.items() if key not in FINAL}, self.num_envs)
        own = list(parts)
        if self._last is not None and ended:
            finals = infos.get("final_info", {})
            each = split_infos(finals, self.num_envs) if is_mapping(finals) else finals
            of_last = self._last.keys(infos)
            for k in ended:
                own[k] = {**(each[k] or {}), **{key: parts[k][key] for key in of_last if key in parts[k]}}
                parts[k] = {key: value for key, value in parts[k].items() if key not in of_last}
        for k, start in enumerate(self._buffer.start):
            if start != CLOSED:
                self._infos[k].store(row - start, own[k])
        return parts

    def _cut(self, k: int, terminated: bool, truncated: bool, carry: bool = False) -> dict[str, Array]:
        columns = self._buffer.cut(k, terminated, truncated)
        if self._infos:
            columns |= self._infos[k].take(self._buffer.steps(k) + 1, carry)
        return columns

    def _go_on(
        self, closed: list[tuple[int, dict[str, Array]]], infos: dict[str, Any], parts: list[dict[str, Any]]
    ) -> dict[int, DataError]:
        """Continue the environments whose episodes ended. Return errors of episodes that must not be saved."""
        refused: dict[int, DataError] = {}
        for k, columns in closed:
            if self._mode is AutoresetMode.SAME_STEP:
                following = self._set_final(columns, infos, k)
                self._buffer.start[k] = self._buffer.row
                try:
                    self._overwritten(k, "observations", columns, following)
                    if self._infos:
                        self._overwritten(k, "infos", columns, self._comparable(k, columns, parts[k]))
                except DataError as error:
                    refused[k] = error
                if self._infos:
                    self._infos[k].store(0, parts[k])
            else:
                self._buffer.start[k] = CLOSED
        if self._mode is AutoresetMode.NEXT_STEP:
            self._resetting = [k for k, _ in closed]
        self._buffer.make_room()
        return refused

    def _comparable(self, k: int, columns: Mapping[str, Array], info: Mapping[str, Any]) -> dict[str, Any]:
        """Infos of a reset by path, without those that the last row of the closed episode does not have."""
        mask = self._infos[k].schema.mask
        leaves = flat_infos(info).items()
        return {path: value for path, value in leaves if mask(path) not in columns or columns[mask(path)][-1]}

    def _set_final(self, columns: dict[str, Array], infos: dict[str, Any], k: int) -> dict[str, Any]:
        finals = infos.get("final_obs")
        final = None if finals is None else pick_final(finals, self._spaces[0], k)
        if final is None:
            raise DataError(
                "expected infos['final_obs'] from an environment that resets in the same step, "
                f"got none of environment {k}"
            )
        return self._buffer.set_final(columns, final)

    def _deliver(
        self,
        lanes: IntArray,
        now: dict[str, AnyArray],
        rows: dict[str, AnyArray],
        began: list[int],
        closed: Mapping[int, Mapping[str, Array]],
        refused: Mapping[int, DataError],
    ) -> None:
        """Let the target have a step that was stored. Of a refused episode, it does not have the last step."""
        steps = self._sink.step_recording(self.num_envs)
        if steps is None:
            return
        first = np.isin(lanes, began)
        if first.any():
            steps.begin(lanes[first], {path: each[first] for path, each in now.items()})
        for row, k in enumerate(lanes.tolist()):
            for path in now if k in closed else ():
                rows[path][row] = np.asarray(closed[k][path])[-1]  # of SAME_STEP, not of the next episode
        ended = np.isin(lanes, list(closed))
        flags = {name: np.zeros(len(lanes), np.bool_) for name in ("terminations", "truncations")}
        for name, each in flags.items():
            each[ended] = [np.asarray(closed[k][name])[-1] for k in lanes[ended].tolist()]
        kept = ~np.isin(lanes, list(refused))
        if kept.any():
            steps.step(lanes[kept], {path: each[kept] for path, each in {**rows, **flags}.items()}, ended[kept])
        for k in refused:
            steps.end(k, False, False)
            steps.drop(k)

    def _save(self, closed: list[tuple[int, dict[str, Array]]], errors: Mapping[int, DataError] | None = None) -> None:
        """Write episodes in the order of their environments. A refused episode does not delay the others."""
        refused: list[DataError] = list((errors or {}).values())
        steps = self._sink.step_recording(self.num_envs) if self._sink.delivers else None
        for k, columns in closed:
            if steps is not None and k not in (errors or {}):
                steps.end(k, *(bool(np.asarray(columns[name])[-1]) for name in ("terminations", "truncations")))
            try:
                if k not in (errors or {}):
                    self._sink.add(columns, self._about[k], k)
            except DataError as error:
                refused.append(error)
            if self._mode is AutoresetMode.SAME_STEP:
                self._about[k] = self._next_about(k)
        if closed:
            self._sink.flush()
        if refused:
            raise refused[0]

    def _draw(self, mask: BoolArray) -> Any:
        if self._seeds is None:
            return None
        return [next(self._seeds) if m else None for m in mask] if self._seeds_each else next(self._seeds)

    def _about_env(self, k: int, seeds: Any, options: dict[str, Any] | None) -> dict[str, Any]:
        if not self._seeds_each:
            seed = None
            stream = {} if seeds is None else {"vector_seed": int(seeds), "stream_episode": 0}
        else:
            seed = None if seeds is None else seeds[k] if is_listed(seeds) else seeds + k
            stream = {} if seed is None else {"stream_seed": int(seed), "stream_episode": 0}
        return {"env": k, **about_reset(seed, options), **stream}


_STREAM = ("env", "stream_seed", "vector_seed", "stream_episode")


def _mode(env: VectorEnv[Any, Any, Any], given: AutoresetMode | str | None) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode") if given is None else given
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise SpecError(
            f"expected metadata['autoreset_mode'] of {env} to be one of {[m.value for m in AutoresetMode]}, "
            f"got {mode!r}; pass autoreset_mode"
        ) from None
