"""Paths of the data of a benchmark's task: processed datasets by type, and demonstrations as they were published."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import DataError, suggestion
from penstock_imitation.envs.config import EnvConfig, EnvDataConfig
from penstock_imitation.envs.registry import named

_DEMO = "-Demo-v0"  # how MAGICAL's names end; configurations may leave it out


def processed_dir(env_data: EnvDataConfig, env_cfg: EnvConfig, type: str = "demos") -> Path:
    """Return the folder of datasets of a type (`demos`, `random`, ...): `<root>/<type>/<benchmark>/<task>`.

    The root is `processed_data_root`, below `data_root` if it is relative. Nothing is created.

    Args:
        env_data: Folders of data and tables of demonstrations.
        env_cfg: Benchmark and task.
        type: Type of the dataset. The default is `"demos"`.

    Returns:
        The folder.

    Example:
        >>> processed_dir(EnvDataConfig(data_root="here"), EnvConfig(), "random").as_posix()
        'here/data/processed/random/dm_control/finger-spin'
    """
    return _root(env_data) / type / env_cfg.benchmark_name / env_cfg.task_name


def find_processed(env_data: EnvDataConfig, env_cfg: EnvConfig, type: str = "demos") -> Path:
    """Return the folder of an existing dataset: `<type>/<benchmark>/<task>`, else `<type>/<task>/<benchmark>`.

    Args:
        env_data: Folders of data and tables of demonstrations.
        env_cfg: Benchmark and task.
        type: Type of the dataset. The default is `"demos"`.

    Returns:
        The folder.

    Raises:
        FileNotFoundError: Neither exists; the message has both.

    Example:
        >>> import tempfile
        >>> folders = EnvDataConfig(data_root=tempfile.mkdtemp())
        >>> processed_dir(folders, EnvConfig()).mkdir(parents=True)
        >>> find_processed(folders, EnvConfig()) == processed_dir(folders, EnvConfig())
        True
    """
    first = processed_dir(env_data, env_cfg, type)
    second = _root(env_data) / type / env_cfg.task_name / env_cfg.benchmark_name
    for folder in (first, second):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(
        f"expected the {type} of {env_cfg.benchmark_name} {env_cfg.task_name!r} in {first} or {second}, "
        "got neither; is env_data.data_root the folder that holds your data?"
    )


def demo_paths(env_data: EnvDataConfig, env_cfg: EnvConfig) -> list[Path]:
    """Return the native demonstrations of a task, in order: files, or for minecraft the folder of its streams.

    Looks up the task in the table of its benchmark, expands `~` and wildcards, and takes relative paths from
    `data_root`. A folder of MAGICAL stands for the `.pkl.gz` files in it.

    Args:
        env_data: Folders of data and tables of demonstrations.
        env_cfg: Benchmark and task.

    Returns:
        Files or folders, at least one.

    Raises:
        DataError: The configuration has no demonstrations of the task.
        FileNotFoundError: No file exists.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> _ = Path(folder, "maze.pickle").write_bytes(b"")
        >>> data = EnvDataConfig(data_root=folder, procgen_demo_paths={"maze": "maze.pickle"})
        >>> [path.name for path in demo_paths(data, EnvConfig(benchmark_name="procgen", task_name="maze"))]
        ['maze.pickle']
    """
    pattern = Path(_entry(env_data, env_cfg)).expanduser()
    if env_cfg.benchmark_name == "magical":
        pattern /= "*.pkl.gz"
    base = Path(pattern.anchor) if pattern.is_absolute() else Path(env_data.data_root).expanduser()
    paths = sorted(base.glob(str(pattern.relative_to(pattern.anchor))))
    if not paths:
        raise FileNotFoundError(
            f"expected the demonstrations of {env_cfg.benchmark_name} {env_cfg.task_name!r} at {base / pattern}, "
            "got nothing there; set env_data.data_root, or the path of the task"
        )
    return paths


def _entry(env_data: EnvDataConfig, env_cfg: EnvConfig) -> str:
    benchmark, task = env_cfg.benchmark_name, env_cfg.task_name
    if benchmark == "minecraft":
        return f"data/minecraft/MineRL{task}-v0"
    keys = [key for key in env_data.key_names() if key.startswith(f"{benchmark}_demo_")]
    if not keys:
        named(benchmark)  # an unknown one is said to be that
        raise DataError(f"the benchmark {benchmark!r} has no demonstrations; env_data has no table of them")
    table: dict[str, str] = getattr(env_data, keys[0])
    bare = task.removesuffix(_DEMO)
    for name in dict.fromkeys([task, bare, bare + _DEMO] if benchmark == "magical" else [task]):
        if name in table:
            return table[name]
    raise DataError(
        f"env_data.{keys[0]} has no demonstrations of {task!r}{suggestion(task, table)}; it has {', '.join(table)}"
    )


def _root(env_data: EnvDataConfig) -> Path:
    return Path(env_data.data_root).expanduser() / Path(env_data.processed_data_root).expanduser()
