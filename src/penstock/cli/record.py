"""`penstock record`: record episodes of an environment into a new dataset."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.cli.options import To, pairs
from penstock.cli.show import Json, print_json, spread
from penstock.conversion.targets import target_of
from penstock.core.spec import Spec
from penstock.core.text import counted
from penstock.envs.config import Config, EnvConfig
from penstock.envs.registry import available, color_space_of, resolve
from penstock.errors import DataError, require, suggestion
from penstock.formats.base.format import Format, format_to_write, recognise
from penstock.formats.base.writer import Writer
from penstock.locations.location import local_path
from penstock.record.collector import Collector
from penstock.record.rollout import Policy, Rollout, rollout, rollout_vector
from penstock.record.vector import VectorCollector


@dataclass(frozen=True)
class Recorded:
    """The environment to record: its name, functions that make one or several, and metadata to store."""

    name: str
    one: Callable[[], Any]
    several: Callable[[int, int | None], Any]
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


def record(
    env: Annotated[
        str | None,
        typer.Argument(metavar="ENV", help="benchmark/task, a Gymnasium id, or module:id to import the module first."),
    ] = None,
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Path of the new dataset, or with --append of an existing one.")
    ] = None,
    episodes: Annotated[int, typer.Option("--episodes", "-n", min=1, help="The number of episodes.")] = 10,
    append: Annotated[bool, typer.Option("--append", help="Add the episodes to the dataset at --out.")] = False,
    to: To = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-O", metavar="KEY=VALUE", help="A writer's option: layout=seed.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The seed of resets and random actions.")] = None,
    infos: Annotated[bool, typer.Option("--infos", help="Record infos too, with masks of missing values.")] = False,
    policy: Annotated[
        str, typer.Option("--policy", help="random, or module:function that returns an action for an observation.")
    ] = "random",
    random: Annotated[bool, typer.Option("--random", help="The same as --policy random.")] = False,
    benchmark: Annotated[str | None, typer.Option("--benchmark", help="A name of penstock.envs, with --task.")] = None,
    task: Annotated[str | None, typer.Option("--task", help="A task of the benchmark.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="env_cfg.KEY=VALUE", help="Set a value of the benchmark.")
    ] = None,
    n_envs: Annotated[int, typer.Option("--n-envs", min=1, help="Environments; above 1, policies get batches.")] = 1,
    as_json: Json = False,
) -> None:
    """Record episodes of an environment into a new dataset, or add them to one.

    Each episode is saved when it ends, so an interruption loses only unfinished episodes. With --n-envs, a few extra
    episodes may be saved, because several can end at the same step.

    Example: penstock record toy/reach -n 100 -o reach --random --seed 0 --to webdataset --option layout=seed
    """
    if out is None:
        raise typer.BadParameter("expected a place for the dataset", param_hint="--out")
    if random and policy != "random":
        raise typer.BadParameter(f"expected one policy, got {policy} and --random", param_hint="--random")
    act, chosen = _policy(policy), pairs(option, "--option")
    what = _recorded(env, benchmark, task, settings or [])
    path = local_path(out)
    entry = recognise(path)[0] if append and path.exists() else format_to_write(path, to)
    into = _into(path, entry, chosen, what.metadata, append, to)
    with _progress(quiet=as_json) as progress:
        bar = progress.add_task(what.name, total=episodes)
        done = _drive(
            what, into, act, n_envs, infos, {"episodes": episodes, "seed": seed}, lambda *_: progress.advance(bar)
        )
    summary = {
        "path": str(out),
        "format": entry.name,
        "episodes": done.episodes,
        "steps": done.steps,
        "lengths": spread(done.lengths),
        "returns": spread(done.returns),
    }
    if as_json:
        print_json(summary)
    else:
        counts = f"{counted(done.episodes, 'episode')}, {counted(done.steps, 'step')}"
        typer.echo(f"{counts} in {out}; look at it with: penstock info {out}")


def _drive(
    what: Recorded,
    into: Mapping[str, Any],
    act: Policy | None,
    n_envs: int,
    infos: bool,
    limits: dict[str, Any],
    on_episode: Callable[..., object],
) -> Rollout:
    mode = "union" if infos else False
    if n_envs == 1:
        with closing(Collector(what.one(), **into, record_infos=mode)) as one:
            return rollout(one, act, on_episode=on_episode, **limits)
    envs = what.several(n_envs, limits["seed"])
    with closing(VectorCollector(envs, **into, record_infos=mode, unfinished="drop")) as several:
        return rollout_vector(several, act, on_episode=on_episode, **limits)


def _into(
    out: Path, entry: Format, options: Mapping[str, Any], metadata: Mapping[str, Any], append: bool, format: str | None
) -> dict[str, Any]:
    """Return the collector's arguments for the target dataset."""
    if not append:
        return {"target": _target(out, entry, options, metadata)}
    if options:
        raise typer.BadParameter("expected none with --append: the dataset keeps its options", param_hint="-O")
    return {"target": out, "mode": "append", "format": format, "metadata": metadata}


