"""`penstock simulate`: what a plan asks of a storage on many hosts; and constants of a storage, measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.options import Opening, Storage, Where, nbytes, pairs
from penstock.cli.plan import Locations, PackLength, PackOptions, Shares, Windows
from penstock.cli.plan_arguments import PlanArguments, numbers, pack_arguments
from penstock.cli.show import Json, print_json, size
from penstock.errors import ArgumentError, DataError
from penstock_cluster.simulation.drawing import draw_simulation
from penstock_cluster.simulation.measure import measure_storage
from penstock_cluster.simulation.orders import Order, order_name
from penstock_cluster.simulation.simulate import CACHE, HostSimulation
from penstock_cluster.simulation.simulate import simulate as simulated
from penstock_cluster.simulation.storage import OBJECT_STORE, StorageConstants

HOSTS = "1,4,16,64,256,1024,4096"

BatchSize = Annotated[int, typer.Option("--batch-size", min=1, help="Samples of a batch of all hosts.")]
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
Picture = Annotated[
    Path | None, typer.Option("--picture", help="Draw the curves to this file, such as hosts.svg or hosts.png.")
]
Measure = Annotated[
    str | None, typer.Option("--measure", metavar="URL|PATH", help="Measure a storage by reading some hundred MB.")
]
Output = Annotated[Path | None, typer.Option("--output", help="Write the measured constants to this file.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the simulation.")]


def simulate(
    locations: Locations = None,
    windows: Windows = None,
    pack: PackLength = None,
    pack_option: PackOptions = None,
    shares: Shares = None,
    batch_size: BatchSize = 256,
    hosts: Hosts = HOSTS,
    step: StepSeconds = 0.1,
    block: Blocks = None,
    threads: Threads = None,
    work_seconds: Work = None,
    constants: Constants = None,
    cache_bytes: CacheBytes = None,
    picture: Picture = None,
    measure: Measure = None,
    output: Output = None,
    seed: Seed = 0,
    options: Opening = None,
    storage: Storage = None,
    where: Where = None,
    as_json: Json = False,
) -> None:
    """Simulate what reading on many hosts asks of a storage, and how long steps wait.

    No values are read. It says how many bytes and requests hosts need, and up to how many hosts a full shuffle is
    wise. --measure measures your storage. Add --work measure if samples are decoded, such as pictures or video.

    Example: penstock simulate ./demos --windows 32 --hosts 1,4,16
    """
    stores = pairs(storage, "--storage")
    if measure is not None:
        of_data = {"LOCATION": locations or None, "--windows": windows, "--pack": pack, "--shares": shares}
        of_data |= {"--picture": picture, "--block": block, "--constants": constants, "--cache-bytes": cache_bytes}
        _refuse({**of_data, "--pack-option": pack_option, "--threads": threads, "--work": work_seconds})
        _measure(measure, stores, output, as_json)
        return
    if output is not None:
        raise ArgumentError("expected --output only with --measure")
    if not locations:
        raise ArgumentError("expected a dataset to simulate, or --measure, got neither")
    packing, parsed = pack_arguments(pack, pack_option), None if shares is None else numbers(shares, "--shares", float)
    samples = PlanArguments(locations, windows, packing, parsed, options, stores, where)
    result = simulated(
        samples.dataset(),
        [many for many in numbers(hosts, "--hosts", int) if many <= batch_size or hosts != HOSTS],
        batch_size=batch_size,
        storage=OBJECT_STORE if constants is None else StorageConstants.read(constants),
        step_seconds=step,
        orders=None if block is None else [None, *(_order(text) for text in block)],
        threads=threads,
        work=_seconds_of_work(work_seconds),
        cache_bytes=CACHE if cache_bytes is None else nbytes(cache_bytes),
        seed=seed,
    )
    if picture is not None:
        draw_simulation(result, picture)
    if as_json:
        print_json({"figures": [asdict(each) for each in result.figures], "advice": result.advice()})
    else:
        _print(result)


def _refuse(options: Mapping[str, object]) -> None:
    """Raise an error for options that would have no effect."""
    if useless := [name for name, value in options.items() if value is not None]:
        raise ArgumentError(f"expected --measure with --output alone, got {' and '.join(useless)}")


def _order(text: str) -> Order:
    order = numbers(text, "--block", int)
    if len(order) != 2 or min(order) < 1:
        raise DataError(f"expected --block as a block and a pool such as 256,64, got {text!r}")
    return order[0], order[1]


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
