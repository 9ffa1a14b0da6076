"""Where and Split: which episodes stay."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.columns import Columns
from penstock.errors import PlanError
from penstock.plan import Episodes, Split, Steps, Where
from penstock.plan.where import evaluate
from penstock.testing.plans import episodes_of
from tests.threads import taking_turns


def described(**columns: Any) -> Episodes:
    table = Columns({name: np.array(values) for name, values in columns.items()})
    n = table.n
    plain = episodes_of(list(range(1, n + 1)))
    return Episodes(plain.source, plain.index, plain.start, plain.length, plain.aligns, "x", lambda: table)


EPISODES = described(
    id=[0, 1, 2, 3, 4], reward=[1.5, float("nan"), -2.0, 100.0, 7.0], steps=[5, 10, 15, 20, 25], done=[0, 1, 1, 0, 1]
)


@pytest.mark.parametrize(
    ("condition", "chosen"),
    [
        ("reward >= 1.5", [0, 3, 4]),
        ("reward < 1e9", [0, 2, 3, 4]),
        ("reward != 7", [0, 2, 3]),
        ("not reward > 5", [0, 1, 2]),
        ("reward > 5 and steps > 20", [4]),
        ("reward > 50 or steps == 5", [0, 3]),
        ("5 < steps <= 20", [1, 2, 3]),
        ("steps % 10 == 0", [1, 3]),
        ("reward / steps > 0.29 or -reward >= 2", [0, 2, 3]),
        ("(id + 1) * 5 - steps == 0 and (done == 1 or id == 0)", [0, 1, 2, 4]),
        (" id / 0 > 1 ", [1, 2, 3, 4]),
        ("id % 0 == 1", []),
        ("id * 9223372036854775807 > 1", [1, 2, 3, 4]),
        ("True", [0, 1, 2, 3, 4]),
        ("1 > 2", []),
        ("id < 9999999999999999999999999", [0, 1, 2, 3, 4]),
        (lambda table: table["steps"] > 12, [2, 3, 4]),
        (lambda table: [True, False, False, True, False], [0, 3]),
    ],
)
def test_the_condition_chooses(condition: Any, chosen: list[int]) -> None:
    left = Where(condition).choose(EPISODES)
    assert left.index.tolist() == chosen
    assert left.table()["steps"].tolist() == [5 * (i + 1) for i in chosen]
    assert len(Steps().plan(left)) == sum(i + 1 for i in chosen)


@pytest.mark.parametrize(
    "condition",
    [
        "__import__('os').system('true')",
        "reward.real > 1",
        "table['reward'] > 1",
        "[r for r in reward]",
        "(lambda: 1)() > 0",
        "reward ** 2 > 1",
        "reward // 2 > 1",
        "reward if id else steps",
        "reward is 1",
        "reward in steps",
        "reward > 'a'",
        "reward > 1j",
        "reward > (id := 3)",
        "f'{reward}' > 1",
        "~done > 1",
        "reward & 1 > 0",
        "missing > 1",
        "steps",
        "steps + 1",
        "steps and reward > 1",
        "not steps",
        "-done",
        "id < 1" + "0" * 400,
        "not " * 2000 + "True",
        "(" * 5000,
        "steps >",
        "",
        "a = 3",
        "steps\0 > 1",
    ],
)
def test_nothing_else_is_an_expression(condition: str) -> None:
    with pytest.raises(PlanError, match="expected"):
        Where(condition).choose(EPISODES)


def test_columns_may_have_names_that_python_keeps_for_statements() -> None:
    table = Columns({"return": np.array([1.0, 2.0, 3.0]), "class": np.array([1, 0, 1])})
    assert evaluate("return >= 2 and not class == 0", table).tolist() == [False, False, True]
    with pytest.raises(PlanError, match=r"got 'return\.class'"):
        evaluate("return.class > 1", table)
    with pytest.raises(PlanError, match="got 'while'"):
        evaluate("while > 1", table)


def test_functions_must_give_booleans() -> None:
    for function in (lambda t: t["steps"], lambda t: np.ones(3, bool), lambda t: np.ones((5, 1), bool)):
        with pytest.raises(PlanError, match=r"one boolean an episode \(5\)"):
            Where(function).choose(EPISODES)
    with pytest.raises(PlanError, match=r"a column among .*, got \.length; it gets the columns of all episodes"):
        Where(lambda episode: episode.length > 2).choose(EPISODES)
    with pytest.raises(AttributeError, match="nothing"):  # a mistake of the function elsewhere stays as it is
        Where(lambda _: np.nothing).choose(EPISODES)
    with pytest.raises(PlanError, match="an expression or a function, got 5"):
        Where(5)  # type: ignore[arg-type]


def test_functions_that_choose_alike_have_one_fingerprint() -> None:
    chosen = [Where(f).choose(EPISODES).fingerprint for f in (lambda t: t["id"] > 2, lambda t: t["id"] >= 3)]
    assert chosen[0] == chosen[1] != Where(lambda t: t["id"] > 1).choose(EPISODES).fingerprint


@settings(deadline=None)
@given(st.integers(0, 200), st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(0, 2**64 - 1))
def test_parts_hold_every_episode_once(n: int, weights: list[int], seed: int) -> None:
    fractions = tuple(w / sum(weights) for w in weights)
    episodes = episodes_of([1] * n)
    parts = [Split(fractions, part, seed).choose(episodes).index for part in range(len(weights))]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
    for part, fraction in zip(parts, fractions, strict=True):
        assert abs(len(part) - fraction * n) < 1 + 1e-9
        assert np.all(np.diff(part) > 0)


def test_counts_are_exact_and_may_leave_some() -> None:
    parts = [set(Split((3, 4), part, seed=9).choose(episodes_of([1] * 10)).index.tolist()) for part in (0, 1)]
    assert [len(part) for part in parts] == [3, 4]
    assert not parts[0] & parts[1]


def test_largest_remainders_are_rounded_up() -> None:
    assert Split((0.5, 0.5)).counts(3) == [2, 1]
    assert Split((0.1, 0.2, 0.7)).counts(4) == [0, 1, 3]
    assert Split((1 / 3, 1 / 3, 1 / 3)).counts(10) == [4, 3, 3]
    assert Split((0.0, 1.0)).counts(7) == [0, 7]


def test_seeds_draw_other_episodes() -> None:
    draws = {tuple(Split((0.5, 0.5), seed=seed).choose(episodes_of([1] * 20)).index.tolist()) for seed in range(50)}
    assert len(draws) == 50
    often = np.bincount([i for draw in draws for i in draw], minlength=20)
    assert often.min() > 10
    assert often.max() < 40


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Split(()), "fractions or numbers of episodes"),
        (lambda: Split((0.5, 0.6)), "fractions adding up to 1"),
        (lambda: Split((1.5, -0.5)), "sizes of 0 or more"),
        (lambda: Split((float("nan"), 1.0)), "sizes of 0 or more"),
        (lambda: Split((5, -1)), "sizes of 0 or more"),
        (lambda: Split(("a", 1)), "fractions or numbers"),
        (lambda: Split((True, 1)), "fractions or numbers"),
        (lambda: Split(part=2), "Split part to be an integer within 0 to 1, got 2"),
        (lambda: Split(seed=-1), "Split seed"),
        (lambda: Split((8, 3)).choose(episodes_of([1] * 10)), "at most 10 episodes, got 11"),
    ],
)
def test_what_cannot_be_split(make: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make()


def test_threads_read_conditions_at_a_time() -> None:
    """`ast.parse` alone fails here before Python 3.13."""

    def choose(depth: int) -> list[int]:
        if depth:
            return choose(depth - 1)
        return [len(Where(f"steps > {k % 5}").choose(EPISODES)) for k in range(500)]

    with taking_turns(), ThreadPoolExecutor(3) as pool:
        found = list(pool.map(choose, (0, 5, 30)))
    assert found == [choose(0)] * 3
