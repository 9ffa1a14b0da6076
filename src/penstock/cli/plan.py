"""`penstock plan`: the batches that a plan serves."""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.jobs import WorkOptions, show_in_parts, works_in_parts
from penstock.cli.options import Opening, Storage, Where, pairs
from penstock.cli.plan_arguments import PlanArguments, numbers, pack_arguments
from penstock.cli.show import Json, print_json, size
from penstock.core.text import counted
from penstock.data.map_dataset import planned_samples
from penstock.errors import ArgumentError

Locations = Annotated[
    list[str] | None,
    typer.Argument(metavar="LOCATION...", help="A dataset, or several to mix: paths, URLs, ids or patterns."),
]
Windows = Annotated[int | None, typer.Option("--windows", min=1, help="Samples are windows of so many steps.")]
PackLength = Annotated[
    str | None,
    typer.Option(
        "--pack",
        metavar="LENGTH",
        help="Samples are whole episodes, packed to rows of so many steps: 2048; by column: tokens=2048,images=16; or "
        "a ramp by position: 0:512,10000:2048.",
    ),
]
PackOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--pack-option",
        metavar="NAME=VALUE",
        help="An argument of pack(), such as method=best_fit, overlong=drop (default: split) or max_sequences=8; can "
        "be repeated.",
    ),
]
Shares = Annotated[str | None, typer.Option("--shares", help="Shares of several datasets, such as 3,1.")]
PlanFolder = Annotated[
    Path | None, typer.Option("--cache", help="With --pack: a folder for the plan, where pack(cache=...) finds it.")
]


@works_in_parts
def plan(
    locations: Locations = None,
    windows: Windows = None,
    pack: PackLength = None,
    pack_option: PackOptions = None,
    shares: Shares = None,
    cache: PlanFolder = None,
    options: Opening = None,
    storage: Storage = None,
    where: Where = None,
    as_json: Json = False,
    *,
    work: WorkOptions,
) -> None:
    """Show the size of a plan.

    No values are read. --pack with --cache plans packs in parts. `penstock simulate` says what the plan asks of a
    storage on many hosts.

    Example: penstock plan ./demos --windows 32
    """
    if not locations:
        raise ArgumentError("expected a dataset to plan, got none")
    packing, parsed = pack_arguments(pack, pack_option), None if shares is None else numbers(shares, "--shares", float)
    samples = PlanArguments(locations, windows, packing, parsed, options, pairs(storage, "--storage"), where)
    if work.wanted or cache is not None:
        _pack_in_parts(samples, cache, work, as_json)
    else:
        _show(samples, as_json)


def _pack_in_parts(samples: PlanArguments, cache: Path | None, work: WorkOptions, as_json: bool) -> None:
    """Plan the packs of one dataset in parts, and write the plan to the folder."""
    if cache is None:
        raise ArgumentError("expected --cache with a folder for the plan that is made in parts, got none")
    arguments = {**samples.work_arguments(), "folder": str(cache.absolute()), "show": {"json": as_json}}
    show_in_parts("pack", arguments, work, quiet=as_json)


def present(summary: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    """Print what was packed and where the plan is, or its summary as JSON."""
    if arguments["show"]["json"]:
        print_json(summary)
        return
    packed = f"{counted(summary['sequences'], 'sequence')} in {counted(summary['packs'], 'pack')}"
    typer.echo(f"{packed}; plan of {size(summary['bytes'])}: {summary['file']}")
    call = ", ".join(f"{name}={value!r}" for name, value in arguments["pack"].items() if name != "length")
    length = arguments["pack"]["length"]
    typer.echo(f"open it with sequences().pack({', '.join(each for each in (str(length), call) if each)}, cache=...)")


def _show(samples: PlanArguments, as_json: bool) -> None:
    begin = time.perf_counter()
    dataset = samples.dataset()
    summary: dict[str, Any] = {
        "samples": len(dataset),
        "fingerprint": dataset.plan.fingerprint,
        "chain": list(planned_samples(dataset).chain),
        "seconds": time.perf_counter() - begin,
        "plan_bytes": len(pickle.dumps(dataset.plan)),
    }
    if as_json:
        print_json(summary)
        return
    typer.echo(f"{counted(len(dataset), 'sample')} an epoch, planned in {summary['seconds']:.2f} s")
    typer.echo(f"plan sent to another process: {size(summary['plan_bytes'])}")
    typer.echo(f"fingerprint {dataset.plan.fingerprint}")
