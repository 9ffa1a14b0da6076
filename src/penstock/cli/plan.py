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

from penstock.cli.jobs import WorkOptions, run_in_parts, works_in_parts
from penstock.cli.options import Opening, Storage, Where, chosen, chosen_dataset, nbytes, opened, pairs
from penstock.cli.show import Json, print_json, size
from penstock.core.text import counted
from penstock.data.map_dataset import MapDataset
from penstock.data.mix import mix
from penstock.errors import ArgumentError, DataError
from penstock.simulation.drawing import draw_simulation
from penstock.simulation.measure import measure_storage
from penstock.simulation.simulate import CACHE, HostSimulation, Order, order_name, simulate
from penstock.simulation.storage import OBJECT_STORE, StorageConstants

HOSTS = "1,4,16,64,256,1024,4096"


@works_in_parts
def plan(
    locations: Annotated[
        list[str] | None,
        typer.Argument(metavar="LOCATION...", help="A dataset, or several to mix: paths, URLs, ids or patterns."),
    ] = None,
    windows: Annotated[
        int | None, typer.Option("--windows", min=1, help="Samples are windows of so many steps.")
    ] = None,
    pack: Annotated[
        int | None, typer.Option("--pack", min=1, help="Samples are whole episodes, packed to rows of so many steps.")
    ] = None,
    shares: Annotated[str | None, typer.Option("--shares", help="Shares of several datasets, such as 3,1.")] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Samples of a batch of all hosts.")] = 256,
    run: Annotated[bool, typer.Option("--simulate", help="Simulate reading on many hosts.")] = False,
    hosts: Annotated[str, typer.Option("--hosts", help="Numbers of hosts, at most the batch size.")] = HOSTS,
    step: Annotated[float, typer.Option("--step", min=0, help="Seconds of a training step without waiting.")] = 0.1,
    block: Annotated[
        list[str] | None,
        typer.Option("--block", metavar="B,P", help="A shuffle(block=B, pool=P) to compare; can be repeated."),
    ] = None,
    constants: Annotated[
        Path | None, typer.Option("--constants", help="A file of --measure. Default: Amazon S3 as documented.")
    ] = None,
    cache_bytes: Annotated[str | None, typer.Option("--cache-bytes", help="Cache of a host. Default: 64GiB.")] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="With --pack: a folder for the plan, where pack(cache=...) finds it.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", help="Draw the curves to this file, such as hosts.svg or hosts.png.")
    ] = None,
    measure: Annotated[
        str | None, typer.Option("--measure", metavar="URL|PATH", help="Measure a storage by reading some hundred MB.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", help="Write the measured constants to this file.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the simulation.")] = 0,
    options: Opening = None,
    storage: Storage = None,
    where: Where = None,
    as_json: Json = False,
    *,
    work: WorkOptions,
) -> None:
    """Show the size of a plan, or simulate what many hosts ask of a storage.

    No values are read. --measure measures your storage. --simulate says how many bytes and requests hosts need, how
    long steps wait, and up to how many hosts a full shuffle is wise. --pack with --cache plans packs in parts.

    Example: penstock plan ./demos --windows 32 --simulate --hosts 1,4,16
    """
    simulated = {"--picture": picture, "--block": block, "--constants": constants, "--cache-bytes": cache_bytes}
    samples = {"--windows": windows, "--shares": shares}
    _refuse(simulated, unless=run, other="--simulate")
    _refuse({"--output": output}, unless=measure is not None, other="--measure")
    if measure is not None:
        if locations or run or pack is not None or cache is not None:
            raise ArgumentError("expected --measure with --output alone, got a dataset or what to do with one")
        _refuse(samples, unless=False, other="a dataset")
        _measure(measure, pairs(storage, "--storage"), output, as_json)
        return
    if not locations:
        raise ArgumentError("expected a dataset to plan, or --measure, got neither")
    if work.wanted or cache is not None:
        if run:
            raise ArgumentError("expected --simulate, or --pack with --cache, got both")
        _refuse(samples, unless=False, other="samples that are not packed")
        _pack_in_parts(locations, pack, cache, options, pairs(storage, "--storage"), where, work, as_json)
        return
    begin = time.perf_counter()
    dataset = _dataset(locations, windows, pack, shares, options, pairs(storage, "--storage"), where)
    if not run:
        _show(dataset, time.perf_counter() - begin, as_json)
        return
    result = simulate(
        dataset,
        [many for many in _numbers(hosts, "--hosts") if many <= batch_size or hosts != HOSTS],
        batch_size=batch_size,
        storage=OBJECT_STORE if constants is None else StorageConstants.read(constants),
        step_seconds=step,
        orders=None if block is None else [None, *(_order(text) for text in block)],
        cache_bytes=CACHE if cache_bytes is None else nbytes(cache_bytes),
        seed=seed,
    )
    if picture is not None:
        draw_simulation(result, picture)
    if as_json:
        print_json({"figures": [asdict(each) for each in result.figures], "advice": result.advice()})
    else:
        _print(result)


