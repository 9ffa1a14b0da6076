"""One stream, killed and reshaped: the data, the legs, the comparison. Each rival brings a `Pipeline`.

The scenario is kind: an epoch at the wanted rates uses every sample exactly once, and every leg ends
on a whole number of batches for 1, 8, 5 and 12 ranks, so that no rule about remainders or exhausted datasets matters.
A global step counts as right when it holds the reference's samples in any order, over any rank.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

SIZES = (2304, 1728, 1152, 576)
WEIGHTS = (0.4, 0.3, 0.2, 0.1)
BATCH = 16
GLOBAL_BATCH = 240  # for those who ask for one global batch: 240 = 8 x 30 = 5 x 48 = 12 x 20
CAPACITY = 32
SEED = 7
DATASET = 10_000  # sample i of dataset d travels as the integer d * DATASET + i
LENGTHS = [np.random.default_rng(d).integers(1, 17, size) for d, size in enumerate(SIZES)]
RESHAPE = ((1, 20), (8, 8), (5, 12), (12, None))
RESHAPE_CONSTANT = ((1, 4), (8, 6), (5, 6), (12, None))
SAME = ((8, 8), (8, 12), (8, None))
SAME_CONSTANT = ((8, 4), (8, 6), (8, None))
LIMIT_S = 90

Step = list[list[int]]  # [rank][sample]


@dataclass(frozen=True)
class Leg:
    """What one start of the job consumed, and the state it left: of all ranks together."""

    steps: list[Step]
    state: bytes
    resume_ms: float


Pipeline = Callable[[int, bytes | None, int | None], Leg]  # (ranks, state, steps or to the end)


@dataclass
class Trace:
    steps: list[Step] = field(default_factory=list)
    state_bytes: int = 0
    resume_ms: float = 0.0

    def add(self, leg: Leg, *, resumed: bool) -> None:
        self.steps += leg.steps
        self.state_bytes = max(self.state_bytes, len(leg.state))
        if resumed:
            self.resume_ms = max(self.resume_ms, leg.resume_ms)


def samples(dataset: int) -> list[int]:
    return [dataset * DATASET + i for i in range(SIZES[dataset])]


def length(sample: int) -> int:
    return int(LENGTHS[sample // DATASET][sample % DATASET])


def ranks_in_turn(ranks: list[Any]) -> list[Step]:
    """The per-rank lists of batches as global steps; a rank that ends early has no share in the last ones."""
    return [[rank[i] for rank in ranks if i < len(rank)] for i in range(max(map(len, ranks), default=0))]


def drive(run: Pipeline, legs: Sequence[tuple[int, int | None]], *, kill: bool = True) -> Trace:
    """All legs, each from the state of the one before; within the second, a kill after its checkpoint."""
    trace, state = Trace(), None
    for i, (world, steps) in enumerate(legs):
        if kill and i == 1 and steps is not None:
            lost_work = random.Random(SEED).randint(1, 3)
            saved = run(world, state, steps - 3)
            trace.add(saved, resumed=True)
            run(world, saved.state, lost_work)  # killed: the model goes back to the checkpoint, this never happened
            leg = run(world, saved.state, 3)
        else:
            leg = run(world, state, steps)
        trace.add(leg, resumed=i > 0)
        state = leg.state
    return trace


def dealt(run: Pipeline) -> Pipeline:
    """No sharding: every rank runs the whole stream and keeps each `world`-th batch, at `world` times the work."""

    def whole(world: int, state: bytes | None, steps: int | None) -> Leg:
        leg = run(1, state, None if steps is None else steps * world)
        batches = [step[0] for step in leg.steps]
        return Leg([batches[i : i + world] for i in range(0, len(batches), world)], leg.state, leg.resume_ms)

    return whole


def flat(steps: list[Step]) -> list[int]:
    return [sample for step in steps for rank in step for sample in rank]


def compare(trace: Trace, reference: Trace) -> tuple[str, int, int]:
    """Verdict, lost, repeated."""
    got, wanted = flat(trace.steps), flat(reference.steps)
    lost = sum((Counter(wanted) - Counter(got)).values())
    repeated = sum((Counter(got) - Counter(wanted)).values())
    if lost or repeated:
        return " / ".join(f"{what} {n}" for what, n in (("repeats", repeated), ("loses", lost)) if n), lost, repeated
    at = 0
    for step in trace.steps:
        size = sum(map(len, step))
        if Counter(chain.from_iterable(step)) != Counter(wanted[at : at + size]):
            return "differs", 0, 0
        at += size
    return "passes", 0, 0


@contextmanager
def limit(seconds: int):
    def late(*_: object) -> None:
        raise TimeoutError(f"nothing after {seconds} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:160]


@dataclass
class Report:
    package: str
    out: Path | None
    rows: list[dict[str, object]] = field(default_factory=list)

    def scenario(
        self, name: str, run: Pipeline, legs: Sequence[tuple[int, int | None]], note: str, *, kill: bool = True
    ) -> None:
        """Drives one pipeline; it is compared with itself on the ranks of the first leg, never stopped."""
        trace, verdict, lost, repeated = Trace(), "", None, None
        try:
            with limit(LIMIT_S):
                whole = drive(run, ((legs[0][0], None),))
                trace = drive(run, legs, kill=kill)
            verdict, lost, repeated = compare(trace, whole)
        except TimeoutError as error:
            verdict = f"hangs: {error}"
        except Exception as error:  # noqa: BLE001  the rival's own error is the finding
            verdict = f"refuses: {short(error)}"
        self._row(name, verdict, lost, repeated, trace, note)

    def lacks(self, name: str, what: str, note: str) -> None:
        """A scenario that the rival has no means for."""
        self._row(name, f"refuses: has no {what} of its own", None, None, Trace(), note)

    def _row(self, name: str, verdict: str, lost: int | None, repeated: int | None, trace: Trace, note: str) -> None:
        row = {"rival": self.package, "version": version(self.package), "scenario": name, "verdict": verdict}
        row |= {"lost": lost, "repeated": repeated, "state_bytes": trace.state_bytes}
        row |= {"resume_ms": round(trace.resume_ms, 2), "note": note}
        self.rows.append(row)
        print(f"{self.package} {row['version']:<10} {name:<58} {verdict}", flush=True)
        if self.out is not None:
            self.out.write_text(json.dumps(self.rows, indent=1) + "\n")


def report(package: str) -> Report:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    return Report(package, parser.parse_args().out)


def in_processes(world: int, work: Callable[[int], Any]) -> list[Any]:
    """`work(rank)` in one forked process per rank, all at once; their results in order of rank."""
    context = multiprocessing.get_context("fork")
    ends = [context.Pipe(duplex=False) for _ in range(world)]

    def child(rank: int) -> None:
        try:
            result: tuple[bool, Any] = True, work(rank)
        except Exception as error:  # noqa: BLE001  handed to the parent, which raises it
            result = False, short(error)
        ends[rank][1].send(result)
        ends[rank][1].close()
        os._exit(0)  # what the rival left running must not keep the rank alive

    children = [context.Process(target=child, args=(rank,)) for rank in range(world)]
    try:
        for process in children:
            process.start()
        results = [ends[rank][0].recv() for rank in range(world)]
    finally:
        for process in children:
            process.kill()
            process.join()
    for fine, result in results:
        if not fine:
            raise RuntimeError(result)
    return [result for _, result in results]
