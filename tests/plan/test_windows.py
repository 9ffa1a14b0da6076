"""Steps, windows and pairs against lists made in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.spec import Field, Spec
from penstock.errors import PlanError
from penstock.formats.memory import MemorySource
from penstock.plan import Episodes, Pairs, Plan, Steps, Windows
from penstock.testing.plans import episodes_of

SPEC = Spec(
    {
        "observations/x": Field(np.dtype("i8"), (), "boundary"),
        "actions": Field(np.dtype("i8"), (), "step"),
        "seed": Field(np.dtype("i8"), (), "episode"),
    }
)


def stored(lengths: list[int]) -> MemorySource:
    """Values that tell where they come from: 1000 * (episode + 1) + row + 1, never 0."""
    columns: dict[str, Any] = {
        "observations/x": [1000 * (e + 1) + t + 1 for e, n in enumerate(lengths) for t in range(n + 1)],
        "actions": [1000 * (e + 1) + t + 1 for e, n in enumerate(lengths) for t in range(n)],
        "seed": [1000 * (e + 1) for e in range(len(lengths))],
    }
    arrays = {path: np.array(values, np.int64) for path, values in columns.items()}
    return MemorySource(SPEC, arrays, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]))


def batch(source: MemorySource, plan: Plan, k: Any = None) -> dict[str, list[Any]]:
    """All samples as lists, masks as 0 and 1."""
    selections = plan.resolve(np.arange(len(plan)) if k is None else k)
    out = {}
    for read in plan.reads:
        column: Any = source.read([read.column], selections[read.view])[read.column]
        out[read.name] = (column[:, 0] if read.squeeze else column).tolist()
    return out | {mark.name: selections[mark.view].mask().astype(int).tolist() for mark in plan.marks}


def window(e: int, rows: list[int], limit: int, pad: str) -> tuple[list[int], list[int]]:
    """Values and mask of one range, as the docstring of Windows tells it."""
    inside = [int(0 <= t < limit) for t in rows]
    nearest = [min(max(t, 0), limit - 1) for t in rows]
    values = [1000 * (e + 1) + t + 1 if i or pad == "repeat" else 0 for t, i in zip(nearest, inside, strict=True)]
    return values, inside


def expected(lengths: list[int], w: Windows, ranges: dict[str, tuple[str, range]]) -> dict[str, list[Any]]:
    """Every window by brute force. `ranges` names all outputs but the episode's, with column and rows."""
    own = {entry[0] for entry in w.columns}
    out: dict[str, list[Any]] = {name: [] for name in [*ranges, "seed"]}
    if w.pad != "drop":
        out |= {
            "mask" if name not in own and name[:-2] not in own else f"{name.removesuffix('/x')}_mask": []
            for name in ranges
        }
    for e, steps in enumerate(lengths):
        limits = {
            name: steps + int(column == "observations/x" and name.removesuffix("/x") in own)
            for name, (column, _) in ranges.items()
        }
        before, after = (0, 0) if w.pad == "drop" else (w.pad_before, w.pad_after)
        steps_before = range(0 if w.pad == "drop" or before is None else -50, 0)
        steps_after = range(steps, steps if w.pad == "drop" or after is None else steps + 50)
        fits = [
            t
            for t in [*steps_before, *range(steps), *steps_after]
            if (before is None or all(t + rows[0] >= -before for _, rows in ranges.values()))
            and (after is None or all(t + rows[-1] < limits[name] + after for name, (_, rows) in ranges.items()))
            and steps
        ]
        for t in fits[:: w.stride]:
            out["seed"].append(1000 * (e + 1))
            masks: dict[str, list[int]] = {}
            for name, (_, rows) in ranges.items():
                values, inside = window(e, [t + row for row in rows], limits[name], w.pad)
                out[name].append(values)
                masks[f"{name.removesuffix('/x')}_mask" if name.removesuffix("/x") in own else "mask"] = inside
            if w.pad != "drop":
                for name, inside in masks.items():
                    out[name].append(inside)
    return out


lengths_of = st.lists(st.integers(0, 9), min_size=1, max_size=6)
pads = st.sampled_from(["drop", "zero", "repeat"])


def drawn_limits(data: st.DataObject, pad: str, width: int) -> dict[str, Any]:
    """Limits of the padding before and after, or none."""
    limits = st.none() | st.integers(0, width)
    return {} if pad == "drop" else {"pad_before": data.draw(limits), "pad_after": data.draw(limits)}


