"""Position of a loader in its dataset, and the rules for loading a saved state.

A state has a version, the fingerprint of dataset and plan, and a position, or the state of a stream. A state with the
fingerprint of the given dataset continues at its position. For another fingerprint there are three cases, tried in
this order; anything else is a `StateError`, and nothing changes:

1. The given dataset is a mix, and the state is from this mix after earlier ones (`seams`): the same mix is made again.
2. `changed="continue"`, and the state is from another mix: the given one begins, each part after the samples taken.
3. Episodes were appended: the dataset as it was when the state was saved has this fingerprint. `grown` decides whether
   its epoch is finished first.

An iterator asks where it begins when its first batch is wanted, and the cursor changes when a batch was received. So
making an iterator changes nothing. A new iterator begins at a state that was loaded, or an epoch that was set, and not
used since; otherwise in the epoch after the last batch that was received.

Threads: the consumer moves the cursor, and other threads may load, skip and save. Source, state and `turn` change
together under one lock. `turn` counts loads and skips; an iterator that began in an earlier turn can no longer move the
cursor, and starts again.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import SequenceMatcher
from operator import index
from typing import Literal, NamedTuple, TypeGuard, get_args

import numpy as np

from penstock.core.narrowing import is_list
from penstock.core.turns import ForkSafeLock
from penstock.data.mix import mix_below
from penstock.data.sample_blocks import check_batches
from penstock.errors import PlanError, StateError
from penstock.loading.batch_source import BatchSource, State
from penstock.loading.block_source import BlockSource
from penstock.loading.pipeline_source import PipelineSource
from penstock.loading.position_source import PositionSource
from penstock.loading.seams import MixRecord, carried_skips, next_mix, records
from penstock.loading.skips import Skips
from penstock.loading.ticket import Ticket

VERSION = 2
Grown = Literal["refuse", "finish_epoch", "next_epoch"]
Changed = Literal["refuse", "continue"]
Skippable = Ticket | str | range | tuple[int, int]


class CursorPlace(NamedTuple):
    """Where an iterator begins or goes on."""

    turn: int
    source: BatchSource
    state: State


class Cursor:
    """Current source of a loader, its state, and the source to use after the current epoch.

    `turn` counts loads and skips, so that a running iterator notices them.
    """

    def __init__(self, source: BatchSource, *, allow_empty: bool = False) -> None:
        if not allow_empty and isinstance(source, PositionSource):
            check_batches(source.dataset.plan, source.step, drop_last=source.drop_last)
        self._allow_empty = allow_empty
        self._given = source
        self._whole: BatchSource = source  # of the dataset as it is now, after the samples of earlier mixes
        self.source = source
        self.state = source.start()
        self.turn = 0
        self._begin: State | None = self.state  # of the next new iterator; None: in the epoch after `state`
        self._loaded = False  # whether `_begin` is a state that was loaded
        self.epoch_set: int | None = None  # epoch that was set and not begun since
        self._last: int | None = None  # the epoch that is finished over the extent of an earlier dataset
        self._changing = ForkSafeLock()

    def saved(self) -> State:
        return saved(*self.current())

    def current(self) -> tuple[BatchSource, State]:
        """Return source and state after the last batch, or where a new iterator begins if that was loaded or set."""
        with self._changing:
            return (self.source, self.state) if self._begin is None else self._upcoming()

    def place(self, after: tuple[CursorPlace, State] | None = None) -> CursorPlace:
        """Return where an iterator begins or goes on. Nothing changes."""
        with self._changing:
            if after is None:
                return CursorPlace(self.turn, *self._upcoming())
            begun, state = after
            if begun.turn == self.turn:
                return CursorPlace(self.turn, begun.source, state)
            return CursorPlace(self.turn, self.source, self.state)

    def _upcoming(self) -> tuple[BatchSource, State]:
        """Source and state at which a new iterator begins."""
        source = self.source if self._last is None or self._loaded else self._whole
        if self._begin is not None:
            return source, self._begin
        if self._last is not None and isinstance(source, PositionSource):
            return source, {"position": source.dataset.plan.start(self._last + 1)}
        return source, source.next_epoch(self.state)

    def move(self, place: CursorPlace, state: State) -> bool:
        """Set the state after the consumer received a batch."""
        with self._changing.plain:
            if place.turn != self.turn:
                return False
            if place.state is self._begin:
                self._begin, self.epoch_set = None, None
                self._loaded = False
            if place.source is not self.source:  # it began after the epoch over the earlier data
                self.source, self._last = place.source, None
            self.state = state
            self.source.received(state)
            self._settle()
            return True

    def set_epoch(self, epoch: int) -> None:
        """Begin the next new iterator at the start of an epoch. The epoch of a loaded state keeps its position."""
        with self._changing:
            source = self.source if self._last is None or self._loaded else self._whole
            if not isinstance(source, PositionSource):
                return  # every epoch of a stream is the same
            start = source.epoch_start(epoch)
            if self._begin is None or not self._loaded:
                self._begin = start
            elif (loaded := source.epoch(self._begin)) not in (epoch, None):
                raise StateError(
                    f"expected set_epoch({loaded}), for a state of epoch {loaded} was loaded, got set_epoch({epoch}), "
                    f"which would throw it away; if a trainer counts from 0 again, tell it the epoch first: "
                    f"set_epoch({loaded}) of the DataLoader that Accelerate prepared"
                )
            self.epoch_set = epoch

    def ended(self, began: State, samples: int) -> None:
        """Handle the end of an epoch. A position continues in the next epoch, and a stream starts again."""
        if isinstance(self.source, BlockSource):
            self.state = self._begin = self.source.start()
            self._loaded = False
            if not samples and began == self.state and not self._allow_empty:
                raise PlanError(
                    "expected samples, got a stream that ended without one; check its filters and its source: "
                    "allow_empty=True allows that"
                )
        elif isinstance(self.source, PipelineSource) and began == self.state and not self._allow_empty:
            # All ranks count the same batches: one whose shares are empty must not fail alone.
            raise PlanError(
                "expected batches, got a live pipeline that has ended; a pipeline goes through its data once: make a "
                "new one, or give it more passes: allow_empty=True allows that"
            )

    def load(self, saved: State, grown: Grown, changed: Changed = "refuse") -> None:
        """Load a saved state. Nothing changes if it is refused."""
        for name, value, words in (("grown", grown, get_args(Grown)), ("changed", changed, get_args(Changed))):
            if value not in words:
                raise PlanError(f"expected {name} to be one of {words}, got {value!r}")
        rest = dict(saved)
        version, fingerprint, plan = (rest.pop(name, None) for name in ("version", "fingerprint", "plan"))
        if version != VERSION:
            raise StateError(
                f"expected a state of version {VERSION} of the dataset and plan {self._given.fingerprint}, got one of "
                f"version {version} of {fingerprint}; a state of another version of penstock cannot be continued"
            )
        with self._changing:
            whole = self._owner_of(rest, fingerprint)
            if whole is not None:
                self.source, self.state = whole.resumed(rest)
                if isinstance(whole, PositionSource) and isinstance(self.source, PositionSource):
                    whole = replace(whole, seams=self.source.seams)
                self._whole = whole
                self._last = None
            elif changed == "continue" and "mix" in rest:
                self._change(rest)
            else:
                self._continue(self._earlier(rest, fingerprint, plan, changed), rest, grown)
            self._begin, self._loaded = self.state, True
            self.turn += 1

    def _owner_of(self, rest: State, fingerprint: object) -> BatchSource | None:
        """The source of a state: the one that was given, or one that continues earlier mixes. None if it is another."""
        given = self._given
        if fingerprint == given.fingerprint:
            return given
        if isinstance(given, PositionSource) and "seams" in rest:
            seams = records(rest["seams"])
            if mix_below(given.dataset.plan) is not None:
                dataset = next_mix(given.dataset, seams)
                return replace(given, dataset=dataset) if dataset.fingerprint == fingerprint else None
        return None

    def _change(self, rest: State) -> None:
        """Begin the mix that was given, each part after the samples that the mix of a state has taken."""
        given = self._given
        if not isinstance(given, PositionSource):
            raise StateError("expected a MapDataset to continue a mix with, got an IterDataset or a live pipeline")
        seams = (*records(rest.get("seams", [])), MixRecord.from_json(rest["mix"]))
        dataset = next_mix(given.dataset, seams)
        skips = carried_skips(dataset, seams[-1], Skips.from_json(rest.get("skipped", [])))
        source = replace(given, dataset=dataset, seams=seams, skips=skips)
        self._whole = source
        self.source = source
        self.state = source.start()
        self._last = None

    def skip(self, what: Skippable) -> None:
        """Leave out positions from here on."""
        with self._changing:
            if not isinstance(self.source, PositionSource):
                raise PlanError(
                    "expected a MapDataset to skip positions of, got an IterDataset or a live pipeline, whose rows "
                    "have none"
                )
            lo, hi = _range(what, self.source)
            if lo < hi:
                self.source = self.source.skipping(self.source.skips.with_range(lo, hi))
                self.turn += 1

    def owner(self, ticket: Ticket) -> PositionSource:
        """Return the source whose plan a ticket names."""
        sources = [source for source in (self.source, self._whole) if isinstance(source, PositionSource)]
        if not sources:
            raise StateError(
                "expected a loader of a MapDataset or a Replay, got one of an IterDataset or a live pipeline, whose "
                "batches have no tickets"
            )
        owner = next((source for source in sources if source.digest == ticket.digest), None) or _earlier_mix(
            sources[0], ticket
        )
        _check_ticket(ticket, owner)
        return owner

    def _earlier(self, rest: State, fingerprint: object, plan: object, changed: Changed) -> PositionSource:
        """The source of the dataset at the time when the state was saved. Raises `StateError` for another dataset."""
        whole = self._given
        counts = rest.get("episodes")
        if isinstance(whole, PositionSource) and _is_counts(counts, len(whole.dataset.sources)):
            earlier = whole.dataset.as_of(counts)
            if earlier is not None and earlier.fingerprint == fingerprint:
                return replace(whole, dataset=earlier, skips=Skips(), episodes=tuple(counts))
        raise StateError(
            f"expected a state of the same data, transforms and seeds, got one of others: {_difference(plan, whole)}; "
            f"build the dataset as the run did that saved it{_hint(rest, changed)} (fingerprint {whole.fingerprint} "
            f"here, {fingerprint} there)"
        )

    def _continue(self, earlier: PositionSource, rest: State, grown: Grown) -> None:
        """Continue after the data has grown, as `grown` says."""
        source, state = earlier.resumed(rest)
        whole = self._given
        assert isinstance(whole, PositionSource)  # `_earlier` gave one
        if grown == "refuse":
            raise StateError(_has_grown(source, whole))
        epoch, begun = _next_epoch(source, state["position"])
        self._whole = whole.skipping(Skips())  # positions name other samples now
        if begun and grown == "finish_epoch":
            self.source = source
            self.state = state
            self._last = epoch
        else:
            self._use_whole(epoch + begun)

    def _settle(self) -> None:
        """Switch to the whole dataset after the epoch over the earlier data."""
        if self._last is not None and self.source.epoch(self.state) != self._last:
            self._use_whole(self._last + 1)

    def _use_whole(self, epoch: int) -> None:
        whole = self._whole
        assert isinstance(whole, PositionSource)
        self.source = whole
        self.state = {"position": whole.dataset.plan.start(epoch)}
        self._last = None


def saved(source: BatchSource, state: State) -> State:
    return {"version": VERSION, "fingerprint": source.fingerprint, **source.metadata(state), **state}


def _hint(rest: State, changed: Changed) -> str:
    if "mix" in rest and changed == "refuse":
        return "; or give changed='continue' to go on with other weights or parts of a mix"
    return "; the state is not one of a mix that could be continued" if changed == "continue" else ""


def _difference(plan: object, given: BatchSource) -> str:
    """What the plan in words of a saved state has, and the given source has not, and the other way round."""
    if not isinstance(given, PositionSource) or not is_list(plan):
        return "the state does not say which"
    there, here = [str(text) for text in plan], list(given.words)
    if there == here:
        return "the steps of the plan are alike, so the data or a function differ"
    edits = [edit for edit in SequenceMatcher(None, there, here, autojunk=False).get_opcodes() if edit[0] != "equal"]
    return ", and ".join(
        f"{' > '.join(there[i:j]) or 'nothing'} there, where it is {' > '.join(here[k:m]) or 'nothing'} here"
        for _, i, j, k, m in edits
    )


def _earlier_mix(source: PositionSource, ticket: Ticket) -> PositionSource:
    """The source of the earlier mix that a ticket is from, or `source` if there is none."""
    for seam in source.seams:
        dataset = seam.dataset(source.dataset)
        if dataset is not None and dataset.plan.fingerprint[:8] == ticket.digest:
            return replace(source, dataset=dataset, skips=Skips())
    return source


def _next_epoch(source: PositionSource, position: int) -> tuple[int, bool]:
    """Next epoch of a source, and whether it has already begun."""
    plan, epoch_slice = source.dataset.plan, source.epoch_slice(position)
    if plan.empty:
        return 0, False
    if epoch_slice is None:  # no epoch has a whole batch
        return int(plan.locate(np.array([position]))[0][0]), False
    return epoch_slice.epoch, epoch_slice.lo > source.skips.kept_before(plan.start(epoch_slice.epoch))


def _has_grown(earlier: PositionSource, whole: PositionSource) -> str:
    more = sum(whole.episodes or ()) - sum(earlier.episodes or ())
    return (
        f"expected a state of the dataset and plan with fingerprint {whole.fingerprint}, got one of "
        f"{earlier.fingerprint}: the data has grown by {more} episodes since. Give grown='finish_epoch' to have the "
        "rest of the epoch from the data as it was and later epochs from all, or grown='next_epoch' to begin the next "
        "epoch, of all data, at once"
    )


def _is_counts(value: object, sources: int) -> TypeGuard[list[int]]:
    return is_list(value) and len(value) == sources and all(type(n) is int and n >= 0 for n in value)


def _range(what: Skippable, source: PositionSource) -> tuple[int, int]:
    if isinstance(what, Ticket | str):
        ticket = Ticket.parse(what)
        _check_ticket(ticket, source)
        return ticket.position, ticket.stop
    if isinstance(what, range) and what.step != 1:
        raise PlanError(f"expected a range of consecutive positions to skip, got {what}; skip each of its parts")
    lo, hi = (index(edge) for edge in ((what.start, what.stop) if isinstance(what, range) else what))
    if not 0 <= lo <= hi:
        raise PlanError(f"expected positions 0 <= lo <= hi to skip, got {lo}:{hi}")
    return lo, hi


def _check_ticket(ticket: Ticket, source: PositionSource) -> None:
    if ticket.digest != source.digest:
        raise StateError(
            f"expected a ticket of the plan {source.digest}, got {ticket} of the plan {ticket.digest}; build the "
            "dataset with the same data, transforms and seeds as the run that gave it"
        )
