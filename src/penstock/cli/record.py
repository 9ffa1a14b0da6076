"""`penstock record`: record episodes of an environment into a new dataset."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.cli.jobs import WorkOptions, show_in_parts, works_in_parts
from penstock.cli.options import NewFormat, pairs
from penstock.cli.show import Json, print_json, spread
from penstock.core.spec import Spec
from penstock.core.text import counted
from penstock.errors import DataError
from penstock.formats.base.format import Format, format_to_write, recognise
from penstock.formats.base.writer import Writer
from penstock.jobs.operations.record import record_arguments
from penstock.locations.location import local_path
from penstock.recording.policies import RANDOM
from penstock.recording.rollout import Rollout
from penstock.recording.rollout_spec import RolloutSpec
from penstock.recording.rollout_worker import RolloutWorker

Seed = Annotated[
    int | None,
    typer.Option("--seed", min=0, help="The seed of all episodes. Default: drawn at random, or 0 with --jobs."),
]
PolicyName = Annotated[
    str, typer.Option("--policy", help="random, or module:function that returns an action for an observation.")
]
Weights = Annotated[
    Path | None,
    typer.Option("--weights", help="A folder of versions, such as 00000012.weights; --policy loads the newest."),
]
Envs = Annotated[int, typer.Option("--n-envs", min=1, help="Environments of a process; above 1, policies get batches.")]
First = Annotated[int, typer.Option("--first", min=0, help="The number of the first episode.")]
StepTimeout = Annotated[
    float | None, typer.Option("--step-timeout", help="Seconds after which a step of the environment fails.")
]
JobEpisodes = Annotated[
    int | None,
    typer.Option("--job-episodes", min=1, help="Episodes of a part; by default a 64th of all, from 8 to 1000."),
]
Grow = Annotated[
    bool, typer.Option("--grow", help="In parts: add each part when it is done, for a Replay that follows.")
]


@works_in_parts
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
    format: NewFormat = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-O", metavar="KEY=VALUE", help="A writer's option: layout=seed.")
    ] = None,
    seed: Seed = None,
    infos: Annotated[bool, typer.Option("--infos", help="Record infos too, with masks of missing values.")] = False,
    policy: PolicyName = RANDOM,
    random: Annotated[bool, typer.Option("--random", help="The same as --policy random.")] = False,
    weights: Weights = None,
    benchmark: Annotated[
        str | None, typer.Option("--benchmark", help="A benchmark of penstock-imitation, with --task.")
    ] = None,
    task: Annotated[str | None, typer.Option("--task", help="A task of the benchmark.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="env_cfg.KEY=VALUE", help="Set a value of the benchmark.")
    ] = None,
    n_envs: Envs = 1,
    first: First = 0,
    step_timeout: StepTimeout = None,
    job_episodes: JobEpisodes = None,
    grow: Grow = False,
    as_json: Json = False,
    *,
    work: WorkOptions,
) -> None:
    """Record episodes of an environment into a new dataset, or add them to one.

    An episode follows from --seed and its number, so any number of processes or machines makes the same ones. Without
    --jobs, each episode is saved when it and those before it have ended. With --weights, --policy names a function from
    the path of a version to the function that acts, and each episode uses the newest version.

    Example: penstock record toy/reach -n 100 -o reach --random --seed 0 --format webdataset --option layout=seed

    Example: penstock record CartPole-v1 -n 1000000 -o cartpole --runner ray --address auto
    """
    if out is None:
        raise typer.BadParameter("expected a place for the dataset", param_hint="--out")
    if random and policy != RANDOM:
        raise typer.BadParameter(f"expected one policy, got {policy} and --random", param_hint="--random")
    drawn = 0 if work.wanted else secrets.randbelow(2**31)  # in parts, the same command has to continue
    spec = RolloutSpec(
        _named(env, benchmark, task),
        tuple(settings or ()),
        policy,
        None if weights is None else str(weights.absolute()),
        drawn if seed is None else seed,
        n_envs,
        infos,
        step_timeout,
        None if policy == RANDOM else str(Path.cwd()),
    )
    place = local_path(out)
    writer = pairs(option, "--option")
    if work.wanted:
        _check_parts(work, place, format, append=append)
        parts = record_arguments(
            spec, place, episodes, first=first, job_episodes=job_episodes, writer=writer, grow=grow
        )
        arguments = {**parts, "show": {"json": as_json, "out": out}}
        show_in_parts("record", arguments, work, quiet=as_json)
        return
    if grow or job_episodes is not None:
        raise DataError("expected --jobs, --runner or --plan with --grow and --job-episodes")
    entry = recognise(place)[0] if append and place.exists() else format_to_write(place, format)
    with closing(RolloutWorker(spec)) as worker:
        into = _into(place, entry, writer, worker.metadata, append, format)
        done = _record(worker, range(first, first + episodes), into, quiet=as_json)
    _show(done, entry.name, {"json": as_json, "out": out})


def _record(worker: RolloutWorker, numbers: range, into: Mapping[str, Any], *, quiet: bool) -> Rollout:
    with _progress(quiet=quiet) as progress:
        bar = progress.add_task(worker.spec.env, total=len(numbers))

        def advance(*_: object) -> None:
            progress.advance(bar)

        return worker.record(numbers, **into, on_episode=advance)


def present(result: Rollout, arguments: Mapping[str, Any]) -> None:
    """Print what was recorded in parts."""
    _show(result, "columns", arguments["show"])


def _show(done: Rollout, format: str, shown: Mapping[str, Any]) -> None:
    if shown["json"]:
        summary = {
            "path": shown["out"],
            "format": format,
            "episodes": done.episodes,
            "steps": done.steps,
            "lengths": spread(done.lengths),
            "returns": spread(done.returns),
        }
        print_json(summary)
    else:
        counts = f"{counted(done.episodes, 'episode')}, {counted(done.steps, 'step')}"
        typer.echo(f"{counts} in {shown['out']}; look at it with: penstock info {quote(shown['out'])}")


def _check_parts(work: WorkOptions, out: Path, format: str | None, *, append: bool) -> None:
    """Raise an error for options that a recording in parts does not have."""
    if append:
        raise DataError("expected a new dataset in parts, got --append; choose another --out, and --first")
    if work.range_bytes is not None:
        raise DataError("expected --job-episodes for the size of a part, got --range-bytes")
    if (name := format_to_write(out, format).name) != "columns":
        raise DataError(f"expected a recording in parts to be in columns, got {name!r}; convert it afterwards")


def _into(
    out: Path, entry: Format, options: Mapping[str, Any], metadata: Mapping[str, Any], append: bool, format: str | None
) -> dict[str, Any]:
    """Return the arguments of `RolloutWorker.record` for the target dataset."""
    if not append:
        return {"target": _target(out, entry, options, metadata)}
    if options:
        raise typer.BadParameter("expected none with --append: the dataset keeps its options", param_hint="-O")
    return {"target": out, "mode": "append", "format": format}


def _target(
    out: Path, entry: Format, options: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Callable[[Spec], Writer]:
    """Return a function that creates the dataset once its columns are known."""
    known = entry.target(options).options
    if known is not None and (wrong := sorted(options.keys() - set(known))):
        raise DataError(f"expected options of {entry.name} among {list(known)}, got {wrong}")
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"expected nothing at {out}; record to another place, or remove it")
    return lambda spec: entry.create(out, spec, metadata, **options)


def _named(env: str | None, benchmark: str | None, task: str | None) -> str:
    """Return the name of the environment, which may be given in two ways."""
    if (benchmark is None) == (env is None) or (benchmark is None) != (task is None):
        raise typer.BadParameter("expected ENV, or --benchmark and --task", param_hint="ENV")
    return f"{benchmark}/{task}" if env is None else env


def _progress(quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True)
