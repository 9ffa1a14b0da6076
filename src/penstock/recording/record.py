"""`record`: an environment, single or vectorized, whose episodes are written while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict, overload

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv
from typing_extensions import Unpack

from penstock.recording.checks import Verdict
from penstock.recording.collector import Collector
from penstock.recording.hooks import EpisodeMetadata, StepHook
from penstock.recording.infos import Policy
from penstock.recording.recorder import Unfinished
from penstock.recording.sink import Mode, Target
from penstock.recording.vector import VectorCollector


class _RecordOptions(TypedDict, total=False):
    mode: Mode
    format: str | None
    metadata: Mapping[str, Any] | None
    record_infos: bool | Policy
    info_example: Mapping[str, Any] | None
    episode_metadata: EpisodeMetadata | None
    seed: int | None
    autoseed: bool
    nan: Verdict
    outside: Verdict
    dtypes: Literal["error", "cast"]
    unfinished: Unfinished


class _SingleRecordOptions(_RecordOptions, total=False):
    on_step: StepHook | None


class _VectorRecordOptions(_RecordOptions, total=False):
    overwritten: Verdict
    autoreset_mode: AutoresetMode | str | None


@overload
def record(env: gymnasium.Env[Any, Any], target: Target, **options: Unpack[_SingleRecordOptions]) -> Collector: ...
@overload
def record(
    env: VectorEnv[Any, Any, Any], target: Target, **options: Unpack[_VectorRecordOptions]
) -> VectorCollector: ...
def record(env: Any, target: Target, **options: Any) -> Collector | VectorCollector:
    """Return an environment that records: use it in place of `env`. Every episode is written when it ends.

    Args:
        env: Environment, or vector environment.
        target: Path of a dataset, an open `Writer` (which you close), a `Replay`, or a function from a `Spec` to a
            `Writer`.
        options: Arguments of `penstock.recording.Collector`, or for a vector environment of `VectorCollector`. Both
            have `mode` (`"create"`, `"append"` or `"overwrite"`), `format`, `metadata`, `seed`, `record_infos`,
            `nan`, `outside`, `dtypes` and `unfinished`.

    Returns:
        The wrapped environment. Its `close` saves the open episodes.

    Raises:
        SpecError: A space has no columns, or differs from the dataset that is continued.
        FileExistsError: The path exists.

    Example:
        >>> import gymnasium, penstock, tempfile
        >>> path = f"{tempfile.mkdtemp()}/cartpole"
        >>> with penstock.record(gymnasium.make("CartPole-v1"), path, seed=0) as env:
        ...     _ = penstock.rollout(env, episodes=2)
        >>> with penstock.record(gymnasium.make_vec("CartPole-v1", 4), path, mode="append", seed=1) as envs:
        ...     _ = penstock.recording.rollout_vector(envs, episodes=3)
        >>> len(penstock.open(path)) >= 5
        True
    """
    collector: Any = VectorCollector if isinstance(env, VectorEnv) else Collector
    return collector(env, target, **options)
