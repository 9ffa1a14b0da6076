"""`penstock record`: episodes of an environment into a new dataset."""

from __future__ import annotations

import pkgutil
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.cli.show import Json, print_json, spread
from penstock.errors import require
from penstock.formats.base.format import named
from penstock.record.collector import Collector
from penstock.record.rollout import Policy, rollout


def record(
    env: Annotated[str, typer.Argument(metavar="ENV", help="An id of Gymnasium, or module:id to import one first.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the dataset is created; nothing may lie there.")],
    episodes: Annotated[int, typer.Option("--episodes", "-n", min=1, help="How many episodes.")] = 10,
    format: Annotated[str, typer.Option("--format", help="A format that writes, see `penstock formats`.")] = "columns",
    seed: Annotated[int | None, typer.Option("--seed", help="Of the resets and the random actions.")] = None,
    infos: Annotated[bool, typer.Option("--infos", help="Record infos too, with masks of what is missing.")] = False,
    policy: Annotated[
        str, typer.Option("--policy", help="random, or module:function from an observation to an action.")
    ] = "random",
    as_json: Json = False,
) -> None:
    """Record episodes of a Gymnasium environment into a new dataset.

    Each episode is saved when it ends, so that what was recorded before an interruption is there.

    Example: penstock record CartPole-v1 -n 100 -o cartpole --seed 0
    """
    act, entry = _policy(policy), named(format)
    collector = Collector(_make(env), out, format=entry.name, record_infos="union" if infos else False)
    with closing(collector), _progress(quiet=as_json) as progress:
        task = progress.add_task(env, total=episodes)
        done = rollout(collector, act, episodes=episodes, seed=seed, on_episode=lambda *_: progress.advance(task))
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
        typer.echo(f"{done.episodes} episodes, {done.steps} steps in {out}; look at it with: penstock info {out}")


def _make(env: str) -> Any:
    gymnasium = require("gymnasium", "gymnasium")
    try:
        return gymnasium.make(env)
    except (gymnasium.error.Error, ImportError) as error:
        raise typer.BadParameter(str(error), param_hint="ENV") from error


def _policy(name: str) -> Policy | None:
    if name == "random":
        return None
    try:
        return pkgutil.resolve_name(name)
    except (ValueError, ImportError, AttributeError) as error:
        raise typer.BadParameter(f"expected random or module:function, got {name!r}: {error}") from error


def _progress(quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=quiet)
