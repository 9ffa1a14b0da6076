"""Which environment, how many copies, and the paths of its data: three strict sets of keys with defaults.

The keys are the same as in the il-representations project's Sacred ingredients `env_cfg`, `venv_opts` and `env_data`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

from penstock.errors import DataError
from penstock_imitation.envs.section import Check, Section, key


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_table(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(_is_text(k) and _is_text(v) for k, v in cast("Mapping[Any, Any]", value).items())


def _is_free(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_is_text(k) for k in cast("Mapping[Any, Any]", value))


_TEXT = Check("text", _is_text)
_TEXT_OR_NONE = Check("text or None", lambda value: value is None or _is_text(value))
_FLAG = Check("True or False", lambda value: isinstance(value, bool))
_COUNT = Check("an integer of at least 1", _is_count)
_COUNT_OR_NONE = Check("an integer of at least 1 or None", lambda value: value is None or _is_count(value))
_TABLE = Check("a mapping of text to text", _is_table)
_FREE = Check("a mapping with text as its keys", _is_free)

_DM_CONTROL = ("finger-spin", "cheetah-run", "walker-walk", "cartpole-swingup", "reacher-easy", "ball-in-cup-catch")
_MAGICAL = {
    "MoveToCorner": "move-to-corner",
    "MoveToRegion": "move-to-region",
    "MatchRegions": "match-regions",
    "MakeLine": "make-line",
    "FixColour": "fix-colour",
    "FindDupe": "find-dupe",
    "ClusterColour": "cluster-colour",
    "ClusterShape": "cluster-shape",
}
_ATARI = ("BreakoutNoFrameskip-v4", "PongNoFrameskip-v4")
_PROCGEN = ("coinrun", "fruitbot", "ninja", "jumper", "miner")


@dataclass(frozen=True)
class EnvConfig(Section):
    """`env_cfg`: all that it takes to build an environment of one benchmark and task.

    `task_name` is written as the benchmark writes it: `MoveToRegion-Demo-v0` (magical), `finger-spin` (dm_control),
    a Gymnasium id (atari, gymnasium), `coinrun` (procgen), a name that becomes `MineRL<name>-v0` (minecraft), `reach`
    (toy). Keys that start with a benchmark's name mean something to that benchmark alone; `benchmark_options` is for
    benchmarks of your own, which say what they take (`Benchmark.options`).

    Raises `DataError` for a value of the wrong kind.

    Args:
        benchmark_name: Name of the benchmark. The default is `dm_control`.
        task_name: Task, as the benchmark writes it. The default is `finger-spin`.
        magical_preproc: Preprocessing of MAGICAL's pictures, or None. The default is `LoResCHW4E`.
        magical_remove_null_actions: Whether to leave out steps without an action. The default is False.
        dm_control_frame_stack: Pictures of an observation. The default is 3.
        dm_control_full_env_names: Name of the environment by task.
        minecraft_max_env_steps: Most steps of an episode. The default None: the limit of the task.
        procgen_frame_stack: Pictures of an observation. The default is 4.
        gymnasium_pixels: Whether observations are rendered pictures. The default is False.
        gymnasium_size: Height and width of these pictures. The default None: as rendered.
        gymnasium_frame_stack: Pictures of an observation. The default is 1.
        toy_frame_stack: Pictures of an observation. The default is 1.
        benchmark_options: Options of other benchmarks, by name. The default is none.

    Example:
        >>> EnvConfig.from_mapping({"task_name": "cheetah-run"}).updated({"dm_control_frame_stack": 1}).task_name
        'cheetah-run'
        >>> EnvConfig.from_mapping({"task": "cheetah-run"})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        penstock.errors.DataError: unknown key 'env_cfg.task'; did you mean 'task_name'?; the keys are ...
    """

    section: ClassVar[str] = "env_cfg"
    __hash__ = Section.__hash__  # the default of a dataclass cannot hash tables

    benchmark_name: str = key("dm_control", _TEXT)
    task_name: str = key("finger-spin", _TEXT)
    magical_preproc: str | None = key("LoResCHW4E", _TEXT_OR_NONE)
    magical_remove_null_actions: bool = key(False, _FLAG)
    dm_control_frame_stack: int = key(3, _COUNT)
    dm_control_full_env_names: Mapping[str, str] = key(
        {task: f"DMC-{task.title()}-v0" for task in _DM_CONTROL},
        _TABLE,
    )
    minecraft_max_env_steps: int | None = key(None, _COUNT_OR_NONE)
    procgen_frame_stack: int = key(4, _COUNT)
    gymnasium_pixels: bool = key(False, _FLAG)
    gymnasium_size: int | None = key(None, _COUNT_OR_NONE)
    gymnasium_frame_stack: int = key(1, _COUNT)
    toy_frame_stack: int = key(1, _COUNT)
    benchmark_options: Mapping[str, Any] = key({}, _FREE)


@dataclass(frozen=True)
class VecEnvOptions(Section):
    """`venv_opts`: how many environments, and whether each has its own process (`venv_parallel`).

    Args:
        venv_parallel: Whether each environment has its own process. The default is True.
        n_envs: Number of environments, at least 1. The default is 2.

    Example:
        >>> VecEnvOptions.from_args(["n_envs=4"])
        VecEnvOptions(venv_parallel=True, n_envs=4)
    """

    section: ClassVar[str] = "venv_opts"

    venv_parallel: bool = key(True, _FLAG)
    n_envs: int = key(2, _COUNT)


@dataclass(frozen=True)
class EnvDataConfig(Section):
    """`env_data`: paths of data. Relative paths are below `data_root`, which is the current folder by default.

    `processed_data_root` holds datasets by type, benchmark and task; the tables of demonstrations are by task, with `~`
    and, for dm_control, wildcards. `wds_n_trajs` or `wds_n_trans` (not both) ask for the first that many trajectories
    or transitions of a dataset.

    Args:
        data_root: Folder that relative paths are below. The default is the current folder.
        processed_data_root: Folder of processed datasets. The default is `data/processed`.
        wds_n_trajs: Most trajectories to read of a dataset. The default None: all.
        wds_n_trans: Most transitions to read of a dataset. The default None: all.
        magical_demo_dirs: Folder of demonstrations by task.
        dm_control_demo_patterns: Pattern of files of demonstrations by task.
        atari_demo_paths: File of demonstrations by task.
        procgen_demo_paths: File of demonstrations by task.

    Raises:
        DataError: A key is unknown or has another type, or both `wds_n_trajs` and `wds_n_trans` are set.

    Example:
        >>> EnvDataConfig().updated({"procgen_demo_paths": {"maze": "demos/maze.pickle"}}).procgen_demo_paths["maze"]
        'demos/maze.pickle'
    """

    section: ClassVar[str] = "env_data"
    __hash__ = Section.__hash__

    data_root: str = key(".", _TEXT)
    processed_data_root: str = key("data/processed", _TEXT)
    wds_n_trajs: int | None = key(None, _COUNT_OR_NONE)
    wds_n_trans: int | None = key(None, _COUNT_OR_NONE)
    magical_demo_dirs: Mapping[str, str] = key(
        {f"{task}-Demo-v0": f"data/magical/{folder}/" for task, folder in _MAGICAL.items()}, _TABLE
    )
    dm_control_demo_patterns: Mapping[str, str] = key(
        {task: f"data/dm_control/{task}-*.pkl.gz" for task in _DM_CONTROL}, _TABLE
    )
    atari_demo_paths: Mapping[str, str] = key(
        {task: f"data/atari/{task}_rollouts_500_ts_100_traj.npz" for task in _ATARI}, _TABLE
    )
    procgen_demo_paths: Mapping[str, str] = key({task: f"procgen/demo_{task}.pickle" for task in _PROCGEN}, _TABLE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wds_n_trajs is not None and self.wds_n_trans is not None:
            raise DataError(
                "expected env_data.wds_n_trajs or env_data.wds_n_trans, got "
                f"both ({self.wds_n_trajs} and {self.wds_n_trans}); set one of them to None"
            )


@dataclass(frozen=True)
class Config(Section):
    """All three sets of keys. On the command line, and in files, each key is below the name of its set.

    Raises `DataError` as its parts do.

    Args:
        env_cfg: The environment.
        venv_opts: Number of environments and processes.
        env_data: Paths of data.

    Example:
        >>> config = Config.from_args(["env_cfg.task_name=reacher-easy", "venv_opts.n_envs=4"])
        >>> config.env_cfg.task_name, config.venv_opts.n_envs
        ('reacher-easy', 4)
    """

    env_cfg: EnvConfig = field(
        default_factory=EnvConfig, metadata={"check": Check("an EnvConfig", lambda v: isinstance(v, EnvConfig))}
    )
    venv_opts: VecEnvOptions = field(
        default_factory=VecEnvOptions,
        metadata={"check": Check("VecEnvOptions", lambda v: isinstance(v, VecEnvOptions))},
    )
    env_data: EnvDataConfig = field(
        default_factory=EnvDataConfig,
        metadata={"check": Check("an EnvDataConfig", lambda v: isinstance(v, EnvDataConfig))},
    )

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """From a mapping of mappings. Raises `DataError` as `Section.from_mapping` does.

        Args:
            mapping: A mapping for each of the three sets.
        """
        parts = {name: _read(name, part) for name, part in cls._mapping(mapping).items()}
        return super().from_mapping(parts)

    def to_mapping(self) -> dict[str, Any]:
        """All keys and values as a plain dict of dicts."""
        return {name: getattr(self, name).to_mapping() for name in self.key_names()}

    def _nested(self, path: str, value: Any) -> dict[str, Any]:
        name, _, rest = path.partition(".")
        part = getattr(self, name, None) if name in self.key_names() else None
        return {name: value} if part is None or not rest else {name: part._nested(rest, value)}

    @classmethod
    def _unknown(cls, name: object) -> str:
        below = [part.section for part in PARTS if name in part.key_names()]
        if not below:
            return super()._unknown(name)
        known = ", ".join(cls.key_names())
        return f"unknown key {str(name)!r}; did you mean '{below[0]}.{name}'?; the keys are {known}"


PARTS: tuple[type[Section], ...] = (EnvConfig, VecEnvOptions, EnvDataConfig)


def _read(name: str, part: Any) -> Any:
    """A part given as a mapping becomes its dataclass; unknown keys are left for the check."""
    kinds = {kind.section: kind for kind in PARTS}
    return part if isinstance(part, Section) or name not in kinds else kinds[name].from_mapping(part)