def _target(
    out: Path, entry: Format, options: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Callable[[Spec], Writer]:
    """Return a function that creates the dataset once its columns are known.

    Raises `FileExistsError` for an existing path and `DataError` for unknown options, both at once.
    """
    known = target_of(entry.name, options).options
    if known is not None and (wrong := sorted(options.keys() - set(known))):
        raise DataError(f"expected options of {entry.name} among {list(known)}, got {wrong}")
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"expected nothing at {out}; record to another place, or remove it")
    return lambda spec: entry.create(out, spec, metadata, **options)


def _recorded(env: str | None, benchmark: str | None, task: str | None, settings: list[str]) -> Recorded:
    """Return the task of a benchmark, named in one of two ways, or an environment of Gymnasium."""
    if benchmark is None and env is not None and "/" in env and env.split("/")[0] in available():
        benchmark, task = env.split("/", 1)
    elif (benchmark is None) == (env is None) or (benchmark is None) != (task is None):
        raise typer.BadParameter("expected ENV, or --benchmark and --task", param_hint="ENV")
    if benchmark is None or task is None:
        if settings:
            raise typer.BadParameter("expected a benchmark with --set, got a Gymnasium environment", param_hint="--set")
        return _gymnasium(str(env))
    named_so = [f"env_cfg.benchmark_name={benchmark}", f"env_cfg.task_name={task}"]
    config = Config.from_args([*named_so, *settings]).env_cfg
    named_benchmark, config = resolve(config)
    metadata = {"env_cfg": config.to_mapping(), "color_space": color_space_of(config).value}
    return Recorded(
        f"{benchmark}/{task}", named_benchmark.factory(config), lambda n, seed: _several(config, n, seed), metadata
    )


def _several(config: EnvConfig, n: int, seed: int | None) -> Any:
    load: Any = require("penstock.envs.vector", "gymnasium").load_vec_env
    return load(config, {"n_envs": n, "venv_parallel": True}, seed=seed)


def _gymnasium(env: str) -> Recorded:
    gymnasium = require("gymnasium", "gymnasium")

    def made(make: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return make(env, *arguments)
        except (gymnasium.error.Error, ImportError) as error:
            name, slash, _ = env.partition("/")
            hint = f"{suggestion(name, available())}; benchmarks are {', '.join(available())}" if slash else ""
            raise typer.BadParameter(f"{error}{hint}", param_hint="ENV") from error

    return Recorded(env, lambda: made(gymnasium.make), lambda n, _: made(gymnasium.make_vec, n))


def _policy(name: str) -> Policy | None:
    if name == "random":
        return None
    try:
        return pkgutil.resolve_name(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise typer.BadParameter(f"expected random or module:function, got {name!r}: {error}") from error


def _progress(quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True)
