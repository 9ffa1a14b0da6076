"""Layouts of reinforcement-learning libraries: each function arranges a batch of transitions as one library does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray
from penstock.core.columns import Columns, nest, under
from penstock.core.narrowing import is_array, is_mapping
from penstock.errors import SpecError
from penstock.loading.arranged import tuple_class
from penstock.loading.ticket import Batch

ReplayBufferSamples = tuple_class("observations", "actions", "next_observations", "dones", "rewards", "discounts")
CorlBatch = tuple_class("observations", "actions", "rewards", "next_observations", "dones")
FLOAT32 = np.dtype(np.float32)


def sb3(batch: Batch) -> tuple[Any, ...]:
    """Return the `ReplayBufferSamples` of Stable-Baselines3. `dones` are terminations, not time-outs."""
    _require(batch, "sb3", "terminations")
    _refuse(batch, "sb3", "weights")
    actions = _one_array(batch, "actions", "sb3")
    actions = actions.reshape(batch.n, math.prod(actions.shape[1:]))
    return ReplayBufferSamples(
        _sb3_observations(batch, "observations"),
        actions.astype(FLOAT32) if actions.dtype == np.float64 else actions,
        _sb3_observations(batch, "next_observations"),
        _one_column(batch, "terminations", FLOAT32),
        _one_column(batch, "rewards", FLOAT32),
        _one_column(batch, "discounts", FLOAT32) if "discounts" in batch else None,
    )


def corl(batch: Batch) -> tuple[Any, ...]:
    """Return the five float32 arrays of CORL and CleanRL-style files. `dones` are terminations, not time-outs."""
    _require(batch, "corl", "terminations")
    _refuse(batch, "corl", "weights", "discounts")
    return CorlBatch(
        _vectors(batch, "observations", "corl"),
        _vectors(batch, "actions", "corl"),
        _one_column(batch, "rewards", FLOAT32),
        _vectors(batch, "next_observations", "corl"),
        _one_column(batch, "terminations", FLOAT32),
    )


def d3rlpy(batch: Batch) -> dict[str, Any]:
    """Return the fields of d3rlpy's `TransitionMiniBatch`. Next observations of terminal steps are zeros."""
    _require(batch, "d3rlpy", "terminations")
    _refuse(batch, "d3rlpy", "weights", "discounts")
    terminals = _one_column(batch, "terminations", FLOAT32)
    names = ["observations", "actions", "next_observations", *(["next_actions"] if "next_actions" in batch else [])]
    arrays = {name: _floats(batch, name, "d3rlpy") for name in names}
    for name in names[2:]:
        arrays[name] = _zeros_where(terminals[:, 0] > 0, arrays[name])
    rewards = _one_column(batch, "rewards", FLOAT32)
    return {**arrays, "rewards": rewards, "terminals": terminals, "intervals": np.ones_like(rewards)}


def torchrl(batch: Batch) -> dict[str, Any]:
    """Return the nested keys of torchrl's TED format. `done` is true at terminations and at time-outs."""
    _require(batch, "torchrl", "terminations", "truncations")
    _refuse(batch, "torchrl", "discounts")
    terminated, truncated = (_one_column(batch, name, np.dtype(bool)) for name in ("terminations", "truncations"))
    ends = {"terminated": terminated, "truncated": truncated, "done": terminated | truncated}
    reward = _one_column(batch, "rewards", FLOAT32)
    names = {"observations": "observation", "actions": "action"}
    begin = {name: np.zeros_like(flags) for name, flags in ends.items()}
    after = {"observation": _tree(batch, "next_observations"), "reward": reward, **ends}
    return {**_others(batch, names), **{new: _tree(batch, name) for name, new in names.items()}, **begin, "next": after}


