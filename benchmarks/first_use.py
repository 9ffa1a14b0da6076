"""CPU seconds of first calls: in a clone where no kernel is compiled yet, and with compiled kernels.

The table has the goal of each case with compiled kernels, which wheels and all later processes of a clone have.

    python benchmarks/first_use.py [--only windows] [--kernels 10] [--wheels .build/all/bin/python]

Each case runs in a new process on one core, with an empty cache of kernels (`NUMBA_CACHE_DIR`). "fresh" is the CPU time
of the first call with that cache, all threads together, with the import of numba. "cached" is the CPU time of the next
process, which loads the kernels. Python's own bytecode is there, as pip writes it when it installs a package.
"numba" is the CPU time of numba alone, which imports itself and compiles the same kernels for the same types, and
"reading" the part of "fresh" that numba takes for types and LLVM's text, before any machine code is made.
"wheel" is the first call with the interpreter of `--wheels`, where the wheels of `make dist` are, with an empty cache.
`--kernels N` lists the N functions that cost most to compile, without what they call.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from compileall import compile_dir
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from figures import record
from raster_config import HISTORY, config

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"


def windows() -> None:
    import penstock

    columns = {"observations": np.zeros((1100, 4), "float32"), "actions": np.zeros(1000, "int64")}
    data = penstock.from_arrays(columns, lengths=[10] * 100)
    next(iter(data.windows(4, pad="zero").shuffle(seed=0).loader(batch_size=256)))


def pack() -> None:
    import penstock

    lengths = np.random.default_rng(0).integers(1, 50, 100).tolist()
    data = penstock.from_arrays({"actions": np.zeros(sum(lengths), "int64")}, lengths=lengths)
    next(iter(data.sequences().shuffle(seed=0).pack(64).loader(batch_size=8)))


def mix() -> None:
    import penstock

    sets = [penstock.from_arrays({"actions": np.zeros(100, "int64")}, lengths=[10] * 10) for _ in range(2)]
    mixed = penstock.mix([data.windows(4).shuffle(seed=0) for data in sets], weights=[0.7, 0.3])
    next(iter(mixed.loader(batch_size=8)))


def raster(map_type: str) -> None:
    from penstock_driving.formats.l5kit.source import L5KitSource
    from penstock_driving.rasterize import RasterOptions, Scenes, Views, build_rasterizer

    outside = RasterOptions(outside="pad") if "satellite" in map_type else None
    drawn = build_rasterizer(config(map_type), GOLDEN / "l5kit", outside)
    with L5KitSource(GOLDEN / "l5kit" / "single.zarr") as source:
        scenes = Scenes.of(source.frames[:], source.agents[:], source.tl_faces[:])
        frames = np.arange(20, 24)
        drawn.rasterize_batch(scenes, Views.of_ego(scenes, frames[:, None] - np.arange(HISTORY + 1)))


def chess(*, rescored: bool) -> None:
    from penstock_chess.live import chess_pipeline
    from penstock_chess.rescore import Rescorer

    options: dict[str, Any] = {"rescorer": Rescorer()} if rescored else {}
    with chess_pipeline(GOLDEN / "lc0" / "tar", rate=1, reservoir=100, batch_size=64, **options) as batches:
        next(batches)


def validate() -> None:
    from penstock_chess.formats.lc0 import open_chunks
    from penstock_chess.validate import validate as check

    for path in sorted((GOLDEN / "lc0" / "tar").rglob("*")):
        chunks = open_chunks(path) if path.is_file() else None
        if chunks is not None:
            check(np.array(chunks.load(0)))
            return


def episodes() -> Any:
    """Return a dataset of 100 episodes of 10 steps: goals, actions and rewards."""
    import penstock

    rng = np.random.default_rng(0)
    goals = {name: rng.random((1100, 3), np.float32) for name in ("observation", "achieved_goal", "desired_goal")}
    columns = {"observations": goals, "actions": rng.random((1000, 2)), "rewards": rng.random(1000)}
    return penstock.from_arrays(columns, lengths=[10] * 100)


def returns() -> None:
    import penstock

    data = episodes().with_column("returns", penstock.columns.returns_to_go())
    next(iter(data.steps().shuffle(seed=0).loader(batch_size=8)))


def goals() -> None:

    next(iter(episodes().steps().goals(column="observations/achieved_goal").shuffle(seed=0).loader(batch_size=8)))


def weighted() -> None:

    next(iter(episodes().steps().weighted("rewards", abs).shuffle(seed=0).loader(batch_size=8)))


def normalized() -> None:
    import penstock

    data = episodes()
    scale = penstock.normalize(penstock.statistics(data), ["observations/observation", "actions"])
    next(iter(data.steps().map(scale).loader(batch_size=8)))


def replay(**options: Any) -> None:
    import penstock

    spec = penstock.Spec({"observations": penstock.Field(np.dtype("f4"), (3,), "boundary")})
    buffer = penstock.Replay(None, 1000, **options)
    for _ in range(3):
        buffer.write(penstock.Episode(spec, {"observations": np.zeros((50, 3), "f4")}))
    batch = buffer.sample(8)
    if options:
        buffer.update(batch.ticket, np.ones(8))
        buffer.sample(8)


def prioritized() -> None:
    import penstock

    replay(sampler=penstock.replay.PrioritizedSampler())


def opened(path: str) -> None:
    """The first shuffled batch of the dataset in a folder, after a deep check."""
    import penstock

    penstock.check(GOLDEN / path, deep=True)
    next(iter(penstock.open(GOLDEN / path).steps().shuffle(seed=0).loader(batch_size=4)))


def converted() -> None:
    import penstock

    with tempfile.TemporaryDirectory() as folder:
        penstock.convert(episodes(), Path(folder) / "data")


CASES: dict[str, tuple[str, Callable[[], None], float]] = {
    "windows": ("first shuffled batch of windows", windows, 0.25),
    "pack": ("first batch of shuffled packs", pack, 0.25),
    "mix": ("first batch of a mix", mix, 0.5),
    "semantic": ("first semantic rasters", lambda: raster("py_semantic"), 0.5),
    "satellite": ("first satellite rasters", lambda: raster("py_satellite"), 0.5),
    "frames": ("first batch of chess frames", lambda: chess(rescored=False), 0.5),
    "rescored": ("first batch of rescored chess frames", lambda: chess(rescored=True), 0.3),
    "returns": ("first batch with returns", returns, 0.5),
    "goals": ("first batch with goals", goals, 0.5),
    "weighted": ("first weighted batch", weighted, 0.5),
    "normalized": ("first statistics, and a normalized batch", normalized, 0.3),
    "replay": ("first batch of a replay", replay, 0.5),
    "prioritized": ("first prioritized batches of a replay", prioritized, 0.5),
    "minari": ("first check and batch of Minari data", lambda: opened("minari/0.5.4/hdf5-nested-v0"), 0.5),
    "rlds": ("first check and batch of RLDS data", lambda: opened("rlds/tfrecord/toy_arm"), 0.5),
    "array_record": ("first check and batch of an ArrayRecord", lambda: opened("rlds/array_record/toy_arm"), 0.5),
    "pictures": ("first check and batch of PNG pictures", lambda: opened("lerobot/v3_image"), 0.5),
    "video": ("first check and batch of video", lambda: opened("lerobot/v3_video"), 0.5),
    "converted": ("first conversion with a certificate", converted, 0.5),
    "validate": ("first check of a chess game", validate, 0.5),
}


def compile_times() -> tuple[defaultdict[str, float], Counter[str]]:
    """CPU seconds, without what it calls, and how often, for each function that numba compiles from now on."""
    from numba.core import event

    own = defaultdict[str, float](float)
    count: Counter[str] = Counter()
    open_calls: list[list[float]] = []

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            open_calls.append([time.thread_time(), 0.0])

        def on_end(self, event: Any) -> None:
            begun, inner = open_calls.pop()
            spent = time.thread_time() - begun
            if open_calls:
                open_calls[-1][1] += spent
            function = event.data["dispatcher"].py_func
            name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
            own[name] += spent - inner
            count[name] += 1

    event.register("numba:compile", Listener())
    return own, count


def compiled_kernels() -> list[tuple[str, str]]:
    """Return names and signatures of the kernels in the cache."""
    from penstock.kernels import jit, library

    every = ((kernel, text) for kernel in jit.KERNELS.values() for text in kernel.signatures)
    return [(kernel.name, text) for kernel, text in every if library.is_compiled(kernel, text)]


def compiler_seconds(compiled: list[tuple[str, str]], *, whole: bool) -> float:
    """CPU seconds for numba's import and these kernels: compiled by numba itself, or up to LLVM's text as here."""
    from penstock.kernels import jit
    from penstock.kernels.linking import Linker

    for name, _ in compiled:
        import_module(name.rpartition(".")[0])
    begun = time.process_time()
    import numba

    from penstock.kernels import compiler, reading

    linker = Linker({})
    for name, signature in compiled:
        kernel = jit.KERNELS[name]
        if whole:
            decorate: Any = numba.njit(nogil=True, **compiler.OPTIONS)
            decorate(linker.linked(kernel.function)).compile(compiler.types_of(signature))
        else:
            reading.read(kernel, signature)
    return time.process_time() - begun


def child(name: str, kernels: int, compiler: str) -> None:
    """Run a case in this process, and print its figures as JSON."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    if compiler:
        seconds = compiler_seconds(json.loads(sys.stdin.read()), whole=compiler == "numba")
        print(json.dumps({"seconds": seconds}))
        return
    own, count = compile_times() if kernels else ({}, {})
    begun = time.process_time()
    CASES[name][1]()
    spent = time.process_time() - begun
    costly = sorted(own, key=lambda function: -own[function])[:kernels]
    listed = [(function, own[function], count[function]) for function in costly]
    print(json.dumps({"seconds": spent, "kernels": listed, "compiled": compiled_kernels()}))


