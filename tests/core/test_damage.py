"""Messages of damaged data: warnings, unless the thread that opens the data collects them."""

# pyright: basic

from __future__ import annotations

import threading
import warnings

import pytest

from penstock.core.damage import collected_damage, warn_damage
from penstock.errors import DamageWarning


def test_a_warning_names_the_line_that_the_level_says() -> None:
    def opens() -> None:
        warn_damage("a.tar was cut off", stacklevel=2)

    with pytest.warns(DamageWarning, match="a.tar was cut off") as caught:
        opens()
    assert caught[0].filename == __file__


def test_the_innermost_block_collects() -> None:
    with collected_damage() as outer:
        warn_damage("first")
        with collected_damage() as inner:
            warn_damage("second")
        warn_damage("third")
    assert (outer, inner) == (["first", "third"], ["second"])


def test_threads_that_collect_in_turn_leave_the_filters_as_they_were() -> None:
    """`warnings.catch_warnings` would restore the filters that the first thread had set."""
    entered, left = threading.Event(), threading.Event()
    collected: list[list[str]] = []

    def other() -> None:
        entered.wait(60)
        with collected_damage() as messages:
            left.wait(60)
            warn_damage("of the other thread")
        collected.append(messages)

    before = list(warnings.filters)
    thread = threading.Thread(target=other)
    thread.start()
    with collected_damage() as mine:
        entered.set()
        warn_damage("of this thread")
    with pytest.warns(DamageWarning, match="outside of the block"):
        warn_damage("outside of the block")
    left.set()
    thread.join(60)
    assert (mine, collected) == (["of this thread"], [["of the other thread"]])
    assert warnings.filters == before
