"""`penstock plan`: what a plan serves, and what it asks of a storage on many hosts."""

from __future__ import annotations

import pickle
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.jobs import WorkOptions, show_in_parts, works_in_parts
from penstock.cli.options import Opening, Storage, Where, nbytes, pairs
from penstock.cli.planned_samples import PlannedSamples, pack_arguments
from penstock.cli.show import Json, print_json, size
from penstock.core.text import counted
from penstock.errors import ArgumentError, DataError
from penstock.simulation.drawing import draw_simulation
from penstock.simulation.measure import measure_storage
from penstock.simulation.orders import Order, order_name
from penstock.simulation.simulate import CACHE, HostSimulation, simulate
from penstock.simulation.storage import OBJECT_STORE, StorageConstants

HOSTS = "1,4,16,64,256,1024,4096"

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
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Samples of a batch of all hosts.")]
Simulate = Annotated[bool, typer.Option("--simulate", help="Simulate reading on many hosts.")]
Hosts = Annotated[str, typer.Option("--hosts", help="Numbers of hosts, at most the batch size.")]
StepSeconds = Annotated[float, typer.Option("--step", min=0, help="Seconds of a training step without waiting.")]
Blocks = Annotated[
    list[str] | None,
    typer.Option("--block", metavar="B,P", help="A shuffle(block=B, pool=P) to compare; can be repeated."),
]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Threads of a loader. Default: it chooses.")]
Work = Annotated[
    str | None,
    typer.Option(
        "--work",
        metavar="SECONDS|measure",
        help="Seconds that a thread of a loader works for a sample, such as to decode it. 'measure' loads some samples "
        "on this machine. Default: 0.",
    ),
]
Constants = Annotated[
    Path | None, typer.Option("--constants", help="A file of --measure. Default: Amazon S3 as documented.")
]
CacheBytes = Annotated[str | None, typer.Option("--cache-bytes", help="Cache of a host. Default: 64GiB.")]
PlanFolder = Annotated[
    Path | None, typer.Option("--cache", help="With --pack: a folder for the plan, where pack(cache=...) finds it.")
]
Picture = Annotated[
    Path | None, typer.Option("--picture", help="Draw the curves to this file, such as hosts.svg or hosts.png.")
]
Measure = Annotated[
    str | None, typer.Option("--measure", metavar="URL|PATH", help="Measure a storage by reading some hundred MB.")
]
Output = Annotated[Path | None, typer.Option("--output", help="Write the measured constants to this file.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the simulation.")]


@works_in_parts
def plan(
    locations: Locations = None,
    windows: Windows = None,
    pack: PackLength = None,
    pack_option: PackOptions = None,
    shares: Shares = None,
    batch_size: BatchSize = 256,
    run: Simulate = False,
    hosts: Hosts = HOSTS,
    step: StepSeconds = 0.1,
    block: Blocks = None,
    threads: Threads = None,
    work_seconds: Work = None,
    constants: Constants = None,
    cache_bytes: CacheBytes = None,
    cache: PlanFolder = None,
    picture: Picture = None,
    measure: Measure = None,
    output: Output = None,
    seed: Seed = 0,
    options: Opening = None,
    storage: Storage = None,
    where: Where = None,
    as_json: Json = False,
    *,
    work: WorkOptions,
) -> None:
    """Show the size of a plan, or simulate what many hosts ask of a storage.

    No values are read. --measure measures your storage. --simulate says how many bytes and requests hosts need, how
    long steps wait, and up to how many hosts a full shuffle is wise. Add --work measure if samples are decoded, such
    as pictures or video. --pack with --cache plans packs in parts.

    Example: penstock plan ./demos --windows 32 --simulate --hosts 1,4,16
    """
    simulated = {"--picture": picture, "--block": block, "--constants": constants, "--cache-bytes": cache_bytes}
    _refuse({**simulated, "--threads": threads, "--work": work_seconds}, unless=run, other="--simulate")
    _refuse({"--output": output}, unless=measure is not None, other="--measure")
    sampled = {"--windows": windows, "--pack": pack, "--pack-option": pack_option, "--shares": shares}
    stores = pairs(storage, "--storage")
    if measure is not None:
        if locations or run or cache is not None:
            raise ArgumentError("expected --measure with --output alone, got a dataset or what to do with one")
        _refuse(sampled, unless=False, other="a dataset")
        _measure(measure, stores, output, as_json)
        return
    if not locations:
        raise ArgumentError("expected a dataset to plan, or --measure, got neither")
    packing, parsed = pack_arguments(pack, pack_option), None if shares is None else _shares(shares)
    samples = PlannedSamples(locations, windows, packing, parsed, options, stores, where)
    if work.wanted or cache is not None:
        if run:
            raise ArgumentError("expected --simulate, or --pack with --cache, got both")
        _pack_in_parts(samples, cache, work, as_json)
        return
    if not run:
        _show(samples, as_json)
        return
    result = simulate(
        samples.dataset(),
        [many for many in _numbers(hosts, "--hosts") if many <= batch_size or hosts != HOSTS],
        batch_size=batch_size,
        storage=OBJECT_STORE if constants is None else StorageConstants.read(constants),
        step_seconds=step,
        orders=None if block is None else [None, *(_order(text) for text in block)],
        threads=threads,
        work=_seconds_of_work(work_seconds),
        cache_bytes=CACHE if cache_bytes is None else nbytes(cache_bytes),
        seed=seed,
    )
    _report(result, picture, as_json)