def run(name: str, folder: str, *options: str, python: str = sys.executable, given: object = None) -> dict[str, Any]:
    """The figures of a case, measured in a new process with this cache of kernels."""
    command = [python, __file__, "--case", name, *options]
    environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
    done = subprocess.run(
        command, env=environment, check=True, input=json.dumps(given), stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--kernels", type=int, default=0, metavar="N")
    parser.add_argument("--wheels", metavar="PYTHON", help="an interpreter with the wheels, to measure as well")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--compiler", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        child(options.case, options.kernels, options.compiler)
        return
    print(f"{'CPU seconds':<40} {'fresh':>6} {'numba':>6} {'reading':>7} {'cached':>7} {'goal':>5} {'wheel':>6}")
    package = find_spec("penstock")
    assert package is not None
    assert package.origin is not None
    compile_dir(Path(package.origin).parent, quiet=1)
    for name in options.only or CASES:
        title, _, goal = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            fresh, cached = run(name, folder, "--kernels", str(options.kernels)), run(name, folder)
            numba, reading = (
                run(name, folder, "--compiler", each, given=fresh["compiled"])["seconds"]
                for each in ("numba", "reading")
            )
        row = f"{title:<40} {fresh['seconds']:6.2f} {numba:6.2f} {reading:7.2f} {cached['seconds']:7.2f} {goal:5.2f}"
        record(name, fresh["seconds"], "s")
        record(f"{name}.numba", numba, "s")
        record(f"{name}.reading", reading, "s")
        record(f"{name}.cached", cached["seconds"], "s")
        if options.wheels:
            with tempfile.TemporaryDirectory() as folder:
                wheel = run(name, folder, python=options.wheels)
            row += f" {wheel['seconds']:6.2f}"
            record(f"{name}.wheel", wheel["seconds"], "s")
        print(row, flush=True)
        for function, seconds, count in fresh["kernels"]:
            print(f"    {seconds:6.2f}  {count:2} x {function}")


if __name__ == "__main__":
    main()
