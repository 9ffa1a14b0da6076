"""Sources in turn: each chunk once, one source after the other, in seeded orders; live, replayed, resumed, small."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from live.files import names
from live.test_composed import loader
from live.test_pipeline import FILES, listed
from penstock.errors import StateError
from penstock_live.events import EventLog, SourceLeft
from penstock_live.extractor import SimpleChunkExtractor
from penstock_live.journal import Arrival, Journal
from penstock_live.options import LiveOptions, Stream
from penstock_live.pipeline import LivePipeline


def arrival(i: int, n: int = 5) -> Arrival:
    return Arrival(f"{i}", f"{i:05d}", n, i, i)


def drawn(extractor: SimpleChunkExtractor, n: int = 3) -> list[int]:
    found: list[int] = []
    while (draws := extractor.draw(n)) is not None:
        found += draws.number.tolist()
        extractor.taken(draws.end)
    return found


@pytest.mark.parametrize("seed", [0, 1, 1 << 70])
def test_sources_come_in_turn_each_in_an_order_of_its_own(seed: int) -> None:
    orders = []
    for n in (1, 3, 100):
        extractor = SimpleChunkExtractor(seed)
        extractor.arrive([arrival(i) for i in range(8)])
        extractor.finish()
        orders.append(drawn(extractor, n))
    assert orders[0] == orders[1] == orders[2]
    parts = [[k - 5 * i for k in orders[0][5 * i : 5 * i + 5]] for i in range(8)]
    assert all(sorted(part) == list(range(5)) for part in parts)
    assert len({tuple(part) for part in parts}) > 2


def test_seeds_differ() -> None:
    found = set()
    for seed in range(5):
        extractor = SimpleChunkExtractor(seed)
        extractor.arrive([arrival(0, 50)])
        extractor.finish()
        found.add(tuple(drawn(extractor)))
    assert len(found) == 5


def test_what_arrives_waits_for_its_turn_and_what_is_used_up_leaves() -> None:
    journal, events = Journal(), EventLog()
    extractor = SimpleChunkExtractor(3, journal=journal, events=events)
    found: list[int] = []
    for i in range(2000):
        extractor.arrive([arrival(2 * i, 2), arrival(2 * i + 1, 1)])
        for _ in range(3):
            draws = extractor.draw(1)
            assert draws is not None
            found += draws.number.tolist()
            extractor.taken(draws.end)
        assert len(extractor.sources) <= 4
    with pytest.raises(TimeoutError):
        extractor.draw(1, timeout=0)
    assert [sorted(found[i : i + 2]) for i in (0, 3)] == [[0, 1], [3, 4]]
    assert sorted(found) == list(range(6000))
    assert sum(isinstance(event, SourceLeft) for event in events) > 3990
    assert len(str(extractor.state_dict())) < 1000
    again = SimpleChunkExtractor(3, replay=journal.moves())
    assert drawn(again, 7) == found


def test_a_state_goes_on_with_the_next_draw() -> None:
    whole = SimpleChunkExtractor(7)
    whole.arrive([arrival(i, 1 + i % 4) for i in range(9)])
    whole.finish()
    numbers = drawn(whole)
    for k in range(len(numbers)):
        first = SimpleChunkExtractor(7)
        first.arrive([arrival(i, 1 + i % 4) for i in range(9)])
        for _ in range(k):
            first.draw(1)
        again = SimpleChunkExtractor(7)
        again.load_state_dict(first.state_dict(taken=k))
        again.finish()
        assert drawn(again) == numbers[k:]
    with pytest.raises(StateError):
        SimpleChunkExtractor(8).load_state_dict(first.state_dict())


def in_turn(directory: Path, **options: Any) -> LivePipeline:
    chosen: dict[str, Any] = {"reservoir": 0, "batch_size": 6, "follow": False, **options}
    return LivePipeline([Stream(loader(directory), in_turn=True)], LiveOptions(**chosen))


def test_a_run_has_one_file_after_the_other_and_all_positions_once(tmp_path: Path) -> None:
    names(tmp_path, FILES)
    with in_turn(tmp_path, window=2, threads=3) as run:  # there is no window
        found = [game for batch in run for game in batch["rows"].view("<u4")[:, 0].tolist()]
    order = list(dict.fromkeys(found))
    assert sorted(order[:1]) == FILES[0]
    at = 0
    for file in FILES:
        assert sorted(order[at : at + len(file)]) == file
        at += len(file)
    with in_turn(tmp_path, threads=1) as run:
        batches = [listed(batch) for batch in run]
        state = run.state_dict()
    assert state["streams"][0]["pool"]["upper"] == len(order)
    assert sum(map(len, batches)) == len(found)