def _refuse(options: Mapping[str, object], *, unless: bool, other: str) -> None:
    """Raise an error for options that would have no effect."""
    given = [name for name, value in options.items() if value is not None]
    if given and not unless:
        raise ArgumentError(f"expected {' and '.join(given)} only with {other}")


def _pack_in_parts(samples: PlannedSamples, cache: Path | None, work: WorkOptions, as_json: bool) -> None:
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


def _texts(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(each) for each in _texts(text)]
    except ValueError:
        raise DataError(f"expected {option} as numbers such as 1,4,16, got {text!r}") from None


def _shares(text: str) -> list[float]:
    try:
        return [float(each) for each in _texts(text)]
    except ValueError:
        raise DataError(f"expected --shares as numbers such as 3,1, got {text!r}") from None


def _order(text: str) -> Order:
    numbers = _numbers(text, "--block")
    if len(numbers) != 2 or min(numbers) < 1:
        raise DataError(f"expected --block as a block and a pool such as 256,64, got {text!r}")
    return numbers[0], numbers[1]


def _seconds_of_work(text: str | None) -> float | None:
    """Parse `--work`: None is to measure."""
    if text == "measure":
        return None
    try:
        return float(text or 0)
    except ValueError:
        raise DataError(f"expected --work as seconds such as 0.002, or 'measure', got {text!r}") from None


def _measure(place: str, storage: dict[str, Any], output: Path | None, as_json: bool) -> None:
    measured = measure_storage(place, options=storage)
    if output is not None:
        measured.write(output)
    if as_json:
        print_json(asdict(measured))
        return
    table = Table("constant", "value", title=f"storage at {place}")
    table.add_row(
        "latency, median", f"{1e3 * measured.latency:.3g} ms, deviation of its logarithm {measured.spread:.2g}"
    )
    table.add_row("stragglers", f"{measured.stragglers:.2%}, {measured.straggle:.3g} times the latency")
    table.add_row("one connection", f"{measured.connection / 1e6:,.0f} MB/s")
    table.add_row("this host", f"{measured.host / 1e6:,.0f} MB/s")
    table.add_row("processor time of a request", f"{1e3 * measured.overhead:.3g} ms")
    Console().print(table)


def _show(samples: PlannedSamples, as_json: bool) -> None:
    begin = time.perf_counter()
    dataset = samples.dataset()
    summary: dict[str, Any] = {
        "samples": len(dataset),
        "fingerprint": dataset.plan.fingerprint,
        "chain": list(dataset.chain),
        "seconds": time.perf_counter() - begin,
        "plan_bytes": len(pickle.dumps(dataset.plan)),
    }
    if as_json:
        print_json(summary)
        return
    typer.echo(f"{counted(len(dataset), 'sample')} an epoch, planned in {summary['seconds']:.2f} s")
    typer.echo(f"plan sent to another process: {size(summary['plan_bytes'])}")
    typer.echo(f"fingerprint {dataset.plan.fingerprint}")


def _report(result: HostSimulation, picture: Path | None, as_json: bool) -> None:
    if picture is not None:
        draw_simulation(result, picture)
    if as_json:
        print_json({"figures": [asdict(each) for each in result.figures], "advice": result.advice()})
    else:
        _print(result)


def _print(result: HostSimulation) -> None:
    part = "" if result.epoch_bytes == result.nbytes else f", of which an epoch reads {size(result.epoch_bytes)}"
    title = f"{size(result.nbytes)}{part}; batches of {result.batch_size:,}, steps of {result.step_seconds:g} s"
    names = ("order", "hosts", "waiting", "requests/s", "MB/s", "read", "per byte")
    table = Table(*names, title=title, box=None, header_style="bold", pad_edge=False)
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.no_wrap = True
        column.justify = "right"
    for order in result.orders:
        for number, each in enumerate(result.of(order)):
            table.add_row(
                "" if number else order_name(order),
                f"{each.hosts:,}",
                f"{each.waiting:.1%}",
                f"{each.requests:,.0f}",
                f"{each.bandwidth / 1e6:,.0f}",
                f"{each.reads:,.3g} x",
                f"{each.amplification:.3g} x",
            )
    console = Console()
    console.print(table)
    for sentence in result.advice():
        console.print(sentence, highlight=False, soft_wrap=True)
    amount, wait = (max(values) for values in zip(*((e.error, e.waiting_error) for e in result.figures), strict=True))
    notes = [
        "waiting: part of the time that steps wait for data; read: how many times all hosts fetch what an epoch reads; "
        "per byte: read amplification, bytes fetched for each byte of a sample",
        f"standard errors up to {amount:.1%} of bytes and requests, and {wait:.1%} of the time for waiting",
        f"storage: {result.storage.source or 'a file'}",
    ]
    if any(each.work for each in result.figures):
        works = [(order_name(order), 1e3 * result.of(order)[0].work) for order in result.orders]
        notes.append("work of a thread for a sample: " + ", ".join(f"{name} {work:.3g} ms" for name, work in works))
    for note in notes:
        console.print(note, style="dim", highlight=False, soft_wrap=True)
