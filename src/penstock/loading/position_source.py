"""`PositionSource`: batches of a `MapDataset`, for any rank and with skipped samples, from a state of one integer.

It cuts an epoch into jobs. A job plans and reads the rows of several batches at once, because each call of a plan and
each gather has a fixed cost, and cuts them into batches afterwards. The size of jobs depends on the bytes of a sample,
which the first job measures. No size changes the samples of a batch.

Samples have two numbers. A *position* counts all samples. A *kept* number counts the samples that are not skipped.
Batches are cut at multiples of `batch_size` in kept numbers from the start of the epoch's rest, so every rank computes
the same edges, and takes rows `r * m // R : (r + 1) * m // R` of the `m` rows of a batch. The state after a batch is
the position of the next sample, the same on all ranks.

Ownership: arrays come from a `Recycler`, which uses the memory of a batch again once nothing refers to it.

Behind a URL, the bytes of later jobs are requested so that threads do not wait for one answer after another.
The plan knows the rows of all jobs. Before it yields a job, `looking_ahead` requests the ranges of the next
`AHEAD_BYTES` of rows in one call, so that neighbouring ranges of different batches become one request. It does so again
when half of them are used up. Local data has no ranges: then it yields jobs as they come.

`with_requested` decides from sizes alone when to request which jobs. `penstock_cluster.simulation` runs it too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, pairwise
from operator import index
from typing import Protocol, TypeVar

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.columns import Columns
from penstock.core.recycler import Recycler
from penstock.core.selection import Selection
from penstock.data.coverage import COVERED
from penstock.data.planned_samples import PlannedSamples
from penstock.data.sample_blocks import LONGEST_SEARCH
from penstock.errors import PlanError, StateError, WorkerError
from penstock.files.remote import Wanted, begin_fetch
from penstock.loading.batch_source import Job, State, Timed, untimed
from penstock.loading.ranks import Ranks
from penstock.loading.seams import MixRecord, records
from penstock.loading.skips import LARGEST, Skips
from penstock.loading.ticket import Batch, Ticket
from penstock.plan.base import is_endless
from penstock.plan.batched import BatchedPlan

AHEAD_BYTES = 64 << 20  # at 1 GB/s and 20 ms of latency, 20 MB are under way
_FIRST, _MOST = 4, 256  # jobs of the second call, each later call has twice the jobs: the first ones measure a row


class Sized(Protocol):
    """Something that takes bytes, such as a `Job`."""

    @property
    def nbytes(self) -> float: ...


S = TypeVar("S", bound=Sized)


def looking_ahead(jobs: Iterator[Job], *, most_rows: bool) -> Iterator[Job]:
    """Yield each job after its bytes, and the bytes of the next jobs, were asked for."""
    remote: bool | None = None
    for job, fresh in with_requested(jobs, AHEAD_BYTES):
        if fresh:
            ranges = [wanted for each in fresh for wanted in each.remote_ranges()]
            begin_fetch(ranges, most=most_rows)
            remote = bool(ranges) if remote is None else remote
        yield job
        if not remote:
            yield from jobs
            return


def with_requested(jobs: Iterator[S], ahead_bytes: float) -> Iterator[tuple[S, list[S]]]:
    """Yield each job with the jobs whose bytes to request just before, perhaps none."""
    waiting: deque[S] = deque(islice(jobs, 1))
    fresh = list(waiting)
    most = _FIRST
    while waiting:
        yield waiting.popleft(), fresh
        fresh: list[S] = []
        nbytes = sum(job.nbytes for job in waiting)
        if 2 * len(waiting) <= most and 2 * nbytes <= ahead_bytes:
            for job in islice(jobs, most):
                fresh.append(job)
                nbytes += job.nbytes
                if nbytes >= ahead_bytes:
                    break
            waiting.extend(fresh)
            most = min(2 * most, _MOST)


PLAN_BLOCK = 4096  # positions planned and fetched by one call, so that its cost is spread over their batches
TINY_BLOCK, TINY_BYTES = 16384, 4 << 20  # the same for tiny samples, up to so many bytes
JOB_BYTES = 32 << 20  # a job never holds more than this, unless a single batch does
ALONE = Ranks()
LEAST_JOBS = 4  # jobs that fit into `memory`: a job is at most this part of it
LOOK_SECONDS = 0.01  # after which a job looks whether its loader was closed
LONGEST_WORDS = 300  # characters of a step of the plan in a state
COUNTED_SOURCES = 16  # a state says how many episodes each source has, if there are at most so many


@dataclass(frozen=True)
class EpochSlice:
    """Remaining samples of an epoch."""

    epoch: int
    lo: int
    hi: int
    after: int


class RowSize:
    """Bytes of one sample: estimated at first, and measured with each job. Ragged columns need the measurement."""

    def __init__(self, estimate: int) -> None:
        self.nbytes, self.measured = max(estimate, 1), False

    def measure(self, block: Columns) -> None:
        """Measure a block. The largest mean counts."""
        if block.n:
            self.nbytes, self.measured = max(self.nbytes, -(-block.nbytes // block.n)), True


@dataclass(eq=False)
class PositionSource:
    """Batches of a `MapDataset`. State `{"position": p}`: the consumer has the samples before position `p`.

    Samples have two numbers: a *position* counts all samples, a *kept* number only samples that are not skipped.
    Batches are cut from the kept samples of an epoch, and each rank takes its rows of every batch.
    """

    dataset: PlannedSamples
    batch_size: int | None
    drop_last: bool = False
    ranks: Ranks = ALONE
    memory: int = 1 << 30
    skips: Skips = field(default_factory=Skips)
    episodes: tuple[int, ...] | None = None  # of each source in this order, though the source may have more by now
    seams: tuple[MixRecord, ...] = ()
    job_batches: int | None = None

    recycler: Recycler = field(init=False, compare=False, repr=False)
    row: RowSize = field(init=False, compare=False, repr=False)
    digest: str = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.episodes is None:
            self.episodes = tuple(len(source) for source in self.dataset.sources)
        self.recycler = Recycler(self.memory)
        self.row = RowSize(self.dataset.row_bytes())
        self.digest = self.dataset.plan.fingerprint[:8]

    @property
    def fingerprint(self) -> str:
        return self.dataset.fingerprint

    @property
    def step(self) -> int:
        """Samples of a batch over all ranks, or 1 if the plan of the dataset has batches."""
        return self.batch_size or 1

    def start(self) -> State:
        return {"position": 0}

    def batches(self, epoch: int) -> int:
        """Return the number of batches of a whole epoch, which is equal on all ranks."""
        if self.dataset.plan.empty:
            return 0
        if self.batch_size is None:
            begin, end = (self.dataset.plan.start(e) for e in (epoch, epoch + 1))
            return len(self._kept_edges(begin, end)) - 1 if begin < end else 0
        samples = self._samples(epoch)
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)

    def epoch_batches(self, state: State) -> int:
        """Return the number of batches of the whole epoch of a state, which is equal on all ranks."""
        return self._counted(self.batches, state)

    def epoch_samples(self, state: State) -> int:
        """Return the number of samples of the whole epoch of a state, over all ranks and without skipped ones."""
        return self._counted(self._samples, state)

    def _counted(self, count: Callable[[int], int], state: State) -> int:
        if self.endless:
            raise TypeError("a dataset without end has no length; with_epoch_length(n) makes epochs of n samples")
        epoch = self.epoch(state)
        return 0 if epoch is None else count(epoch)

    def _samples(self, epoch: int) -> int:
        lo, hi = (self.skips.kept_before(self.dataset.plan.start(e)) for e in (epoch, epoch + 1))
        return hi - lo

    def _kept_edges(self, lo: int, hi: int) -> IntArray:
        """Kept numbers `[b + 1]` at which planned batches begin and end, from position `lo` to `hi - 1`."""
        plan = self.dataset.plan
        assert isinstance(plan, BatchedPlan)  # else the source has a batch size
        edges = plan.edges(lo, hi)
        return np.unique([self.skips.kept_before(edge) for edge in edges.tolist()]) if len(self.skips) else edges

    def _edges(self, lo: int, hi: int) -> IntArray:
        """Kept numbers `[b + 1]` at which the batches of a job begin and end, from `lo` on and at most to `hi`."""
        stop = min(lo + self._samples_a_job(), hi)
        if self.batch_size is None:
            edges = self._kept_edges(self.skips.position(lo), self.skips.position(stop - 1) + 1)
        else:
            edges = np.append(np.arange(lo, stop, self.batch_size), stop)
        return edges if self.job_batches is None else edges[: self.job_batches + 1]

    def epoch_slice(self, position: int) -> EpochSlice | None:
        """Return the rest of an epoch from a position on, or a later epoch if the rest has no batch."""
        if self.dataset.plan.empty:
            return None
        # Each range touches two epochs in part; whole epochs are alike, unless their lengths differ.
        for _ in range(2 * len(self.skips) + (LONGEST_SEARCH if self.dataset.plan.uneven else 3)):
            rest = self.rest(position)
            if rest.lo < rest.hi:
                return rest
            position = rest.after
        return None

    def rest(self, position: int) -> EpochSlice:
        """Return the rest of an epoch from a position on, or the next epoch that is not skipped to its end."""
        plan, skips = self.dataset.plan, self.skips
        lo = skips.kept_before(position)
        epoch = int(plan.locate(np.array([skips.position(lo)]))[0][0])
        after = plan.start(epoch + 1)
        hi = skips.kept_before(after)
        return EpochSlice(epoch, lo, hi - (hi - lo) % self.step if self.drop_last else hi, after)

    def batch(self, epoch_slice: EpochSlice, lo: int) -> tuple[Batch, State]:
        edges = self._edges(lo, min(lo + self.step, epoch_slice.hi))
        return next(self._load(edges[:2], epoch_slice, untimed))

    def first(self, state: State) -> Batch | None:
        """Load the first batch from a state on. Return None if there is none."""
        epoch_slice = self.epoch_slice(int(state["position"]))
        return None if epoch_slice is None else self.batch(epoch_slice, epoch_slice.lo)[0]

    def epoch(self, state: State) -> int | None:
        epoch_slice = self.epoch_slice(int(state["position"]))
        return epoch_slice and epoch_slice.epoch

    @property
    def endless(self) -> bool:
        """Whether the only epoch has no end, as in a mix that never stops."""
        return is_endless(self.dataset.plan)

    def epoch_start(self, epoch: int) -> State:
        if epoch < 0 or (epoch and self.endless):
            known = "0, the only epoch of a dataset without end" if self.endless else "0 or more"
            raise PlanError(f"expected an epoch of {known}, got {epoch}")
        return {"position": self.dataset.plan.start(index(epoch))}

    def next_epoch(self, state: State) -> State:
        """Return the state at the start of the epoch after the last batch before a state."""
        plan, position = self.dataset.plan, int(state["position"])
        if plan.empty or self.endless:
            return state
        epoch = int(plan.locate(np.array([position]))[0][0])
        return state if plan.start(epoch) == position else self.epoch_start(epoch + 1)

    def jobs(self, state: State) -> Iterator[Job]:
        """Yield a job for about `PLAN_BLOCK` positions each.

        The first job is one batch, to measure the size of a row.
        """
        epoch_slice = self.epoch_slice(int(state["position"]))
        if epoch_slice is None:
            return iter(())
        rows = sum(int(source.offsets[-1] - source.offsets[0]) for source in self.dataset.sources)
        return looking_ahead(self._jobs_of(epoch_slice), most_rows=2 * (epoch_slice.hi - epoch_slice.lo) >= rows)

    def _jobs_of(self, epoch_slice: EpochSlice) -> Iterator[Job]:
        lo = epoch_slice.lo
        while lo < epoch_slice.hi:
            edges = self._edges(lo, epoch_slice.hi)
            hi = int(edges[-1])
            yield Job(
                lambda timed, edges=edges: self._load(edges, epoch_slice, timed),
                int((hi - lo) * self.row.nbytes / self.ranks.times),
                lambda edges=edges: self._remote_ranges(edges),
            )
            lo = hi

    def given(self, epoch: int) -> list[tuple[str, list[tuple[int, int]]]]:
        """Return what is given of an epoch, as ranges of positions, and what it was before batches and skips.

        Each comes with the reason why its samples are not in the one before.
        """
        if self.endless:
            raise PlanError(
                "expected an epoch with an end to cover, got a mix that never stops; call with_epoch_length(n) first"
            )
        skips = self.skips
        lo, hi = (self.epoch_start(e)["position"] for e in (epoch, epoch + 1))
        first, last = skips.kept_before(lo), skips.kept_before(hi)
        end = last - (last - first) % self.step if self.drop_last else last
        levels = [(COVERED, skips.kept(lo, skips.position(end - 1) + 1 if first < end else lo))]
        if end < last:
            levels.append(("in a short last batch, which is dropped", skips.kept(lo, hi)))
        return levels if last - first == hi - lo else [*levels, ("skipped", [(lo, hi)])]

    def upcoming(self, state: State, batches: int) -> tuple[IntArray, IntArray]:
        """Return the samples of the next batches of an epoch, over all ranks and without skipped ones."""
        epoch_slice = self.epoch_slice(int(state["position"]))
        if epoch_slice is None:
            raise PlanError("expected batches to show, got a loader without any")
        edges = [epoch_slice.lo]
        while len(edges) <= batches and edges[-1] < epoch_slice.hi:
            edges += self._edges(edges[-1], epoch_slice.hi)[1:].tolist()
        edges = edges[: batches + 1]
        return self.skips.positions(np.arange(edges[0], edges[-1])), np.array(edges) - edges[0]

    def _remote_ranges(self, edges: IntArray) -> list[Wanted]:
        """The bytes behind URLs of the samples of this rank. They are planned again when they are loaded."""
        return self.dataset.remote_ranges(self.dataset.resolve(self.skips.positions(self.shares(edges)[0])))

    def with_prefetch(self, prefetch: int, threads: int) -> tuple[PositionSource, int]:
        """Limit the batches of a job, so that threads work on several jobs and `prefetch` batches are ahead at most.

        With `b` batches a job and `j` jobs ahead, `(j + 1) * b - 1` batches are ahead at most, because the consumer has
        received at least one batch of the job before them.
        """
        batches = max((prefetch + 1) // (threads + 2), 1)
        batches = min(batches, max(self.samples_that_fit() // self.step, 1))
        return replace(self, job_batches=batches), (prefetch + 1) // batches - 1

    def _samples_a_job(self) -> int:
        return self.samples_that_fit() if self.row.measured else self.step

    def samples_that_fit(self) -> int:
        """Return the samples of a job of whole batches, over all ranks, as far as their bytes allow."""
        tiny_bytes = TINY_BYTES // 4 if self.dataset.maps else TINY_BYTES  # functions take long: jobs for more threads
        block = max(PLAN_BLOCK, min(TINY_BLOCK, tiny_bytes // self.row.nbytes))
        rows = min(block, max(min(JOB_BYTES, self.memory // LEAST_JOBS) // self.row.nbytes, 1))
        return max(int(rows * self.ranks.times) // self.step, 1) * self.step

    def _load(self, edges: IntArray, epoch_slice: EpochSlice, timed: Timed) -> Iterator[tuple[Batch, State]]:
        lo, hi = int(edges[0]), int(edges[-1])
        try:
            kept, cuts = self.shares(edges)
            positions = self.skips.positions(kept)
            selections = timed("plan", lambda: self.dataset.resolve(positions))
            if self.batch_size is None:
                blocks = timed("fetch", lambda: self._trimmed(selections, edges, cuts))
            else:
                block = timed("fetch", lambda: self.dataset.read(selections, self.recycler.empty))
                self.row.measure(block)
                blocks = [block.take(slice(a, b)) for a, b in pairwise(cuts.tolist())]
            after = [*self.skips.positions(edges[1:-1]).tolist(), self._after(hi, epoch_slice)]
            cut = self._cut(blocks, positions, cuts, edges)
            states = ({"position": position} for position in after)
            if not self.dataset.maps:
                yield from zip(timed("cut", lambda: list(cut)), states, strict=True)
                return
            while batches := timed("map", lambda: _drawn(cut)):
                yield from zip(batches, states, strict=False)
        except Exception as error:
            where = f"{self.skips.position(lo)}:{self.skips.position(hi - 1) + 1}"
            raise WorkerError(f"positions {where} could not be loaded: {type(error).__name__}: {error}") from error

    def _trimmed(self, selections: Sequence[Selection], edges: IntArray, cuts: IntArray) -> list[Columns]:
        """Read each batch as wide as the longest sample that any rank has of it."""
        plan = self.dataset.plan
        assert isinstance(plan, BatchedPlan)  # else the source has a batch size
        everyone = self.skips.positions(np.arange(int(edges[0]), int(edges[-1])))
        widths = plan.widths(everyone, edges - edges[0]).tolist()
        blocks: list[Columns] = []
        for (a, b), row in zip(pairwise(cuts.tolist()), widths, strict=True):
            mine = [one.samples(a, b).narrowed(width) for one, width in zip(selections, row, strict=True)]
            blocks.append(self.dataset.read(mine, self.recycler.empty))
            self.row.measure(blocks[-1])
        return blocks

    def _after(self, hi: int, epoch_slice: EpochSlice) -> int:
        return epoch_slice.after if hi == epoch_slice.hi else self.skips.position(hi)

    def shares(self, edges: IntArray) -> tuple[IntArray, IntArray]:
        """Return the rows of this rank."""
        if self.ranks.times == 1:  # all rows, as usual: they follow one another
            return np.arange(int(edges[0]), int(edges[-1])), edges - edges[0]
        begin, end = self.ranks.share(np.diff(edges))
        counts, first = (end - begin).ravel(), (edges[:-1, None] + begin).ravel()
        ends = np.cumsum(counts)
        kept = np.arange(ends[-1], dtype=np.int64) + np.repeat(first - ends + counts, counts)
        return kept, np.append(0, ends[begin.shape[1] - 1 :: begin.shape[1]])

    def _cut(self, blocks: Sequence[Columns], positions: IntArray, cuts: IntArray, edges: IntArray) -> Iterator[Batch]:
        """The batches of a job, mapped, with their tickets."""
        sizes = np.diff(edges).tolist()
        for number, (a, b) in enumerate(pairwise(cuts.tolist())):
            rows = blocks[number]
            if self.dataset.maps:
                rows = self.dataset.mapped(rows, positions[a:b])
                self.row.measure(rows)  # functions may make much of little, such as pictures of numbers
            first = int(positions[a]) if a < b else self.skips.position(int(edges[number]))
            count = int(positions[b - 1]) + 1 - first if a < b else 0
            if self.ranks.mesh is not None:  # arrays are of all ranks, and so is the ticket
                first = self.skips.position(int(edges[number]))
                count = self.skips.position(int(edges[number + 1]) - 1) + 1 - first
            yield Batch.of(rows, Ticket(first, count, self.digest), self.ranks.weight(b - a, sizes[number]))

    def received(self, state: State) -> None:
        """Do nothing: the state says all."""

    def metadata(self, state: State) -> State:
        """Return the skipped positions, the number of episodes of each source, and the plan in words.

        Of a mix, also the number of samples of each part, and the earlier mixes that it continues. If epochs vary in
        length, also the current epoch and its first position, so that earlier epochs need no planning.
        """
        counts = list(self.episodes or ())
        fields: State = {"episodes": counts} if len(counts) <= COUNTED_SOURCES else {}
        plan = self.dataset.plan
        if plan.uneven and not plan.empty:
            epoch = int(plan.locate(np.array([int(state["position"])]))[0][0])
            fields["epoch"] = [epoch, plan.start(epoch)]
        if (record := MixRecord.of(self.dataset, int(state["position"]))) is not None:
            fields["mix"] = record.to_json()
        if self.seams:
            fields["seams"] = [seam.to_json() for seam in self.seams]
        return {"skipped": self.skips.to_json(), **fields, "plan": list(self.words)}

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The source and the transforms as text, with which a refused state says what differs.

        Made once: a table of samples has the digest of its rows in its text, and trainers ask for states at each step.
        """
        return tuple(text[:LONGEST_WORDS] for text in self.dataset.chain)

    def resumed(self, saved: State) -> tuple[PositionSource, State]:
        """Return the source with the skipped ranges, and a position within `0 : 2^62`."""
        rest = {**saved}
        for name in ("episodes", "mix"):
            rest.pop(name, None)
        epoch, seams = rest.pop("epoch", None), records(rest.pop("seams", []))
        if set(rest) != {"position", "skipped"} or not _is_position(rest["position"]):
            raise StateError(f"expected a state with a position within 0:2^62 and skipped ranges, got {saved}")
        skips = Skips.from_json(rest["skipped"])
        self._set_epoch_start(epoch, rest["position"])  # last, for the plan keeps it
        return replace(self, skips=skips, seams=seams), {"position": rest["position"]}

    def _set_epoch_start(self, saved: object, position: int) -> None:
        match saved:
            case None:
                return
            case [int() as epoch, int() as start] if 0 <= epoch <= LARGEST and 0 <= start <= position:
                plan = self.dataset.plan
                plan.set_epoch_start(epoch, start)
                if plan.uneven and not plan.empty and position >= (end := plan.start(epoch + 1)):
                    raise StateError(
                        f"expected a position within epoch {epoch}, which is {start}:{end}, got {position}; the state "
                        "was edited, or is of other data"
                    )
            case _:
                raise StateError(f"expected an epoch and its first position in a state, got {saved!r}")

    def skipping(self, skips: Skips) -> PositionSource:
        return replace(self, skips=skips)


def _drawn(batches: Iterator[Batch]) -> list[Batch]:
    """The next batches, as many as functions of users take `LOOK_SECONDS` for, because timing each would cost more."""
    end, drawn = time.monotonic() + LOOK_SECONDS, list[Batch]()
    for batch in batches:
        drawn.append(batch)
        if time.monotonic() > end:
            break
    return drawn


def _is_position(value: object) -> bool:
    return type(value) is int and 0 <= value <= LARGEST