@settings(deadline=None, max_examples=200)
@given(lengths_of, st.integers(1, 6), st.integers(0, 4), st.integers(1, 4), pads, st.integers(1, 3), st.data())
def test_windows_equal_brute_force(
    lengths: list[int], length: int, past: int, stride: int, pad: Any, skip: int, data: st.DataObject
) -> None:
    w = Windows(length, past, stride, pad, frame_skip=skip, **drawn_limits(data, pad, (length - 1) * skip))
    default = range(-past * skip, (length - past) * skip, skip)
    ranges = {"observations/x": ("observations/x", default), "actions": ("actions", default)}
    assert batch(stored(lengths), w.plan(Episodes.of(stored(lengths)))) == expected(lengths, w, ranges)


span = st.tuples(st.integers(-4, 4), st.integers(1, 6)).map(lambda r: (r[0], r[0] + r[1]))
spans = span | st.tuples(span, st.integers(1, 3)).map(lambda r: (*r[0], r[1]))


@settings(deadline=None, max_examples=200)
@given(lengths_of, spans, spans, spans, st.integers(1, 3), pads, st.data())
def test_ranges_equal_brute_force(
    lengths: list[int],
    seen: tuple[int, ...],
    done: tuple[int, ...],
    later: tuple[int, ...],
    stride: int,
    pad: Any,
    data: st.DataObject,
) -> None:
    rows = {"observations/x": range(*seen), "actions": range(*done), "next_observations/x": range(*later)}
    width = max(each[-1] for each in rows.values()) - min(each[0] for each in rows.values())
    columns: dict[str, Any] = {"observations": seen, "actions": done, "next_observations": ("observations", *later)}
    w = Windows(3, stride=stride, pad=pad, columns=columns, **drawn_limits(data, pad, width))
    ranges = {
        "observations/x": ("observations/x", rows["observations/x"]),
        "actions": ("actions", rows["actions"]),
        "next_observations/x": ("observations/x", rows["next_observations/x"]),
    }
    assert batch(stored(lengths), w.plan(Episodes.of(stored(lengths)))) == expected(lengths, w, ranges)


@given(lengths_of)
def test_steps_equal_brute_force(lengths: list[int]) -> None:
    got = batch(stored(lengths), Steps(next_observations=True).plan(Episodes.of(stored(lengths))))
    steps = [(e, t) for e, n in enumerate(lengths) for t in range(n)]
    assert got == {
        "observations/x": [1000 * (e + 1) + t + 1 for e, t in steps],
        "actions": [1000 * (e + 1) + t + 1 for e, t in steps],
        "seed": [1000 * (e + 1) for e, _ in steps],
        "next_observations/x": [1000 * (e + 1) + t + 2 for e, t in steps],
    }


@given(lengths_of, st.integers(1, 4), st.booleans())
def test_pairs_equal_brute_force(lengths: list[int], offset: int, last: bool) -> None:
    got = batch(stored(lengths), Pairs(offset, last).plan(Episodes.of(stored(lengths))))
    anchors = [(e, t) for e, n in enumerate(lengths) for t in range(n + last - offset)]
    pairs = [[1000 * (e + 1) + t + 1, 1000 * (e + 1) + t + 1 + offset] for e, t in anchors]
    want = {"observations/x": pairs, "actions": pairs, "seed": [1000 * (e + 1) for e, _ in anchors]}
    if last:
        del want["actions"]
    assert got == want


def test_a_longer_prefix_wins() -> None:
    episodes = episodes_of(
        [9], {"observations/image": "boundary", "observations/joints": "boundary", "actions": "step"}
    )
    plan = Windows(1, columns={"observations": (0, 2), "observations/image": (0, 3)}).plan(episodes)
    lengths = {read.name: len(plan.views[read.view].steps) for read in plan.reads}
    assert lengths == {"observations/image": 3, "observations/joints": 2, "actions": 1}


def test_columns_of_one_range_share_their_mask() -> None:
    episodes = episodes_of([4], {"infos/before": "boundary", "infos/during": "step", "actions": "step"})
    plan = Windows(2, pad="zero", columns={"infos": (0, 2)}).plan(episodes)
    assert [mark.name for mark in plan.marks] == ["mask", "infos_mask"]
    assert {view.end for view in plan.views} == {0}


