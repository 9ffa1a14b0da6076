"""`role_mask`: which tokens of a conversation a model learns to write, for `EpisodeDataset.with_column`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from penstock.core.arrays import BoolArray
from penstock.data.episode_function import EpisodeFunction, EpisodeRows
from penstock.errors import ArgumentError, SpecError


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
