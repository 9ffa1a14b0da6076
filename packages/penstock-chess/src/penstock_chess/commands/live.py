"""`penstock live`: load training games from a growing folder; show rates and the bottleneck."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from penstock.cli.show import Fitted, Json, print_json
from penstock.errors import DataError
from penstock.files import write_atomic
from penstock_chess.lczero import DataLoader, DataLoaderConfig, load_config
from penstock_chess.live import chess_pipeline
from penstock_chess.rescore import Rescorer
from penstock_live.endpoint import MetricsEndpoint
from penstock_live.pipeline import LivePipeline
from penstock_live.stage_table import LookWindow, as_json, table

SHOWN = 1.0  # seconds between two updates of the table
LOOK = 0.1  # seconds between two counts of new games
Directory = Annotated[
    str | None, typer.Argument(metavar="DIR", help="The folder of games; replaces the folder of --config.")
]
Config = Annotated[
    Path | None, typer.Option("--config", help="A configuration of stages, in the format of Leela Chess Zero's loader.")
]
Output = Annotated[str | None, typer.Option("--output", help="The output of --config to read.")]
Bench = Annotated[
    float | None,
    typer.Option("--bench", metavar="SECONDS", help="Stop this long after the first batch, and print rates."),
]
Batches = Annotated[int | None, typer.Option("--batches", min=1, help="Stop after this number of batches.")]
Once = Annotated[bool, typer.Option("--once", help="Read the present games once; do not wait for new ones.")]
Window = Annotated[int | None, typer.Option("--window", help="Number of newest games to sample from.")]
Rate = Annotated[float | None, typer.Option("--rate", help="Fraction of a game's positions sampled at each use.")]
Count = Annotated[int | None, typer.Option("--count", help="Number of a game's positions sampled at each use.")]
Reservoir = Annotated[int | None, typer.Option("--reservoir", help="Positions in the shuffle buffer.")]
Ahead = Annotated[int | None, typer.Option("--ahead", help="Later uses of a game to keep positions for.")]
BatchSize = Annotated[int | None, typer.Option("--batch-size", help="Positions in a batch.")]
Threads = Annotated[
    int | None, typer.Option("--threads", help="Threads of each stage. 0, only with --once, reads in the main thread.")
]
MaxLost = Annotated[
    str | None,
    typer.Option(
        "--max-lost", help="Stop above this limit of torn or failed games: a number, a fraction such as 0.1, or none."
    ),
]
Rescore = Annotated[bool, typer.Option("--rescore", help="Check games, and fill short-term targets.")]
Validate = Annotated[bool, typer.Option("--validate", help="Leave out games that cannot have been played.")]
Seed = Annotated[int, typer.Option("--seed", help="The seed of the order.")]
Anchor = Annotated[str | None, typer.Option("--anchor", help="Count the games after this key.")]
WaitNew = Annotated[
    int | None, typer.Option("--wait-new", min=1, help="Only wait until this number of games came after the anchor.")
]
Journal = Annotated[
    Path | None, typer.Option("--journal", help="Record how the window moves: a file, or with --config a folder.")
]
State = Annotated[
    Path | None, typer.Option("--state", help="Resume from this file if it exists, and write it at the end.")
]
MetricsPort = Annotated[
    int | None, typer.Option("--metrics-port", help="Serve figures for Prometheus and penstock top.")
]


def live(
    directory: Directory = None,
    config: Config = None,
    output: Output = None,
    bench: Bench = None,
    batches: Batches = None,
    once: Once = False,
    window: Window = None,
    rate: Rate = None,
    count: Count = None,
    reservoir: Reservoir = None,
    ahead: Ahead = None,
    batch_size: BatchSize = None,
    threads: Threads = None,
    rescore: Rescore = False,
    validate: Validate = False,
    max_lost: MaxLost = None,
    seed: Seed = 0,
    anchor: Anchor = None,
    wait_new: WaitNew = None,
    journal: Journal = None,
    state: State = None,
    metrics_port: MetricsPort = None,
    as_json_: Json = False,
) -> None:
    """Load training games from a growing folder, and show the speed of each stage.

    Without --bench and --batches, it runs until you interrupt it, or with --once until all games are read.

    Example: penstock live ./games --bench 10 --window 250000 --count 1
    """
    given = {"window": window, "rate": rate, "count": count, "reservoir": reservoir, "batch_size": batch_size}
    given |= {"threads": threads, "ahead": ahead}
    set_options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if rescore:
        set_options["rescorer"] = Rescorer()
    if validate:
        set_options["validate"] = True
    if max_lost is not None:
        set_options["max_lost"] = _limit(max_lost)
    run = {"seed": seed, "follow": not once, "journal": journal}
    pipeline = _pipeline(directory, config, output, set_options, run)
    with _serving(pipeline, metrics_port) as endpoint:
        if anchor is not None:
            for pool in pipeline.pools:
                pool.set_anchor(anchor)
        if wait_new is not None:
            _wait(pipeline, wait_new, as_json=as_json_)
            return
        _load(pipeline, state)
        console = Console(stderr=as_json_)
        if endpoint is not None:
            console.print(f"figures at {endpoint.url}; watch them with: penstock top {endpoint.port}", highlight=False)
        before, after, first = _run(pipeline, console, bench, batches)
        _save(pipeline, state)
    _report(pipeline, before, after, first, as_json_, console)


def _pipeline(
    directory: str | None,
    config: Path | None,
    output: str | None,
    set_options: Mapping[str, Any],
    run: Mapping[str, Any],
) -> LivePipeline:
    if config is None:
        if directory is None or output is not None:
            raise DataError("expected a folder of games, or --config (and only then --output)")
        return chess_pipeline(directory, **set_options, **run)
    if set_options:
        raise DataError(f"expected all options of stages in {config}, got also {sorted(set_options)}; move them there")
    loader = DataLoader(_moved(load_config(config.read_text("utf-8")), directory), **run)
    name = next(iter(loader.pipelines)) if output is None else output
    if name not in loader.pipelines:
        raise DataError(f"expected --output to be one of {list(loader.pipelines)}, got {name!r}")
    for other, pipeline in loader.pipelines.items():
        if other != name:
            pipeline.stop()
    return loader.pipelines[name]


def _limit(text: str) -> int | float | None:
    """Parse a number of games, a fraction of them, or None."""
    if text == "none":
        return None
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError as error:
        raise DataError(f"expected --max-lost as a number, a fraction or 'none', got {text!r}") from error


def _moved(config: DataLoaderConfig, directory: str | None) -> DataLoaderConfig:
    """Return the configuration, with its folder replaced if one is given."""
    if directory is None:
        return config
    stages = tuple(
        replace(stage, file_path_provider=replace(stage.file_path_provider, directory=directory))
        if stage.file_path_provider is not None
        else stage
        for stage in config.stage
    )
    return replace(config, stage=stages)


@contextlib.contextmanager
def _serving(pipeline: LivePipeline, port: int | None) -> Generator[MetricsEndpoint | None]:
    """Run the pipeline within the block, and serve its figures over HTTP if a port is given."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(pipeline)
        yield None if port is None else stack.enter_context(MetricsEndpoint(pipeline.metrics, port))


