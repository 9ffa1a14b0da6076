"""Tickets: 16 bytes there and back, damage, and the batches that carry them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.core.columns import Columns
from penstock.data.from_arrays import from_arrays
from penstock.errors import StateError
from penstock.loading import Batch, Ticket

DIGEST = st.binary(min_size=4, max_size=4).map(bytes.hex)


@given(st.integers(0, (1 << 62) - 1), st.integers(0, (1 << 32) - 1), DIGEST)
def test_round_trips(position, count, digest):
    ticket = Ticket(position, count, digest)
    assert len(bytes(ticket)) == 16
    assert len(str(ticket)) == 32
    assert bytes.fromhex(str(ticket)) == bytes(ticket)
    assert Ticket.parse(str(ticket)) == Ticket.parse(bytes(ticket)) == Ticket.parse(ticket) == ticket
    assert Ticket.parse(f" {str(ticket).upper()}\n") == ticket


@pytest.mark.parametrize(
    "damaged", ["", "12", "g" * 32, "0" * 31, "0" * 33, "f" * 32, b"", b"x" * 15, b"\xff" * 16, "٣" * 32]
)
def test_damaged_tickets(damaged):
    with pytest.raises(StateError, match="expected a ticket"):
        Ticket.parse(damaged)


@pytest.mark.parametrize("parts", [(-1, 0, "0" * 8), (0, 1 << 32, "0" * 8), (0, 0, "0" * 7), (0, 0, "x" * 8)])
def test_numbers_that_do_not_fit(parts):
    with pytest.raises(StateError):
        Ticket(*parts)


def test_tickets_name_the_rows_of_each_rank_and_the_plan():
    data = from_arrays({"x": np.arange(20)}, lengths=[20]).steps().shuffle()
    tickets = [[batch.ticket for batch in data.loader(8, rank=rank, world=3)] for rank in range(3)]
    assert [(t.position, t.count) for t in tickets[1]] == [(2, 3), (10, 3), (17, 1)]
    assert {t.digest for ts in tickets for t in ts} == {data.plan.fingerprint[:8]}


def test_a_batch_is_columns_with_a_ticket():
    ticket = Ticket(1, 2, "0" * 8)
    batch = Batch({"a/b": np.arange(2)}, ticket=ticket)
    assert isinstance(batch, Columns)
    copied = pickle.loads(pickle.dumps(batch))
    assert copied.ticket == ticket
    assert copied["a"]["b"].tolist() == [0, 1]
    assert type(batch.take(slice(0, 1))) is Columns


def test_blocks_of_a_stream_have_no_ticket_and_say_so():
    loader = penstock.IterDataset.of(from_arrays({"x": np.arange(4)}, lengths=[4]).steps(), 2).loader()
    block = next(iter(loader))
    with pytest.raises(StateError, match="no position"):
        _ = block.ticket
    with pytest.raises(StateError, match="IterDataset"):
        loader.why(Ticket(0, 1, "0" * 8))
