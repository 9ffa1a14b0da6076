"""`ReplayContents`: the episodes of a replay that are in memory, and the drawing that chooses among their samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from penstock.core.arrays import Float32Array, IntArray
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.errors import DataError, PlanError, SpecError
from penstock.kernels.replay import EPISODE, START
from penstock.plan.transform import SampleTransform
from penstock.replay.completions import Completions
from penstock.replay.journal import FLAGS, StepChange
from penstock.replay.offline import OfflineDrawing, OfflineSamples
from penstock.replay.reader import SampleReader
from penstock.replay.samplers import Drawing, ReplaySampler
from penstock.replay.samples import AnchorRule, ReplaySamples, SampleLayout, SampleOutput
from penstock.replay.segments import SegmentStore
from penstock.replay.share import EpisodeShare
from penstock.replay.stratified import StratifiedSampler
from penstock.replay.streams import StepStream


class ReplayContents:
    """Episodes in memory, how their samples are read, and how samples are chosen.

    Nothing is allocated before the first episode, whose columns decide the layout. The caller holds a lock.
    """

    def __init__(
        self,
        samples: ReplaySamples | SampleTransform,
        sampler: ReplaySampler,
        key: np.uint64,
        capacity: int,
        share: EpisodeShare,
        offline: OfflineSamples | None,
    ) -> None:
        self.samples = samples
        self.sampler = sampler
        self.capacity = capacity
        self.share = share
        self.offline = offline
        # Most tokens of a completion, None for other samples.
        self.longest = min(samples.max_length, capacity) if isinstance(samples, Completions) else None
        self._key = key
        self.streams: dict[int, StepStream] = {}
        self.stepped = False  # whether steps of open episodes came, in an order that no folder has
        self.own: set[int] = set()  # episodes of the folder that came by steps, and were not counted yet
        self.expired = 0  # priority updates of samples that had left
        self.store: SegmentStore | None = None
        self.reader: SampleReader | None = None
        self.drawing = self._new_drawing()

    def _new_drawing(self) -> Drawing:
        drawing = self.sampler.start(self._key)
        if isinstance(self.sampler, StratifiedSampler):
            drawing.labels_of = partial(self._labels, self.sampler.by)
        return drawing if self.offline is None else OfflineDrawing(drawing, self.sampler, self.offline)

    def _labels(self, by: str, anchors: IntArray) -> IntArray:
        """Strata of anchors: numbers of their episodes, or values of a column."""
        store = self.store
        if store is None:
            return np.zeros(0, np.int64)
        if by == "episode":
            return store.table[store.find(anchors)[:, 0], EPISODE]
        column = store.spec.get(by)
        if column is None or column.shape or column.dtype.kind not in "bui" or column.align == "boundary":
            raise SpecError(f"expected a column of one whole number a step or episode to draw by, got {by!r}: {column}")
        output = SampleOutput(by, by, column.align, 0, 1, squeeze=True)
        return SampleReader(SampleLayout(AnchorRule(), (output,)), store.spec)(store, anchors)[by].astype(np.int64)

    @property
    def extent(self) -> tuple[int, int]:
        """Numbers of the steps in memory, `[lo, hi)`."""
        return (0, 0) if self.store is None else self.store.extent

    @property
    def anchors(self) -> tuple[int, int]:
        """Numbers of the samples in memory, `[lo, hi)`."""
        return (0, 0) if self.store is None else self.store.anchors

    @property
    def episodes(self) -> int:
        """Number of all episodes that arrived."""
        return 0 if self.store is None else self.store.arrived

    def restart(self) -> None:
        """Begin a new drawing, for a store that is filled again."""
        self.drawing = self._new_drawing()
        self.streams.clear()
        self.stepped = False

    def begin(self, spec: Spec, first: int, lengths: IntArray) -> SegmentStore:
        """Make an empty store that continues after some episodes of this learner, which have left."""
        layout = self._layout_of(spec)
        anchors = int(layout.anchors.count(lengths).sum())
        return self._use(spec, layout, first, int(lengths.sum()), anchors)

    def prepare(self, spec: Spec) -> SegmentStore:
        """Return the store, which the first episode makes."""
        return self._use(spec, self._layout_of(spec), 0, 0, 0) if self.store is None else self.store

    def add(self, episode: Episode) -> int:
        """Take an episode in after checks, or count it if it belongs to another learner."""
        self.check(self.prepare(episode.spec), episode)
        return self.take(episode)

    def take(self, episode: Episode) -> int:
        """Take in an episode that `check` has accepted."""
        store = self.prepare(episode.spec)
        number = store.arrived
        if number in self.own or not self.share.has(number):
            self.own.discard(number)
            store.pass_over()
            return number
        if self.longest is None:
            store.add(episode)
            return number
        _, before = store.anchors
        store.add(episode)
        _, hi = store.anchors
        if hi > before:
            self.arrive()
            self.drawing.observe(hi - 1, episode)
        return number

    def stream(self, key: int, lanes: int, spec: Spec) -> StepStream:
        """Return where the steps of a source go."""
        if key not in self.streams:
            self.stepped = True
            self.streams[key] = self.prepare(spec).stream(lanes)
        return self.streams[key]

    def apply(self, change: StepChange, spec: Spec, numbered: bool) -> None:
        """Make a change of open episodes. With `numbered`, episodes get numbers when they begin."""
        if change.kind == "episode":
            self.add(Episode(spec, dict(change.rows)))
            return
        store = self.prepare(spec)
        stream = self.stream(change.source, change.lanes, spec)
        if change.kind == "step":
            store.step(stream, change.which, change.rows, change.flags)
        elif change.kind == "begin":
            count = len(change.which)
            store.begin(stream, change.which, change.rows, store.numbers(count, numbered))
        elif change.kind == "end":
            store.end(stream, change.which, dict(zip(FLAGS, change.flags.tolist(), strict=True)))
        elif change.kind == "save":
            lane, number = change.which.tolist()
            self.own.add(number)
            if lane >= 0:
                self.arrive()  # with the number that its episode had so far
                store.rename(stream, lane, number)
        else:
            store.finish(self.streams.pop(change.source))

    def arrive(self) -> None:
        """Let the drawing know which samples are in memory now: before a draw, and before priorities change."""
        if self.store is not None:
            self.drawing.arrive(*self.store.anchors)

    def check(self, store: SegmentStore, episode: Episode) -> None:
        """Raise an error for an episode that the replay cannot take."""
        store.check(episode)
        if self.longest is not None and len(episode) > self.longest:
            raise DataError(
                f"expected completions of at most {self.longest:,} tokens with their prompt, the smaller of max_length "
                f"and the capacity, got one of {len(episode):,}; raise them, or end completions earlier with "
                "truncated=True"
            )

    def set_priorities(self, anchors: IntArray, priorities: Float32Array) -> int:
        """Set priorities of the samples that are here. Return how many are not."""
        here = anchors >= self.anchors[0]
        if self.offline is not None:
            here |= (anchors < 0) & (anchors >= -len(self.offline.rows.samples))
        gone = int(len(anchors) - here.sum())
        if gone:
            anchors, priorities = anchors[here], priorities[here]
        self.expired += gone
        self.arrive()
        self.drawing.update(anchors, priorities)
        return gone

    def places(self, anchors: IntArray) -> dict[str, IntArray]:
        """Return `episode`, `step`, `row` and `steps` of samples, `[n]` int64 each, -1 for samples that left.

        `step` is the anchor step, `row` its number in the run, and `steps` the length of the episode.
        """
        here = anchors >= self.anchors[0]
        columns = np.full((4, len(anchors)), -1)
        if here.any() and self.store is not None:
            places = self.store.find(anchors[here])
            rows = self.store.table[places[:, 0]]
            steps = self.store.lengths(places[:, 0])
            columns[:, here] = np.maximum(rows[:, EPISODE], -1), places[:, 1], rows[:, START] + places[:, 1], steps
        return dict(zip(("episode", "step", "row", "steps"), columns, strict=True))

    @property
    def cost(self) -> Callable[[IntArray], int]:
        """Function that returns the tokens of a batch. Raises `PlanError` if samples are not completions."""
        cost = None if self.reader is None else self.reader.layout.cost
        if cost is None:
            raise PlanError("expected samples=Completions(...) for max_tokens; other samples all have the same size")
        return cost

    def why_empty(self, place: str) -> str:
        """Return why there is nothing to draw."""
        if self.store is None:
            return f"no episode has arrived{place}"
        if self.store.anchors[1] == 0 and self.reader is not None:
            least = self.reader.layout.least_steps
            return f"no episode is as long as {least:,} steps, which {self.samples!r} needs"
        return "no episode in memory is long enough for a sample"

    def _layout_of(self, spec: Spec) -> SampleLayout:
        layout = SampleLayout.of(self.samples, spec)
        if layout.least_steps > self.capacity:
            raise PlanError(
                f"expected a capacity of at least one sample, which is {layout.least_steps} steps, got {self.capacity}"
            )
        return layout

    def _use(self, spec: Spec, layout: SampleLayout, first: int, start: int, anchors: int) -> SegmentStore:
        self.store = store = SegmentStore(spec, layout, self.capacity, first=first, start=start, anchors=anchors)
        self.reader = SampleReader(layout, spec)
        return store
