"""Megatron calls `next` itself: an iterator without end, inside its own wrapper, which repeats the steps of a rerun."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from megatron.core import rerun_state_machine
from megatron.core.rerun_state_machine import RerunDataIterator, RerunMode
from titan import BATCH, pairs, tokens

N = len(tokens())


def loader(rank: int, endless: bool = True) -> Any:
    rows = tokens().repeat() if endless else tokens()
    return rows.loader(BATCH, output=pairs, drop_last=not endless, rank=rank, world=2)


def cyclic_iter(batches: Any) -> Iterator[Any]:
    """What Megatron makes of a dataloader that is no iterator (`--dataloader-type cyclic`)."""
    while True:
        yield from batches


def taken(batches: Any, count: int) -> list[list[int]]:
    return [next(batches)[0]["id"].tolist() for _ in range(count)]


@pytest.fixture
def reruns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megatron keeps batches for reruns, as it does by default when it trains."""
    machine = rerun_state_machine.get_rerun_state_machine()
    monkeypatch.setattr(machine, "mode", RerunMode.VALIDATE_RESULTS)


@pytest.mark.parametrize("endless", [True, False])
def test_next_has_one_epoch_after_another_and_resumes(reruns: None, endless: bool) -> None:
    each = N if endless else N // BATCH * BATCH
    steps = 3 * each // BATCH
    ranks: list[list[list[int]]] = []
    for rank in range(2):
        batches = loader(rank, endless)
        data_iterator = RerunDataIterator(iter(batches) if endless else cyclic_iter(batches))
        first = [next(data_iterator) for _ in range(steps // 2)]
        data_iterator.rewind()
        assert [next(data_iterator) is batch for batch in first] == [True] * len(first)
        state = batches.state_dict()
        assert state["position"] == steps // 2 * BATCH + (0 if endless else (steps // 2 * BATCH // each) * (N - each))
        data_iterator.advance()
        seen = [x["id"].tolist() for x, _ in first] + taken(data_iterator, steps - len(first))
        resumed = loader(rank, endless)
        rest = iter(resumed) if endless else cyclic_iter(resumed)
        resumed.load_state_dict(state)  # also after the iterator was made
        assert taken(RerunDataIterator(rest), steps - len(first)) == seen[len(first) :]
        ranks.append(seen)
    order = [sample for shares in zip(*ranks, strict=True) for share in shares for sample in share]
    epochs = [order[e * each : (e + 1) * each] for e in range(2)]
    assert [len(set(epoch)) for epoch in epochs] == [each] * 2
    assert epochs[0] != epochs[1]
    assert {len(batch) for seen in ranks for batch in seen} == {BATCH // 2}
