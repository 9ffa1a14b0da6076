"""Functions of texts as tokens: fill in the middle, span corruption, and prefixes, for `MapDataset.map(fn, seed=...)`.

A batch has packed rows with `segment_ids`, or single sequences with a `mask`. Every text of a row is changed for
itself, and the results are laid out in rows of a given length. Random numbers of a text are a function of the key of
its sample and of its number in the row, so they do not depend on batch size, ranks or resuming, and change every epoch.

Sources: Bavarian et al., "Efficient training of language models to fill in the middle" (2022); Raffel et al.,
"Exploring the limits of transfer learning with a unified text-to-text transformer" (2020), and the preprocessors of T5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, Int32Array, IntArray, UInt64Array
from penstock.core.columns import Columns
from penstock.core.ragged import offsets_of
from penstock.errors import ArgumentError, PlanError, SpecError
from penstock.plan.keys import mixed

# Kinds of random numbers, each a part of the hash. A change changes every sample.
_CHOSEN = 1
_SUFFIX_FIRST = 2
_CUTS = (3, 4)
_NOISE = 5
_CLEAR = 6
_PREFIX = 7
_STEP = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Texts:
    """Texts of a batch: `tokens` `[m]` of all of them, `offsets` `[T + 1]`, and the `row` `[T]` of each in `n` rows."""

    tokens: AnyArray
    offsets: IntArray
    row: IntArray
    n: int
    places: tuple[IntArray, IntArray]
    """Row and column of each token in the batch."""

    @classmethod
    def of(cls, columns: Columns, name: str, *, merge: bool = False) -> Texts:
        """Read the texts of a batch. With `merge`, all texts of a row are one."""
        tokens = columns.flat.get(name)
        segments = columns.flat.get("segment_ids", columns.flat.get("mask"))
        if not isinstance(tokens, np.ndarray) or tokens.ndim != 2 or tokens.dtype.kind not in "iu":
            raise SpecError(f"expected tokens as integers [n, L] in {name!r}, got {columns!r}")
        if not isinstance(segments, np.ndarray) or segments.shape != tokens.shape:
            raise SpecError(
                f"expected packs with segment_ids, or sequences with a mask, like {name!r} {list(tokens.shape)}, got "
                f"{columns!r}; call it on data.sequences() or on packs"
            )
        row, place = np.nonzero(segments)
        number = np.zeros_like(row) if merge else segments[row, place].astype(np.int64)
        starts = np.ones(len(row), np.bool_)
        starts[1:] = (row[1:] != row[:-1]) | (number[1:] != number[:-1])
        begin = np.flatnonzero(starts)
        return cls(tokens[row, place], np.append(begin, len(row)), row[begin], len(tokens), (row, place))

    @property
    def lengths(self) -> IntArray:
        """Tokens of each text, `[T]`."""
        return np.diff(self.offsets)

    @property
    def owner(self) -> IntArray:
        """Text of each token, `[m]`."""
        return np.repeat(np.arange(len(self.row)), self.lengths)

    def keys(self, keys: UInt64Array, kind: int) -> UInt64Array:
        """Random words of each text, `[T]`."""
        number = np.arange(len(self.row)) - np.searchsorted(self.row, self.row)
        word = mixed(np.asarray(keys).view(np.uint64)[self.row] + number.astype(np.uint64) * np.uint64(_STEP))
        return mixed(word + np.uint64(kind * _STEP % (1 << 64)))

    def laid(
        self, name: str, values: AnyArray, lengths: IntArray, width: int
    ) -> tuple[AnyArray, Int32Array, Int32Array]:
        """Lay out new texts of `[T]` lengths in `[n, width]` tokens, segment ids and positions."""
        total = np.bincount(self.row, lengths, minlength=self.n)
        if total.max(initial=0) > width:
            raise SpecError(
                f"expected at most {width} {name} in a row, got {int(total.max())}; pack shorter rows or fewer "
                "sequences, with pack(max_sequences=), or give a larger length"
            )
        limits = np.iinfo(self.tokens.dtype)
        if values.min(initial=0) < limits.min or values.max(initial=0) > limits.max:
            raise SpecError(
                f"expected new tokens that {self.tokens.dtype} can hold, got {int(values.min())} to "
                f"{int(values.max())}; convert the tokens to int32"
            )
        before = offsets_of(lengths)[:-1]
        first = np.searchsorted(self.row, self.row)
        begin = self.row * width + before - before[first]
        inside = np.arange(len(values)) - np.repeat(before, lengths)
        place = np.repeat(begin, lengths) + inside
        tokens = np.zeros(self.n * width, self.tokens.dtype)
        segments = np.zeros(self.n * width, np.int32)
        positions = np.zeros(self.n * width, np.int32)
        tokens[place] = values
        segments[place] = np.repeat(np.arange(len(self.row)) - first + 1, lengths)
        positions[place] = inside
        shape = self.n, width
        return tokens.reshape(shape), segments.reshape(shape), positions.reshape(shape)


@dataclass(frozen=True)
class FillInTheMiddle:
    """Move the middle of texts to their end, so that a model learns to fill in.

    A text is cut at two uniform places into a prefix, a middle and a suffix. `"PSM"` order is `prefix_token`, prefix,
    `suffix_token`, suffix, `middle_token`, middle. `"SPM"` order is `prefix_token`, `suffix_token`, suffix,
    `middle_token`, prefix, middle. A text has three tokens more, so pack with room:
    `pack(length - 3 * s, max_sequences=s)`.

    Args:
        prefix_token: Token before the prefix.
        suffix_token: Token before the suffix.
        middle_token: Token before the middle.
        length: Tokens of a row of the result, at least 1.
        rate: Share of texts that are changed, 0 to 1. The default is 0.5.
        spm_rate: Share of these in SPM order, 0 to 1. The default is 0.5.
        tokens: Column of tokens. The default is `"tokens"`.

    Raises:
        PlanError: A number is out of range.
        SpecError: When called: the rows are no texts, have other columns of tokens, or do not fit in `length`.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"tokens": np.arange(1, 8)}, lengths=[7])
        >>> fill = FillInTheMiddle(97, 98, 99, length=10, rate=1.0, spm_rate=0.0)
        >>> data.sequences().map(fill, seed=0)[0]["tokens"].tolist()
        [97, 1, 98, 6, 7, 99, 2, 3, 4, 5]
    """

    prefix_token: int
    suffix_token: int
    middle_token: int
    length: int
    rate: float = 0.5
    spm_rate: float = 0.5
    tokens: str = "tokens"

    def __post_init__(self) -> None:
        _require_shares(rate=self.rate, spm_rate=self.spm_rate)
        _require_length("length", self.length)

    def __call__(self, columns: Columns, keys: UInt64Array | None = None) -> dict[str, Any]:
        """Return the rows with other texts.

        Args:
            columns: Columns of a batch.
            keys: `[n]` random keys, which `map` passes if it has a seed.

        Raises:
            ArgumentError: There are no keys.
        """
        keys = _required(self, keys)
        others = _others(columns, self.tokens)
        texts = Texts.of(columns, self.tokens)
        length = texts.lengths
        chosen = _uniform(texts.keys(keys, _CHOSEN)) < self.rate
        spm = _uniform(texts.keys(keys, _SUFFIX_FIRST)) < self.spm_rate
        cuts = np.sort([_below(texts.keys(keys, kind), length + 1) for kind in _CUTS], axis=0)
        new_length = length + 3 * chosen
        offset = offsets_of(new_length)[:-1]
        out = np.empty(int(new_length.sum()), np.int64)
        owner = texts.owner
        inside = np.arange(len(owner)) - texts.offsets[owner]
        place = _moved(inside, length[owner], cuts[0][owner], cuts[1][owner], spm[owner])
        out[offset[owner] + np.where(chosen[owner], place, inside)] = texts.tokens
        first, last = cuts[:, chosen]
        begin, suffix_first = offset[chosen], spm[chosen]
        rest = length[chosen] - last
        out[begin] = self.prefix_token
        out[begin + np.where(suffix_first, 1, first + 1)] = self.suffix_token
        out[begin + 2 + rest + np.where(suffix_first, 0, first)] = self.middle_token
        tokens, segments, positions = texts.laid("tokens", out, new_length, self.length)
        return {**others, self.tokens: tokens, "segment_ids": segments, "positions": positions}


def _moved(inside: IntArray, length: IntArray, first: IntArray, last: IntArray, spm: BoolArray) -> IntArray:
    """Place of each token in its new text, whose middle is `first : last`."""
    rest = length - last
    prefix_shift = np.where(spm, 3 + rest, 1)
    suffix_shift = np.where(spm, 2, first + 2) - last
    middle_shift = 3 + rest  # in both orders all other tokens come before it
    return inside + np.where(inside < first, prefix_shift, np.where(inside < last, middle_shift, suffix_shift))


@dataclass(frozen=True)
class SpanCorruption:
    """Replace random spans of texts by sentinels, and make targets of the spans, as T5's pretraining does.

    A text of `l` tokens has `round(l * noise_density)` tokens of noise in `round(noise / mean_noise_span_length)`
    spans, each at least 1, and begins with a span without noise. All such choices of spans are equally likely. Sentinel
    `k` is `sentinel - k`. The inputs have it in place of span `k`, and the targets before the tokens of span `k`.

    With `merge`, all texts of a row are one text. Rows of `tokens_length` tokens then give inputs and targets without
    padding: `pack(corruption.tokens_length, method="concat_split")`, as T5 has it.

    Args:
        sentinel: Token of the first sentinel, usually the size of the vocabulary minus 1.
        inputs_length: Tokens of a row of inputs, at least 3.
        targets_length: Tokens of a row of targets. The default is None: as many as a text of `tokens_length` needs.
        noise_density: Share of tokens that are noise, above 0 and below 1. The default is 0.15.
        mean_noise_span_length: Mean tokens of a span, at least 1. The default is 3.
        eos: Token after inputs and targets, or None. The default is 1.
        merge: Whether the texts of a row are one text. The default is False.
        tokens: Column of tokens. The default is `"tokens"`.

    Raises:
        PlanError: A number is out of range.
        SpecError: When called: the rows are no texts, have other columns of tokens, or inputs or targets do not fit.

    Example:
        >>> import numpy as np, penstock
        >>> corruption = SpanCorruption(sentinel=31_999, inputs_length=512, merge=True)
        >>> corruption.tokens_length, corruption.width
        (568, (512, 114))
        >>> data = penstock.from_arrays({"tokens": np.arange(100, 112)}, lengths=[12])
        >>> sample = data.sequences().map(SpanCorruption(999, 16, 8), seed=0)[0]
        >>> sample["inputs"].tolist()
        [100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 999, 1, 0, 0, 0, 0]
        >>> sample["targets"].tolist()
        [999, 110, 111, 1, 0, 0, 0, 0]
    """

    sentinel: int
    inputs_length: int
    targets_length: int | None = None
    noise_density: float = 0.15
    mean_noise_span_length: float = 3.0
    eos: int | None = 1
    merge: bool = False
    tokens: str = "tokens"

    def __post_init__(self) -> None:
        if not 0 < self.noise_density < 1:
            raise PlanError(f"expected a noise_density above 0 and below 1, got {self.noise_density}")
        if not 1 <= self.mean_noise_span_length < float("inf"):
            raise PlanError(f"expected a mean_noise_span_length of at least 1, got {self.mean_noise_span_length}")
        _require_length("inputs_length", self.inputs_length, 3)
        if self.targets_length is not None:
            _require_length("targets_length", self.targets_length)

    @property
    def tokens_length(self) -> int:
        """Tokens of a text whose inputs fill a row of `inputs_length`."""
        return self._lengths()[0]

    @property
    def width(self) -> tuple[int, int]:
        """Tokens of a row of inputs and of a row of targets."""
        return self.inputs_length, self._lengths()[1] if self.targets_length is None else self.targets_length

    def _lengths(self) -> tuple[int, int]:
        ends = int(self.eos is not None)

        def made_of(length: int) -> tuple[int, int]:
            noise, spans = (int(each[0]) for each in self._counts(np.array([length])))
            return length - noise + spans + ends, noise + spans + ends

        length = self.inputs_length - 2
        while made_of(length + 1)[0] <= self.inputs_length:
            length += 1
        return length, made_of(length)[1]

    def _counts(self, length: IntArray) -> tuple[IntArray, IntArray]:
        """Tokens of noise and spans of texts of `[T]` lengths. In float32, as T5 has it."""
        noise = np.round(length.astype(np.float32) * np.float32(self.noise_density)).astype(np.int64)
        noise = np.clip(noise, 1, np.maximum(length, 2) - 1)
        spans = np.round(noise.astype(np.float32) / np.float32(self.mean_noise_span_length)).astype(np.int64)
        spans = np.minimum(np.maximum(spans, 1), np.maximum(length, 2) - noise)
        single = length < 2
        return np.where(single, 0, noise), np.where(single, 0, spans)

    def __call__(self, columns: Columns, keys: UInt64Array | None = None) -> dict[str, Any]:
        """Return rows of inputs and targets, each with segment ids and positions.

        Args:
            columns: Columns of a batch.
            keys: `[n]` random keys, which `map` passes if it has a seed.

        Raises:
            ArgumentError: There are no keys.
        """
        keys = _required(self, keys)
        others = _others(columns, self.tokens)
        texts = Texts.of(columns, self.tokens, merge=self.merge)
        noisy = self.noise_mask(texts, keys)
        out: dict[str, Any] = dict(others)
        for name, dropped, width in zip(("inputs", "targets"), (noisy, ~noisy), self.width, strict=True):
            laid = texts.laid(name, *self._replaced(texts, dropped), width)
            out |= zip((name, f"{name}_segment_ids", f"{name}_positions"), laid, strict=True)
        return out

    def noise_mask(self, texts: Texts, keys: UInt64Array) -> BoolArray:
        """Choose the tokens that are noise, `[m]`.

        Args:
            texts: The texts.
            keys: `[n]` random keys of the rows.
        """
        noise, spans = self._counts(texts.lengths)
        clear = texts.lengths - noise
        pieces = np.stack(
            [_parts(clear, spans, texts.keys(keys, _CLEAR)), _parts(noise, spans, texts.keys(keys, _NOISE))], 1
        )
        mask = np.repeat(np.tile([False, True], len(pieces)), pieces.reshape(-1))
        if (single := spans == 0).any():  # texts of one token have no span
            whole = np.zeros(len(texts.tokens), np.bool_)
            whole[~np.repeat(single, texts.lengths)] = mask
            return whole
        return mask

    def _replaced(self, texts: Texts, dropped: BoolArray) -> tuple[AnyArray, IntArray]:
        """Tokens with a sentinel in place of each run of dropped ones, and the lengths of the new texts."""
        owner = texts.owner
        first = dropped.copy()
        first[1:] &= ~dropped[:-1] | (owner[1:] != owner[:-1])
        runs = np.cumsum(first)
        before = np.append(0, runs)[texts.offsets[:-1]]
        number = runs - before[owner] - 1
        values = np.where(first, self.sentinel - number, texts.tokens)[first | ~dropped]
        lengths = np.bincount(owner[first | ~dropped], minlength=len(texts.row))
        if self.eos is None:
            return values, lengths
        return np.insert(values, np.cumsum(lengths), self.eos), lengths + 1


@dataclass(frozen=True)
class RandomPrefix:
    """Choose a prefix of each text, which all of its tokens see and which has no loss.

    A text of `l` tokens has a prefix of 1 to `l - 1` tokens, all equally likely. The columns `prefix_mask` (True in
    prefixes) and `loss_mask` (True for other tokens; an existing one is kept elsewhere) are what
    `loader(layout="transformers_mask")` reads.

    Args:
        tokens: Column of tokens. The default is `"tokens"`.

    Raises:
        SpecError: When called: the rows are no texts.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"tokens": np.arange(5)}, lengths=[5])
        >>> data.sequences().map(RandomPrefix(), seed=0)[0]["prefix_mask"].astype(int).tolist()
        [1, 1, 1, 0, 0]
    """

    tokens: str = "tokens"

    def __call__(self, columns: Columns, keys: UInt64Array | None = None) -> Columns:
        """Return the rows with the two masks.

        Args:
            columns: Columns of a batch.
            keys: `[n]` random keys, which `map` passes if it has a seed.

        Raises:
            ArgumentError: There are no keys.
        """
        keys = _required(self, keys)
        texts = Texts.of(columns, self.tokens)
        lengths = texts.lengths
        prefix = np.where(lengths > 1, 1 + _below(texts.keys(keys, _PREFIX), np.maximum(lengths - 1, 1)), 0)
        owner = texts.owner
        inside = np.arange(len(owner)) - texts.offsets[owner] < prefix[owner]
        masks = np.zeros((2, *columns[self.tokens].shape), np.bool_)
        masks[0][texts.places], masks[1][texts.places] = inside, ~inside
        if "loss_mask" in columns.flat:
            masks[1] &= columns["loss_mask"].astype(np.bool_)
        return Columns.of_flat({**columns.flat, "prefix_mask": masks[0], "loss_mask": masks[1]}, columns.n)


def _parts(total: IntArray, parts: IntArray, words: UInt64Array) -> IntArray:
    """Cut each of `[T]` totals into its number of parts of at least 1. All ways are equally likely."""
    between = total - 1  # places where a part may end, of which `parts - 1` are drawn without replacement
    between = np.where(parts > 0, between, 0)
    owner = np.repeat(np.arange(len(total)), between)
    place = np.arange(len(owner)) - np.repeat(offsets_of(between)[:-1], between)
    draws = mixed(words[owner] + (place.astype(np.uint64) + np.uint64(1)) * np.uint64(_STEP))
    order = np.lexsort((draws, owner))
    rank = place  # of the sorted draws of each owner
    cut = np.zeros(len(owner), np.bool_)
    cut[order] = rank < (parts - 1)[owner]
    ends = np.append(place[cut] + 1, total[parts > 0])
    text = np.append(owner[cut], np.flatnonzero(parts > 0))
    sort = np.lexsort((ends, text))
    ends, text = ends[sort], text[sort]
    same = np.append(False, text[1:] == text[:-1])
    return np.where(same, ends - np.append(0, ends[:-1]), ends)


def _uniform(words: UInt64Array) -> AnyArray:
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _below(words: UInt64Array, count: IntArray) -> IntArray:
    """Uniform over `0 : count`, up to `count / 2^32`."""
    return ((words >> np.uint64(32)) * count.astype(np.uint64) >> np.uint64(32)).astype(np.int64)


def _others(columns: Columns, tokens: str) -> dict[str, Any]:
    """Columns with one value for each row. Others that have places of tokens would no longer fit."""
    known = (tokens, "segment_ids", "positions", "mask")
    others = {name: array for name, array in columns.flat.items() if name not in known}
    if wrong := [name for name, array in others.items() if isinstance(array, np.ndarray) and array.ndim != 1]:
        raise SpecError(
            f"expected no other columns than {tokens!r} with several values for a row, because texts are moved, got "
            f"{wrong}; select_columns({tokens!r}) before pack()"
        )
    return others


def _required(function: object, keys: UInt64Array | None) -> UInt64Array:
    if keys is None:
        raise ArgumentError(f"expected random keys for {type(function).__name__}, got none; use map(fn, seed=0)")
    return keys


def _require_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise PlanError(f"expected {name} to be 0 to 1, got {share}")


def _require_length(name: str, length: int, least: int = 1) -> None:
    if length < least:
        raise PlanError(f"expected {name} to be at least {least}, got {length}")
