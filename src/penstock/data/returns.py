"""Ready-made functions for `EpisodeDataset.with_column`: returns, advantages, and numbers of steps.

All work on many episodes at once. Sums are computed in float64, and stored as float32 unless `with_column` has another
`dtype`.

An episode ends in one of two ways. A step with `terminations` True has no future, so nothing is added after it. Every
other last step was cut off: `truncations` is set, or the record stops. There, the value of the last observation
stands for the rewards that were not seen. A termination inside an episode, such as a lost life, also separates the
steps before it from those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import SupportsFloat

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, FloatArray
from penstock.core.narrowing import is_integer
from penstock.core.spec import Align
from penstock.data.episode_function import EpisodeFunction, EpisodeRows
from penstock.errors import ArgumentError, DataError, SpecError
from penstock.kernels import returns as kernels


def role_mask(start: Sequence[int], end: Sequence[int], *, tokens: str = "tokens") -> EpisodeFunction:
    """Mask of the tokens of one role in a conversation, such as the assistant's.

    A turn begins after the tokens `start`, and ends with the tokens `end`, which belong to it: the model has to learn
    to end its turn. A turn without an end goes on to the end of the episode. As the column `loss_mask`, the layouts of
    packs read it: see `Loadable.loader`.

    Args:
        start: Tokens before each turn of the role, such as the tokens of `<|im_start|>assistant` and a line end.
        end: Tokens that end a turn, such as `<|im_end|>`.
        tokens: Step column of tokens. The default is `"tokens"`.

    Returns:
        A function for `with_column`: a step column, bool.

    Raises:
        ArgumentError: `start` or `end` is empty.
        SpecError: When computed: the tokens are no integers.

    Example:
        >>> import penstock
        >>> data = penstock.from_arrays({"tokens": [1, 90, 5, 6, 99, 1, 91, 7, 8, 99]}, lengths=[10])
        >>> data = data.with_column("loss_mask", role_mask(start=[1, 91], end=[99]))
        >>> data.steps()[:]["loss_mask"].astype(int).tolist()
        [0, 0, 0, 0, 0, 0, 0, 1, 1, 1]
    """
    if len(start) == 0 or len(end) == 0:
        raise ArgumentError(f"expected tokens that start and end a turn, got {list(start)} and {list(end)}")
    words = {"start": tuple(map(int, start)), "end": tuple(map(int, end))}
    text = f"role_mask(start={words['start']}, end={words['end']}, tokens={tokens!r})"
    compute = partial(_role_mask, tokens=tokens, **words)
    return EpisodeFunction(compute, {tokens: ("step",)}, dtype="bool", text=text)


def _role_mask(rows: EpisodeRows, *, tokens: str, start: tuple[int, ...], end: tuple[int, ...]) -> BoolArray:
    words = np.asarray(rows[tokens])
    if words.dtype.kind not in "iu" or words.ndim != 1:
        raise SpecError(f"expected tokens as integers in {tokens!r}, got {words.dtype}{list(words.shape)}")
    place = np.arange(len(words))
    begin = np.repeat(rows.offsets("step")[:-1], rows.lengths)
    opened = _last(_after(words, start, begin))
    closed = _last(_after(words, end, begin))
    return (opened >= begin) & (opened > closed) & (opened <= place)


def _after(words: np.ndarray, wanted: tuple[int, ...], begin: np.ndarray) -> BoolArray:
    """`[m]` whether the tokens before each one are the wanted ones, in the same episode."""
    matches = np.arange(len(words)) - len(wanted) >= begin
    for back, token in enumerate(reversed(wanted), 1):
        matches[back:] &= words[:-back] == token
    return matches


def _last(matches: BoolArray) -> np.ndarray:
    """Index of the last True so far, or -1."""
    return np.maximum.accumulate(np.where(matches, np.arange(len(matches)), -1))


def returns_to_go(gamma: float = 1.0, *, rewards: str = "rewards") -> EpisodeFunction:
    """Discounted sum of the rewards from each step to the end of its episode.

    `R[t] = r[t] + gamma * R[t + 1]`, and 0 after the last step, also where the episode was truncated. `lambda_returns`
    with `lam=1` adds the value of the last observation there.

    Args:
        gamma: Discount of one step, 0 to 1. The default is 1.
        rewards: Column of rewards, one number a step. The default is `"rewards"`.

    Returns:
        A function for `with_column`: a step column, float32.

    Raises:
        ArgumentError: `gamma` is out of range.

    Example:
        >>> import penstock
        >>> data = penstock.from_arrays({"rewards": [1.0, 2.0, 4.0]}, lengths=[2, 1])
        >>> data.with_column("returns", penstock.columns.returns_to_go(0.5)).steps()[:]["returns"].tolist()
        [2.0, 2.0, 4.0]
    """
    gamma = _share("gamma", gamma)
    return _function(_returns_to_go, _columns(rewards), {"gamma": gamma, "rewards": rewards})


def episode_returns(gamma: float = 1.0, *, rewards: str = "rewards") -> EpisodeFunction:
    """Discounted sum of all rewards of each episode.

    `filter` can use the column: `data.with_column("score", episode_returns()).filter("score >= 100")`.

    Args:
        gamma: Discount of one step, 0 to 1. The default is 1.
        rewards: Column of rewards, one number a step. The default is `"rewards"`.

    Returns:
        A function for `with_column`: an episode column, float32. It is 0 for an episode without steps.

    Raises:
        ArgumentError: `gamma` is out of range.

    Example:
        >>> import penstock
        >>> data = penstock.from_arrays({"rewards": [1.0, 2.0, 4.0]}, lengths=[2, 1])
        >>> scored = data.with_column("score", penstock.columns.episode_returns())
        >>> scored.table()["score"].tolist(), len(scored.filter("score > 3"))
        ([3.0, 4.0], 1)
    """
    gamma = _share("gamma", gamma)
    return _function(_episode_returns, _columns(rewards), {"gamma": gamma, "rewards": rewards}, align="episode")


def n_step_returns(
    n: int,
    gamma: float,
    *,
    bootstrap: str | None = None,
    rewards: str = "rewards",
    terminations: str | None = "terminations",
) -> EpisodeFunction:
    """Discounted sum of the next `n` rewards, and the discounted value of the observation after them.

    The sum ends early at a termination, without a value, and at the end of the episode, with the value of the last
    observation: `r[t] + gamma * r[t + 1] + ... + gamma ** m * V[t + m]`, with `m` at most `n`.

    Args:
        n: Steps, at least 1.
        gamma: Discount of one step, 0 to 1.
        bootstrap: Column of values of the observations. With T + 1 rows (align `"boundary"`) it has the value after the
            last step. With T rows, episodes must end by termination. The default is None: no value is added.
        rewards: Column of rewards, one number a step. The default is `"rewards"`.
        terminations: Column that is True for steps that terminate. None means that no step does. The default is
            `"terminations"`.

    Returns:
        A function for `with_column`: a step column, float32.

    Raises:
        ArgumentError: `n` or `gamma` is out of range.
        DataError: When computed, the values have T rows and an episode does not end by termination.

    Example:
        >>> import penstock
        >>> columns = {"rewards": [1.0, 1.0, 1.0], "values": [0.0, 10.0, 20.0, 30.0]}
        >>> data = penstock.from_arrays(columns, lengths=[3])
        >>> returns = penstock.columns.n_step_returns(2, 0.5, bootstrap="values", terminations=None)
        >>> data.with_column("returns", returns).steps()[:]["returns"].tolist()
        [6.5, 9.0, 16.0]
    """
    columns = _columns(rewards, terminations, bootstrap)
    parameters = {"n": _whole(n), "gamma": _share("gamma", gamma), "bootstrap": bootstrap}
    parameters |= {"rewards": rewards, "terminations": terminations}
    return _function(_n_step_returns, columns, parameters)


def advantages(
    gamma: float,
    lam: float,
    *,
    values: str = "values",
    rewards: str = "rewards",
    terminations: str | None = "terminations",
) -> EpisodeFunction:
    """Generalized advantage estimates (GAE, Schulman et al. 2016, arXiv:1506.02438).

    `A[t] = r[t] + gamma * V[t + 1] - V[t] + gamma * lam * A[t + 1]`. After a termination, `V` and `A` are 0. After
    another last step, `V` is the value of the last observation, and `A` is 0.

    Args:
        gamma: Discount of one step, 0 to 1.
        lam: Weight of longer estimates, 0 to 1.
        values: Column of values of the observations. With T + 1 rows (align `"boundary"`) it has the value after the
            last step. With T rows, episodes must end by termination. The default is `"values"`.
        rewards: Column of rewards, one number a step. The default is `"rewards"`.
        terminations: Column that is True for steps that terminate. None means that no step does. The default is
            `"terminations"`.

    Returns:
        A function for `with_column`: a step column, float32. It is not normalized.

    Raises:
        ArgumentError: `gamma` or `lam` is out of range.
        DataError: When computed, the values have T rows and an episode does not end by termination.

    Example:
        >>> import penstock
        >>> columns = {"rewards": [1.0, 1.0], "terminations": [False, True], "values": [0.5, 0.25, 9.0]}
        >>> data = penstock.from_arrays(columns, lengths=[2])
        >>> data.with_column("advantages", penstock.columns.advantages(1.0, 0.5)).steps()[:]["advantages"].tolist()
        [1.125, 0.75]
    """
    columns = _columns(rewards, terminations, values)
    parameters = {"gamma": _share("gamma", gamma), "lam": _share("lam", lam), "values": values}
    parameters |= {"rewards": rewards, "terminations": terminations}
    return _function(_advantages, columns, parameters)


def lambda_returns(
    gamma: float,
    lam: float,
    *,
    values: str = "values",
    rewards: str = "rewards",
    terminations: str | None = "terminations",
) -> EpisodeFunction:
    """Returns of TD(lambda), the targets of a value function: advantages plus values.

    `G[t] = r[t] + gamma * ((1 - lam) * V[t + 1] + lam * G[t + 1])`. After a termination, both are 0. After another last
    step, both are the value of the last observation.

    Args:
        gamma: Discount of one step, 0 to 1.
        lam: Weight of longer returns, 0 to 1. With 1, the sum of all rewards and the value of the last observation.
        values: Column of values of the observations, as for `advantages`. The default is `"values"`.
        rewards: Column of rewards, one number a step. The default is `"rewards"`.
        terminations: Column that is True for steps that terminate. None means that no step does. The default is
            `"terminations"`.

    Returns:
        A function for `with_column`: a step column, float32.

    Raises:
        ArgumentError: `gamma` or `lam` is out of range.
        DataError: When computed, the values have T rows and an episode does not end by termination.

    Example:
        >>> import penstock
        >>> columns = {"rewards": [1.0, 1.0], "values": [0.0, 2.0, 4.0]}
        >>> data = penstock.from_arrays(columns, lengths=[2])
        >>> targets = penstock.columns.lambda_returns(0.5, 1.0, terminations=None)
        >>> data.with_column("targets", targets).steps()[:]["targets"].tolist()
        [2.5, 3.0]
    """
    columns = _columns(rewards, terminations, values)
    parameters = {"gamma": _share("gamma", gamma), "lam": _share("lam", lam), "values": values}
    parameters |= {"rewards": rewards, "terminations": terminations}
    return _function(_lambda_returns, columns, parameters)


def timesteps() -> EpisodeFunction:
    """Number of each step in its episode, from 0.

    Returns:
        A function for `with_column`: a step column, int32. `MapDataset.with_row_numbers` has them
        without a column.

    Example:
        >>> import penstock
        >>> data = penstock.from_arrays({"rewards": [0.0, 0.0, 0.0]}, lengths=[2, 1])
        >>> data.with_column("timesteps", penstock.columns.timesteps()).steps()[:]["timesteps"].tolist()
        [0, 1, 0]
    """
    return _function(_timesteps, {}, {}, dtype="int32")


def steps_to_end() -> EpisodeFunction:
    """Number of steps after each step of its episode, 0 for the last one.

    Returns:
        A function for `with_column`: a step column, int32.

    Example:
        >>> import penstock
        >>> data = penstock.from_arrays({"rewards": [0.0, 0.0, 0.0]}, lengths=[2, 1])
        >>> data.with_column("left", penstock.columns.steps_to_end()).steps()[:]["left"].tolist()
        [1, 0, 0]
    """
    return _function(_steps_to_end, {}, {}, dtype="int32")


def progress() -> EpisodeFunction:
    """Share of the episode that is done after each step, `(t + 1) / T`: above 0, and 1 for the last step.

    Returns:
        A function for `with_column`: a step column, float32.

    Example:
        >>> import penstock
        >>> data = penstock.from_arrays({"rewards": [0.0, 0.0, 0.0]}, lengths=[2, 1])
        >>> data.with_column("progress", penstock.columns.progress()).steps()[:]["progress"].tolist()
        [0.5, 1.0, 1.0]
    """
    return _function(_progress, {}, {})


def _function(
    compute: Callable[..., AnyArray],
    columns: Mapping[str, tuple[Align, ...]],
    parameters: Mapping[str, object],
    *,
    align: Align = "step",
    dtype: str = "float32",
) -> EpisodeFunction:
    given = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
    text = f"{compute.__name__.removeprefix('_')}({given})"
    return EpisodeFunction(partial(compute, **parameters), columns, align, dtype, text=text)


def _columns(rewards: str, terminations: str | None = None, values: str | None = None) -> dict[str, tuple[Align, ...]]:
    columns: dict[str, tuple[Align, ...]] = {rewards: ("step",)}
    if terminations is not None:
        columns[terminations] = ("step",)
    if values is not None:
        columns[values] = ("boundary", "step")
    return columns


def _share(name: str, value: object) -> float:
    number = float(value) if isinstance(value, SupportsFloat) and not isinstance(value, bool) else np.nan
    if not 0 <= number <= 1:
        raise ArgumentError(f"expected {name} to be a number within 0 to 1, got {value!r}")
    return number


def _whole(n: object) -> int:
    if isinstance(n, bool) or not is_integer(n) or n < 1:
        raise ArgumentError(f"expected n to be a whole number of at least 1, got {n!r}")
    return int(n)


def _returns_to_go(rows: EpisodeRows, gamma: float, rewards: str) -> FloatArray:
    given = _numbers(rows, rewards)
    out = np.empty(len(given))
    kernels.discounted_sums(given, rows.offsets("step"), gamma, out)
    return out


def _episode_returns(rows: EpisodeRows, gamma: float, rewards: str) -> FloatArray:
    sums, lengths = _returns_to_go(rows, gamma, rewards), rows.lengths
    out = np.zeros(len(rows))
    out[lengths > 0] = sums[rows.offsets("step")[:-1][lengths > 0]]
    return out


def _n_step_returns(
    rows: EpisodeRows, n: int, gamma: float, bootstrap: str | None, rewards: str, terminations: str | None
) -> FloatArray:
    given, ended = _numbers(rows, rewards), _ended(rows, terminations)
    values = None if bootstrap is None else _values(rows, bootstrap, ended)
    out = np.empty(len(given))
    kernels.n_step_returns(given, ended, values, rows.offsets("step"), n, gamma, out)
    return out


def _advantages(
    rows: EpisodeRows, gamma: float, lam: float, values: str, rewards: str, terminations: str | None
) -> FloatArray:
    given, ended = _numbers(rows, rewards), _ended(rows, terminations)
    out = np.empty(len(given))
    kernels.advantages(given, ended, _values(rows, values, ended), rows.offsets("step"), gamma, lam, out)
    return out


def _lambda_returns(
    rows: EpisodeRows, gamma: float, lam: float, values: str, rewards: str, terminations: str | None
) -> FloatArray:
    out = _advantages(rows, gamma, lam, values, rewards, terminations)
    known = _numbers(rows, values)
    if rows.spec[values].align == "boundary":
        known = np.delete(known, rows.offsets("boundary")[1:] - 1)
    return out + known


def _timesteps(rows: EpisodeRows) -> AnyArray:
    first = rows.offsets("step")
    return (np.arange(int(first[-1]), dtype=np.int64) - np.repeat(first[:-1], rows.lengths)).astype(np.int32)


def _steps_to_end(rows: EpisodeRows) -> AnyArray:
    first = rows.offsets("step")
    return (np.repeat(first[1:] - 1, rows.lengths) - np.arange(int(first[-1]), dtype=np.int64)).astype(np.int32)


def _progress(rows: EpisodeRows) -> FloatArray:
    return (_timesteps(rows) + 1.0) / np.repeat(rows.lengths, rows.lengths)


def _numbers(rows: EpisodeRows, column: str) -> FloatArray:
    """A column of one number a row, as a new array."""
    array = rows[column]
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "biuf":
        raise SpecError(f"expected one number a row in {column!r}, got {array.dtype} rows of shape {array.shape[1:]}")
    return np.array(array, np.float64)


def _ended(rows: EpisodeRows, terminations: str | None) -> BoolArray:
    """Which steps terminate, `[T]`."""
    if terminations is None:
        return np.zeros(int(rows.offsets("step")[-1]), np.bool_)
    return _numbers(rows, terminations) != 0


def _values(rows: EpisodeRows, column: str, ended: BoolArray) -> FloatArray:
    """Values of all observations, `[T + E]`, one more than steps in each episode."""
    values = _numbers(rows, column)
    if rows.spec[column].align == "boundary":
        return values
    ends = rows.offsets("step")[1:]
    cut_off = (rows.lengths > 0) & ~ended[ends - 1] if len(values) else np.zeros(len(rows), np.bool_)
    if cut_off.any():
        episode = rows.first + int(np.argmax(cut_off))
        raise DataError(
            f"expected a value of the observation after the last step, got {column!r} with one row a step, and episode "
            f"{episode} does not end by termination; use values with T + 1 rows (align='boundary')"
        )
    return np.insert(values, ends, 0.0)
