"""Limits for work ahead: what sets itself, what is kept as given, what is refused."""

# pyright: basic

from __future__ import annotations

import pytest

from penstock.errors import PlanError
from penstock.flow import limits as limits_module
from penstock.flow.limits import PrefetchLimits, cores, free_memory


def test_what_is_left_out_sets_itself(monkeypatch):
    monkeypatch.setattr(limits_module, "cores", lambda: 6)
    monkeypatch.setattr(limits_module, "free_memory", lambda: 100 << 20)
    limits = PrefetchLimits(None, None, None)
    assert (limits.threads, limits.width, limits.most, limits.memory) == (6, 1, 7, 25 << 20)
    for _ in range(20):
        limits.waited()
    assert limits.width == 7
    monkeypatch.setattr(limits_module, "free_memory", lambda: 100 << 30)
    assert PrefetchLimits(None, None, None).memory == 1 << 30
    monkeypatch.setattr(limits_module, "free_memory", lambda: 0)
    assert PrefetchLimits(None, None, None).memory == 1 << 24


def test_what_is_given_is_kept():
    for given, expected in (((3, None), (3, 4)), ((3, 2), (3, 2)), ((0, None), (0, 1)), ((5, None, None, 1), (1, 2))):
        limits = PrefetchLimits(*given, *[None] * (3 - len(given)))
        assert (limits.threads, limits.width) == expected
        limits.waited()
        assert limits.width == expected[1]
    assert PrefetchLimits(None, 5, None).width == 5


def test_room_is_counted_in_items():
    limits = PrefetchLimits(2, 3, 100)
    assert [limits.has_items(n) for n in (0, 2, 3)] == [True, True, False]
    limits.width = 0
    assert limits.has_items(0)  # one item always


def test_impossible_limitss():
    for given in ((-1, None, None), (1, 0, None), (1, 1, 0)):
        with pytest.raises(PlanError):
            PrefetchLimits(*given)


def test_the_machine_is_asked():
    assert cores() >= 1
    assert free_memory() > 1 << 20