def tianshou(batch: Batch) -> dict[str, Any]:
    """Return the keys of tianshou's `Batch`. `done` is true at terminations and at time-outs, and arrays are `[n]`."""
    _require(batch, "tianshou", "terminations", "truncations")
    _refuse(batch, "tianshou", "discounts")
    names = {"observations": "obs", "actions": "act", "next_observations": "obs_next"}
    terminated, truncated = (_one_column(batch, name, np.dtype(bool))[:, 0] for name in ("terminations", "truncations"))
    ends = {"terminated": terminated, "truncated": truncated, "done": terminated | truncated}
    rewards = _one_column(batch, "rewards", np.dtype(np.float64))[:, 0]
    own = {new: _tree(batch, name) for name, new in names.items()}
    return {**_others(batch, names), **own, "rew": rewards, **ends}


def _require(batch: Batch, layout: str, *flags: str) -> None:
    needed = ("observations", "actions", "rewards", "next_observations", *flags)
    if missing := [name for name in needed if name not in batch]:
        raise SpecError(
            f"expected transitions for the layout {layout!r}, got a batch without {missing}: {list(batch)}; make them "
            "with transitions(), and give other names with rename="
        )


def _refuse(batch: Batch, layout: str, *names: str) -> None:
    reasons = {
        "weights": "which change the loss; take the columns that you need as a tuple of names",
        "discounts": "which n-step targets need; use transitions() of one step",
    }
    for name in names:
        if name in batch:
            raise SpecError(
                f"expected no {name} for the layout {layout!r}, which has no place for them, {reasons[name]}"
            )


def _one_array(batch: Batch, name: str, layout: str) -> AnyArray:
    value: Any = batch[name]
    if not is_array(value):
        parts = f"columns {list(value)}" if is_mapping(value) else "rows of different lengths"
        raise SpecError(
            f"expected one array of {name} for the layout {layout!r}, got {parts}; "
            "map(penstock.transforms.FlattenObservations(space)) makes one of observations"
        )
    return value


def _one_column(batch: Batch, name: str, dtype: np.dtype[Any]) -> AnyArray:
    """Return one number for each sample, `[n, 1]`."""
    value: Any = batch[name]
    shapes = [(batch.n,), (batch.n, 1)] if name == "rewards" else [(batch.n,)]  # flags of windows of 1 step are [n, 1]
    if not is_array(value) or value.shape not in shapes:
        shape = value.shape if is_array(value) else "several columns"
        raise SpecError(f"expected one number of {name} for each sample, got {shape}; a layout takes single steps")
    return value.reshape(batch.n, 1).astype(dtype, copy=False)


def _floats(batch: Batch, name: str, layout: str) -> AnyArray:
    """Return a column as float32 `[n, ...]` with at least one more axis."""
    value = _one_array(batch, name, layout)
    return value.reshape(batch.n, *(value.shape[1:] or (1,))).astype(FLOAT32, copy=False)


def _zeros_where(chosen: BoolArray, array: AnyArray) -> AnyArray:
    """Return an array whose chosen rows are zeros."""
    return np.where(chosen.reshape(len(chosen), *[1] * (array.ndim - 1)), array.dtype.type(0), array)


def _vectors(batch: Batch, name: str, layout: str) -> AnyArray:
    value = _floats(batch, name, layout)
    if value.ndim != 2:
        raise SpecError(f"expected a vector of {name} for each sample of the layout {layout!r}, got {value.shape[1:]}")
    return value


def _sb3_observations(batch: Batch, name: str) -> Any:
    """Return observations as the buffer stores them: whole numbers of a `Discrete` space are `[n, 1]`."""
    value: Any = batch[name]
    if not isinstance(value, Columns):
        array = _one_array(batch, name, "sb3")
        return array.reshape(batch.n, 1) if array.ndim == 1 and array.dtype.kind in "iu" else array
    if nested := [path for path in value if "/" in path]:
        raise SpecError(f"expected {name} of one level for the layout 'sb3', got {nested}; rename or flatten them")
    return {key: _sb3_observations(batch, f"{name}/{key}") for key in value}


def _tree(batch: Batch, name: str) -> Any:
    value: Any = batch[name]
    return value.tree() if isinstance(value, Columns) else value


def _others(batch: Batch, names: dict[str, str]) -> dict[str, Any]:
    """Return the columns that have no name in a layout, nested."""
    own = [*names, "next_observations", "rewards", "terminations", "truncations"]
    return nest({path: array for path, array in batch.flat.items() if not any(under(name, path) for name in own)})