def test_outputs_in_the_order_of_the_columns() -> None:
    plan = Windows(2, pad="zero", columns={"next_observations": ("observations", 1, 3)}).plan(episodes_of([4]))
    assert [r.name for r in plan.reads] == ["observations", "actions", "rewards", "seed", "next_observations"]
    assert [r.squeeze for r in plan.reads] == [False, False, False, True, False]
    assert [mark.name for mark in plan.marks] == ["mask", "next_observations_mask"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Windows(0), "Windows length to be an integer of at least 1, got 0"),
        (lambda: Windows(2.0), "length to be an integer"),
        (lambda: Windows(True), "length to be an integer"),
        (lambda: Windows(2, past=-1), "past to be an integer of at least 0"),
        (lambda: Windows(2, stride=0), "stride to be an integer of at least 1"),
        (lambda: Windows(2, pad="edge"), "pad to be 'drop', 'zero' or 'repeat', got 'edge'"),
        (lambda: Windows(2, columns={"actions": (3, 3)}), "lo < hi and .* for 'actions', got 3:3"),
        (lambda: Windows(2, columns={"actions": (3,)}), r"expected \(lo, hi\), \(lo, hi, every\) or .* for 'actions'"),
        (lambda: Windows(2, columns={"actions": (0.5, 2)}), r"expected \(lo, hi\)"),
        (lambda: Windows(2, columns={"actions": ("a", "b", "c")}), r"expected \(lo, hi\)"),
        (lambda: Windows(2, columns={"actions": 5}), r"expected \(lo, hi\)"),
        (lambda: Windows(2, columns={"actions": ()}), r"expected \(lo, hi\)"),
        (lambda: Windows(2, columns={"actions": (0, 2, 0)}), "step of 1 or more for 'actions', got 0:2:0"),
        (lambda: Windows(2, frame_skip=0), "frame_skip to be an integer of at least 1"),
        (lambda: Windows(2, pad="zero", pad_before=-1), "pad_before to be an integer of at least 0"),
        (lambda: Windows(2, pad_after=0), "pad_after with pad='zero' or 'repeat'"),
        (lambda: Windows(3, pad="zero", pad_after=5, frame_skip=2), "pad_after of at most 4, .* got 5"),
        (lambda: Windows(2, columns={"action": (0, 2)}), "a column among .* got 'action'"),
        (lambda: Windows(2, columns={"seed": (0, 2)}), "step or boundary columns for the range of 'seed'"),
        (lambda: Windows(2, columns={"rewards": ("actions", 0, 2)}), "a new name for 'actions', got 'rewards'"),
        (
            lambda: Windows(2, columns={"rewards/x": ("actions", 0, 2)}),
            "different names, got 'rewards' and 'rewards/x'",
        ),
        (lambda: Windows(2, pad="zero", columns={"mask": ("actions", 0, 2)}), "different names, got 'mask' and 'mask'"),
        (lambda: Pairs(0), "Pairs offset to be an integer of at least 1"),
    ],
)
def test_what_cannot_be_planned(make: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make().plan(episodes_of([9]))


def test_next_observations_need_boundary_observations() -> None:
    with pytest.raises(PlanError, match="a column among"):
        Steps(next_observations=True).plan(episodes_of([3], {"actions": "step"}))
    with pytest.raises(PlanError, match=r"T \+ 1 rows"):
        Steps(next_observations=True).plan(episodes_of([3], {"observations": "step"}))
    for align in ("boundary", "step"):
        stored = {"observations": align, "next_observations/x": "step"}
        with pytest.raises(PlanError, match=r"'next_observations/x' as a column .* samples have already; use steps"):
            Steps(next_observations=True).plan(episodes_of([3], stored))
    with pytest.raises(PlanError, match="boundary columns"):
        Pairs(last=True).plan(episodes_of([3], {"actions": "step"}))


def test_ranges_compare_whatever_their_order() -> None:
    one = Windows(2, columns={"a": (0, 1), "b": ("c", 0, 2)})
    assert one == Windows(2, columns={"b": ("c", 0, 2), "a": (0, 1)})
    assert hash(one) == hash(Windows(2, columns=one.columns))
    assert Windows(np.int64(2)) == Windows(2)


def test_a_billion_windows_need_tables_per_episode_only() -> None:
    plan = Windows(16).plan(episodes_of([10**12, 15, 10**12]))
    assert len(plan) == 2 * (10**12 - 15)
    assert [s.start.tolist() for s in plan.resolve(np.array([len(plan) - 1, 10**12 - 15]))] == [
        [2 * 10**12 + 15 - 16 + 2, 10**12 + 15 + 2],
        [2 * 10**12 + 15 - 16, 10**12 + 15],
        [2, 2],
    ]