def _run(
    pipeline: LivePipeline, console: Console, bench: float | None, batches: int | None
) -> tuple[Mapping[str, Any], Mapping[str, Any], float]:
    """Load batches up to the limit; return figures from before and after, and the seconds to the first batch."""
    begun = time.monotonic()
    quiet = bench is not None or not console.is_terminal
    before = shown = pipeline.metrics()
    window = LookWindow()
    window.add(shown)
    first = 0.0
    with contextlib.ExitStack() as stack:
        picture = None if quiet else stack.enter_context(Live(console=console, auto_refresh=False, transient=True))
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        for n, _ in enumerate(pipeline, 1):
            now = time.monotonic()
            if n == 1:
                first = now - begun
                before = pipeline.metrics()
            if picture is not None and now - shown["time"] >= SHOWN:
                shown = pipeline.metrics()
                picture.update(Fitted(table(window.add(shown), shown)), refresh=True)
            if n == batches or (bench is not None and now - begun - first >= bench):
                break
    return before, pipeline.metrics(), first


def _wait(pipeline: LivePipeline, wanted: int, *, as_json: bool) -> None:
    """Wait until `wanted` games came after the anchor; print the newest key, which is the next anchor."""
    pipeline.start()
    with contextlib.suppress(KeyboardInterrupt):
        while _since_anchor(pipeline) < wanted and pipeline.options.follow:
            time.sleep(LOOK)
    newest = max(pool.newest for pool in pipeline.pools)
    if as_json:
        since = _since_anchor(pipeline)
        print_json({"anchor": pipeline.pool.anchor(), "newest": newest, "chunks_since_anchor": since})
    else:
        typer.echo(newest)
    if _since_anchor(pipeline) < wanted:
        raise typer.Exit(1)


def _since_anchor(pipeline: LivePipeline) -> int:
    return sum(pool.chunks_since_anchor for pool in pipeline.pools)


def _load(pipeline: LivePipeline, state: Path | None) -> None:
    """Load a saved state if the file exists."""
    if state is not None and state.exists():
        try:
            pipeline.load_state_dict(json.loads(state.read_text("utf-8")))
        except ValueError as error:
            raise DataError(f"expected a state of penstock live in {state}, got something else: {error}") from error


def _save(pipeline: LivePipeline, state: Path | None) -> None:
    """Write the state as a whole file, atomically."""
    if state is not None:
        write_atomic(state, json.dumps(pipeline.state_dict(), default=_listed).encode(), durable="file")


def _listed(array: Any) -> Any:
    return array.tolist()


def _report(
    pipeline: LivePipeline,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    first: float,
    as_json_: bool,
    console: Console,
) -> None:
    """Print rates, and the reasons for unusable games."""
    counts, examples = pipeline.failures()
    summary = {"first_batch_s": first, **as_json(before, after), "failures": counts}
    if as_json_:
        print_json({**summary, "examples": [list(example) for example in examples]})
        return
    speed = f"{summary['batches_per_s']:,.1f} batches/s, {summary['frames_per_s']:,.0f} frames/s"
    console.print(Fitted(table(before, after, title=f"{speed}; first batch after {first:.2f} s")))
    for reason, n in counts.items():
        name, _, message = next(example for example in reversed(examples) if example[1] == reason)
        console.print(f"{n:,} chunks or files could not be used: {reason}, the last {name}: {message}", highlight=False)
