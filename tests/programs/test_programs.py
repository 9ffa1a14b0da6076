"""Random programs against a plain model: lengths, orders, random access, ranks, resuming, tickets.

Every run tries the same 100 programs. `PENSTOCK_PROGRAMS=<number>` adds so many that belong to the commit, so that each
commit tries others. A failure names its seed and prints its program; `PENSTOCK_PROGRAM=<seed>` runs that program alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import zlib
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.columns import Columns
from penstock.data.coverage import EXCLUDED, NOT_CHOSEN
from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import planned_samples
from penstock.data.planned_rows import planned_rows
from penstock.errors import PlanError
from penstock.plan.batched import BatchedPlan
from tests.programs.generate import Generator
from tests.programs.model import Node, Record, key, real, records_of

GROUPS = 12  # tests that share the programs
FIXED = range(100)
EPOCHS = 3


def seeds() -> list[int]:
    """Those that every run tries, and more that belong to the commit if they are asked for."""
    if "PENSTOCK_PROGRAM" in os.environ:
        return [int(os.environ["PENSTOCK_PROGRAM"])]
    more = int(os.environ.get("PENSTOCK_PROGRAMS", "0"))
    first = (zlib.crc32(commit().encode()) + 1) * 1_000_000
    return [*FIXED, *range(first, first + more)]


def commit() -> str:
    """The commit that is tested; nothing outside of a checkout."""
    root = Path(__file__).parents[2]
    asked = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip()


@pytest.mark.parametrize("group", range(GROUPS))
def test_random_programs(group: int) -> None:
    for seed in seeds()[group::GROUPS]:
        node = None
        try:
            node = Generator(seed).program()
            check(node, seed)
        except Exception as error:
            text = "it cannot be built" if node is None else node.text
            raise AssertionError(f"program {seed} fails ({type(error).__name__}: {error}): {text}") from error


def check(node: Node, seed: int) -> None:
    """Everything that holds for any dataset."""
    rng = Random(seed)
    data, plan = node.data, node.data.plan
    generator = Generator(seed)
    again = generator.program().data
    assert again.fingerprint == data.fingerprint
    if plan.empty:
        with pytest.raises(PlanError):
            planned_samples(data).at(np.zeros(1, np.int64))
        return
    check_epochs(node)
    if _runs_out(node):
        return
    flat = node.sequence(0, plan.start(_first_full(node) + EPOCHS))
    k = np.array([rng.randrange(len(flat)) for _ in range(30)])
    assert [key(r) for r in records_of(planned_samples(data).at(k))] == [key(flat[i]) for i in k]
    part = slice(rng.randint(-9, 9), rng.randint(-9, 30), rng.choice([-3, -1, 1, 2, 10**20]))
    assert records_of(data[part]) == node.records(0)[part]
    lengths = plan.lengths(k)[next(read.view for read in plan.reads if read.name == "x")]
    assert lengths.tolist() == [len(real(flat[i])) for i in k]
    check_loading(node, again, rng)
    check_tickets(node, rng)
    check_uses(node, again, rng)
    if seed % 3 == 0:  # it plans an epoch several times
        check_coverage(node, generator, rng)
    check_iteration(node, again, rng)


def check_epochs(node: Node) -> None:
    """Length, starts, sizes, and what a plan says of its epochs."""
    data, plan = node.data, node.data.plan
    epochs = [node.records(e) for e in range(EPOCHS)]
    sizes = [len(records) for records in epochs]
    assert len(data) == sizes[0]
    assert plan.sizes(np.arange(EPOCHS)).tolist() == sizes
    assert [plan.start(e) for e in range(EPOCHS + 1)] == [0, *np.cumsum(sizes).tolist()]
    epoch, place = plan.locate(np.arange(plan.start(EPOCHS)))
    assert epoch.tolist() == [e for e, n in enumerate(sizes) for _ in range(n)]
    assert place.tolist() == [i for n in sizes for i in range(n)]
    assert plan.uneven or len(set(sizes)) == 1
    for e, records in enumerate(epochs):
        assert list(map(key, node.observed(e))) == list(map(key, records)), f"epoch {e} has other records"
    rows = [Counter(value for record in records for value in real(record)) for records in epochs]
    assert not plan.steady or rows[0] == rows[1] == rows[2]
    assert not plan.periodic or epochs[0] == epochs[1] == epochs[2]


def check_loading(node: Node, again: Any, rng: Random) -> None:
    """Ranks give the order together; a state resumes it with other batches and ranks; skipped samples are left out."""
    plan, world = node.data.plan, rng.randint(1, 3)
    size = rng.randint(world, 12)
    planned = isinstance(plan, BatchedPlan)  # a loader then takes no size
    loaders = [node.data.loader(None if planned else size, rank=r, world=world, threads=0) for r in range(world)]
    end = plan.start(_first_full(node) + 1)
    flat = node.sequence(0, end)
    given = joined(loaders, None)
    assert given == list(map(key, flat))
    taken = joined(loaders, rng.randint(1, 3))
    state = json.loads(json.dumps(loaders[0].state_dict()))
    position = state["position"]
    assert len(given) + len(taken) == position
    other = again.loader(None if planned else rng.randint(1, 12), rank=0, world=1, threads=0)
    other.load_state_dict(state)
    rest = joined([other], None)
    assert rest  # of the epoch under way, or the next one with samples
    assert rest == list(map(key, node.sequence(0, position + len(rest))[position:]))
    assert position + len(rest) in [plan.start(e) for e in range(40)]
    lo = rng.randrange(end)
    hi = rng.randint(lo, end)
    loader = node.data.loader(None if planned else size, rank=0, world=1, threads=0)
    loader.skip((lo, hi))
    left = flat[:lo] + flat[hi:]
    if left:
        assert joined([loader], None) == list(map(key, left))


def _runs_out(node: Node) -> bool:
    """Whether no epoch after the first ones has samples, as of a ramp to packs that are shorter than all samples."""
    plan = node.data.plan
    sizes = plan.sizes(np.arange(_first_full(node) + 1, 120)) if plan.uneven else np.ones(1)
    if sizes.any():
        return False
    with pytest.raises(PlanError, match="expected samples in one of 100 epochs"):
        plan.locate(np.array([plan.start(120)]))
    return True


def _first_full(node: Node) -> int:
    """The first epoch with samples."""
    return next(e for e in range(100) if node.data.plan.start(e + 1))


def joined(loaders: list[Any], batches: int | None) -> list[str]:
    """The samples of the batches of all ranks, to the end of the epoch or so many batches."""
    found: list[str] = []
    for number, shares in enumerate(zip(*map(iter, loaders), strict=True)):
        for share in shares:
            found += map(key, records_of(share))
        if batches is not None and number + 1 == batches:
            break
    return found


def check_tickets(node: Node, rng: Random) -> None:
    """What `why` says of a batch are the rows that it has."""
    planned = isinstance(node.data.plan, BatchedPlan)
    loader = node.data.loader(None if planned else rng.randint(1, 9), rank=0, world=1, threads=0)
    bases = [EpisodeDataset(source).steps()[:]["x"].tolist() for source in node.data.sources]
    for batch in loader:
        table = loader.why(str(batch.ticket), "x").table
        lines = zip(*(table[name].tolist() for name in ("source", "first_row", "rows")), strict=True)
        told = [value for source, first, rows in lines for value in bases[source][first : first + rows]]
        assert told == [value for record in records_of(batch) for value in real(record)]


def check_uses(node: Node, again: Any, rng: Random) -> None:
    """The uses of episodes are all samples with rows of them, in the batches, rows and ranks that give them."""
    plan, world = node.data.plan, rng.randint(1, 3)
    size = None if isinstance(plan, BatchedPlan) else rng.randint(world, 9)
    end = plan.start(_first_full(node) + 1)
    flat = node.sequence(0, end)
    skipped = (lo := rng.randrange(end), rng.randint(lo, min(lo + 3, end)) if rng.random() < 0.4 else lo)

    def loader(rank: int, size: int | None, world: int) -> Any:
        made = again.loader(size, rank=rank, world=world, threads=0)
        made.skip(skipped)
        return made

    if skipped[1] - skipped[0] == end:
        return
    shares = [list(loader(rank, size, world)) for rank in range(world)]
    first, taken = loader(0, size, world), rng.randint(0, len(shares[0]))
    for _ in zip(range(taken), first, strict=False):
        pass
    source = rng.randrange(len(node.data.sources))
    episodes = [e for e in range(len(node.data.sources[source])) if rng.random() < 0.3]
    mine, bare = samples_with(node, source, episodes, end)
    told = first.uses(episodes, source, until=end)
    lines = list(zip(*(told.table[name].tolist() for name in COLUMNS), told.tickets, strict=True))
    positions = [line[0] for line in lines]
    assert sorted({*positions} - bare) == sorted(mine - bare)
    assert len(positions) == len({*positions})
    for position, number, row, rank, given, is_skipped, ticket in lines:
        assert is_skipped == (skipped[0] <= position < skipped[1]) == (ticket is None)
        if ticket is not None:
            share = shares[rank][number]
            assert ticket == share.ticket
            assert given == (number < taken)
            place = row - rank * sum(each[number].n for each in shares) // world
            assert key(records_of(share)[place]) == key(flat[position])
    other = loader(0, None if size is None else rng.randint(1, 9), 1)
    other.load_state_dict(json.loads(json.dumps(first.state_dict())))
    told = other.uses(episodes, source, until=end)
    state = told.position
    batches = {batch.ticket: batch for batch in other} if state < end else {}
    for position, _, row, _, given, is_skipped, ticket in zip(
        *(told.table[name].tolist() for name in COLUMNS), told.tickets, strict=True
    ):
        assert given == (position < state and not is_skipped)
        if position >= state and not is_skipped:
            assert key(records_of(batches[ticket])[row]) == key(flat[position])


def check_coverage(node: Node, generator: Generator, rng: Random) -> None:
    """Rows are in a sample where a batch has them; the reasons of the others are those of the level that loses them."""
    plan, epoch = node.data.plan, _first_full(node)
    lo, hi = plan.start(epoch), plan.start(epoch + 1)
    skipped = (first := rng.randrange(lo, hi), rng.randint(first, min(first + 3, hi)) if rng.random() < 0.4 else first)
    left = hi - lo - skipped[1] + skipped[0]
    size = None if isinstance(plan, BatchedPlan) else rng.randint(1, 5)
    drop_last = size is not None and rng.random() < 0.5
    if left < (size or 1):
        return
    loader = node.data.loader(size, drop_last=drop_last, rank=0, world=1, threads=0)
    loader.skip(skipped)
    told = loader.coverage("x", epoch=epoch)
    given = {value for batch in loader for record in records_of(batch) for value in real(record)}
    known = {value for record in node.records(epoch) for value in real(record)}
    bases = [EpisodeDataset(source).steps()[:]["x"].tolist() for source in node.data.sources]
    chosen = {value for each in generator.chosen.values() for one in each for value in one.x}
    parts = {generator.rows[value][:2] for value in chosen}
    rows = {value for base in bases for value in base}
    lost: dict[int, str] = {}
    for source, episode, step, many, reason in zip(*(told.table[name].tolist() for name in RANGES), strict=True):
        begin = int(node.data.sources[source].offsets[episode]) + step
        lost |= dict.fromkeys(bases[source][begin : begin + many], told.reasons[reason])
    assert lost.keys() == rows - given
    assert (told.covered, told.rows) == (sum(len(base) for base in bases) - len(lost), sum(len(base) for base in bases))
    for value, reason in lost.items():
        assert (value in known) == (reason in ("skipped", "in a short last batch, which is dropped"))
        assert (value in chosen) == (reason not in (NOT_CHOSEN, EXCLUDED))
        assert (reason == EXCLUDED) == (value not in chosen and generator.rows[value][:2] in parts)


RANGES = ("source", "episode", "step", "rows", "reason")
COLUMNS = ("position", "batch", "row", "rank", "given", "skipped")


def samples_with(node: Node, source: int, episodes: list[int], end: int) -> tuple[set[int], set[int]]:
    """The samples with a row of some episodes, and those without any row."""
    samples, k = planned_samples(node.data), np.arange(end)
    mine, bare = set[int](), set(range(end))
    for number, selection in enumerate(samples.resolve(k)):
        lines = planned_rows(samples, selection, number)
        bare -= set(lines["sample"].tolist())
        those = (lines["source"] == source) & np.isin(lines["episode"], episodes)
        mine |= set(lines["sample"][those].tolist())
    return mine, bare


def check_iteration(node: Node, again: Any, rng: Random) -> None:
    """Blocks of any size are the epochs in order, and a state goes on anywhere."""
    size, plan = rng.randint(1, 9), node.data.plan
    iterator = iter(penstock.IterDataset.of(node.data, size, epochs=2).rebatch(rng.randint(1, 9)))
    found: list[str] = []
    for _ in range(rng.randint(0, 4)):
        found += map(key, records_of(next(iterator, Columns({}, 0))))
    state = json.loads(json.dumps(iterator.state_dict()))
    other = iter(penstock.IterDataset.of(again, size, epochs=2).rebatch(rng.randint(1, 9)))
    other.load_state_dict(state)
    for block in other:
        found += map(key, records_of(block))
    assert found == list(map(key, node.sequence(0, plan.start(2))))


def test_a_record_is_read_without_what_is_masked() -> None:
    record: Record = {"x": [1, 2, 0], "mask": [True, True, False], "e": 1}
    assert real(record) == [1, 2]