def _refuse(options: Mapping[str, object], *, unless: bool, other: str) -> None:
    """Raise an error for options that would have no effect."""
    given = [name for name, value in options.items() if value is not None]
    if given and not unless:
        raise ArgumentError(f"expected {' and '.join(given)} only with {other}")


def _dataset(
    locations: list[str],
    windows: int | None,
    pack: int | None,
    shares: str | None,
    options: list[str] | None,
    storage: dict[str, Any],
    where: str | None,
) -> MapDataset:
    """The samples, in the order in which they are stored."""
    if windows is not None and pack is not None:
        raise ArgumentError("expected --windows or --pack, got both")
    if shares is not None and len(locations) == 1:
        raise ArgumentError(f"expected --shares with several datasets, got {locations}")
    parts: list[MapDataset] = []
    for location in locations:
        episodes = chosen(opened(location, options, storage=storage)[1], None, where)
        if pack is not None:
            parts.append(episodes.sequences().pack(pack, overlong="split"))
        else:
            parts.append(episodes.samples() if windows is None else episodes.windows(windows))
    if len(parts) == 1:
        return parts[0]
    return mix(parts, None if shares is None else _shares(shares), union=True)


def _pack_in_parts(
    locations: list[str],
    pack: int | None,
    cache: Path | None,
    options: list[str] | None,
    storage: dict[str, Any],
    where: str | None,
    work: WorkOptions,
    as_json: bool,
) -> None:
    """Plan the packs of one dataset in parts, and write the plan to the folder."""
    if pack is None or cache is None or len(locations) != 1:
        raise ArgumentError(f"expected one dataset with --pack and --cache to plan in parts, got {locations}")
    chosen = chosen_dataset(locations[0], options, storage=storage, where=where)
    arguments = {
        **chosen.arguments(),
        "pack": {"length": pack, "overlong": "split"},
        "folder": str(cache.absolute()),
        "show": {"json": as_json},
    }
    present(run_in_parts("pack", arguments, work, quiet=as_json), arguments)


def present(summary: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    """Print what was packed and where the plan is, or its summary as JSON."""
    if arguments["show"]["json"]:
        print_json(summary)
        return
    packed = f"{counted(summary['sequences'], 'sequence')} in {counted(summary['packs'], 'pack')}"
    typer.echo(f"{packed}; plan of {size(summary['bytes'])}: {summary['file']}")
    call = ", ".join(f"{name}={value!r}" for name, value in arguments["pack"].items() if name != "length")
    typer.echo(f"open it with sequences().pack({arguments['pack']['length']}, {call}, cache=...)")


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
    Console().print(table)


def _show(dataset: MapDataset, seconds: float, as_json: bool) -> None:
    summary: dict[str, Any] = {
        "samples": len(dataset),
        "fingerprint": dataset.plan.fingerprint,
        "chain": list(dataset.chain),
        "seconds": seconds,
        "plan_bytes": len(pickle.dumps(dataset.plan)),
    }
    if as_json:
        print_json(summary)
        return
    typer.echo(f"{counted(len(dataset), 'sample')} an epoch, planned in {seconds:.2f} s")
    typer.echo(f"plan sent to another process: {size(summary['plan_bytes'])}")
    typer.echo(f"fingerprint {dataset.plan.fingerprint}")


def _print(result: HostSimulation) -> None:
    title = f"{size(result.nbytes)}, batches of {result.batch_size:,}, steps of {result.step_seconds:g} s"
    table = Table("order", "hosts", "amplification", "data read", "requests/s", "MB/s", "waiting", title=title)
    table.columns[0].no_wrap = True
    for order in result.orders:
        for each in result.of(order):
            table.add_row(
                order_name(order),
                f"{each.hosts:,}",
                f"{each.amplification:.3g}",
                f"{each.reads:,.3g} times",
                f"{each.requests:,.0f}",
                f"{each.bandwidth / 1e6:,.0f}",
                f"{each.waiting:.1%}",
            )
        table.add_section()
    console = Console()
    console.print(table)
    amount, wait = (max(values) for values in zip(*((e.error, e.waiting_error) for e in result.figures), strict=True))
    console.print(
        f"amplification: bytes fetched for each byte of a sample; standard errors up to {amount:.1%} of bytes"
    )
    console.print(
        f"and requests, and {wait:.1%} of the time for waiting. Constants: {result.storage.source or 'a file'}"
    )
    for sentence in result.advice():
        console.print(sentence, highlight=False)
