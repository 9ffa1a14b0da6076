"""Layouts of packed rows, as the trainers of language models want them.

Each function takes a batch of packs with `segment_ids` and `positions`, or of single sequences with a `mask`. Tokens
are in the column `tokens` or `input_ids`. A column `loss_mask`, if there is one, is True for tokens that the model
learns to predict; without it these are all tokens. The first token of a sequence is never predicted, because no token
of its sequence comes before it. Other columns are left out.

Hugging Face's models shift labels themselves, so their labels have the place of the token. Megatron, MaxText and
torchtitan want the label at the token before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import AnyArray, BoolArray, Int32Array
from penstock.errors import SpecError
from penstock.loading.ticket import Batch

Int64Array = npt.NDArray[np.int64]

IGNORED = -100  # label of tokens without loss, `ignore_index` of `torch.nn.CrossEntropyLoss`
TOKENS = ("tokens", "input_ids")


@dataclass(frozen=True)
class PackedTokens:
    """Tokens of packed rows, all `[n, L]`.

    `segments` numbers the sequences of a row from 1, and is 0 in padding. `starts` is True for the first token of each
    sequence, `learned` for the tokens that are predicted, and `prefix` for tokens that all tokens of their sequence
    see.
    """

    tokens: Int64Array
    segments: Int32Array
    positions: Int64Array
    starts: BoolArray
    learned: BoolArray
    prefix: BoolArray | None

    @classmethod
    def of(cls, batch: Batch, layout: str) -> PackedTokens:
        """Read the columns of a batch."""
        names = [name for name in TOKENS if name in batch.flat]
        if len(names) != 1:
            raise SpecError(
                f"expected tokens in one column 'tokens' or 'input_ids' for the layout {layout!r}, got {list(batch)}; "
                "use rename="
            )
        tokens = batch[names[0]]
        if tokens.ndim != 2 or tokens.dtype.kind not in "iu":
            raise SpecError(f"expected {names[0]!r} as integers [n, L], got {tokens.dtype}{list(tokens.shape)}")
        segments, positions = _segments_of(batch, layout, tokens)
        starts = segments > 0
        starts[:, 1:] &= segments[:, 1:] != segments[:, :-1]
        learned = (segments > 0) & ~starts
        if "loss_mask" in batch.flat:
            learned &= _mask_of(batch, "loss_mask", tokens)
        prefix = _mask_of(batch, "prefix_mask", tokens) if "prefix_mask" in batch.flat else None
        return cls(tokens.astype(np.int64), segments, positions, starts, learned, prefix)

    def causal(self, layout: str) -> PackedTokens:
        """Return the rows. Raises `SpecError` for prefixes, which this layout has no mask for."""
        if self.prefix is not None:
            raise SpecError(
                f"expected no column 'prefix_mask' for the layout {layout!r}, in which tokens see earlier ones only; "
                "use layout='transformers_mask', or select_columns() without it"
            )
        return self

    def restarting(self, layout: str) -> PackedTokens:
        """Return the rows. Raises `SpecError` for sequences that do not begin at position 0, where this trainer looks
        for their starts."""
        if self.positions[self.starts].any():
            raise SpecError(
                f"expected positions from 0 in each sequence for the layout {layout!r}, which finds sequences by them, "
                "got others; pack with positions='restart'"
            )
        return self

    @property
    def labels(self) -> Int64Array:
        """Each token that is predicted, at its own place."""
        return np.where(self.learned, self.tokens, IGNORED)

    @property
    def next_labels(self) -> Int64Array:
        """Each token that is predicted, at the place of the token before."""
        labels = np.full_like(self.tokens, IGNORED)
        labels[:, :-1] = self.labels[:, 1:]
        return labels


def _segments_of(batch: Batch, layout: str, tokens: AnyArray) -> tuple[Int32Array, Int64Array]:
    """Return the number of each token's sequence, and the position of the token in it."""
    if "segment_ids" in batch.flat and "positions" in batch.flat:
        segments, positions = batch["segment_ids"], batch["positions"]
        if segments.shape != tokens.shape or positions.shape != tokens.shape:
            raise SpecError(
                f"expected segment_ids and positions {list(tokens.shape)} like the tokens, got {list(segments.shape)} "
                f"and {list(positions.shape)}"
            )
        return segments, positions.astype(np.int64)
    if "segment_ids" not in batch.flat and "mask" in batch.flat:
        segments = _mask_of(batch, "mask", tokens).astype(np.int32)
        return segments, segments * np.arange(tokens.shape[1], dtype=np.int64)
    raise SpecError(
        f"expected packs with segment_ids and positions, or sequences with a mask, for the layout {layout!r}, got "
        f"{list(batch)}; use data.sequences().pack(length)"
    )


def _mask_of(batch: Batch, name: str, tokens: AnyArray) -> BoolArray:
    mask = batch[name]
    if mask.shape != tokens.shape:
        raise SpecError(f"expected {name!r} {list(tokens.shape)} like the tokens, got {list(mask.shape)}")
    return mask.astype(np.bool_)


def transformers(batch: Batch) -> dict[str, Any]:
    """Rows for models of Hugging Face transformers, which find the sequences by `position_ids`.

    The models look for sequences only without a cache of keys and values, so `use_cache` is False.
    """
    rows = PackedTokens.of(batch, "transformers").causal("transformers").restarting("transformers")
    return {"input_ids": rows.tokens, "labels": rows.labels, "position_ids": rows.positions, "use_cache": False}


def transformers_mask(batch: Batch) -> dict[str, Any]:
    """Rows for models of Hugging Face transformers with `sdpa` or `eager` attention, with a mask to add to
    the scores.

    The mask is `[n, 1, L, L]` float32: 0 where a token sees another one of its sequence, else the lowest float32. With
    a column `prefix_mask`, the tokens of a sequence see all of its prefix. A model in float64 with `sdpa` needs the
    mask in float64: PyTorch 2.13 reads others wrongly on a CPU.
    """
    rows = PackedTokens.of(batch, "transformers_mask")
    length = rows.tokens.shape[1]
    seen = np.broadcast_to(np.tri(length, dtype=np.bool_), (len(rows.tokens), length, length))
    if rows.prefix is not None:
        seen = seen | rows.prefix[:, None, :]
    # Padding sees padding, because a row of scores without any finite one has no softmax.
    seen = seen & (rows.segments[:, :, None] == rows.segments[:, None, :])
    mask = np.where(seen, np.float32(0), np.finfo(np.float32).min)[:, None]
    return {
        "input_ids": rows.tokens,
        "labels": rows.labels,
        "position_ids": rows.positions,
        "attention_mask": mask,
    }


def trl(batch: Batch) -> dict[str, Any]:
    """All sequences in one row without padding, for attention kernels of variable length.

    This is what the collators of TRL's `SFTTrainer` (`padding_free=True`) and of transformers
    (`DataCollatorWithFlattening`, for flash attention) return, and `use_cache`, False as TRL sets it.
    """
    rows = PackedTokens.of(batch, "trl").causal("trl")
    real = rows.segments > 0
    first = np.flatnonzero(rows.starts[real])
    cu_seqlens = np.append(first, np.count_nonzero(real)).astype(np.int32)
    lengths = np.diff(cu_seqlens)
    longest = int(lengths.max(initial=0))
    return {
        "input_ids": rows.tokens[real][None],
        "labels": rows.labels[real][None],
        "position_ids": rows.positions[real][None],
        "cu_seq_lens_q": cu_seqlens,
        "cu_seq_lens_k": cu_seqlens,
        "max_length_q": longest,
        "max_length_k": longest,
        "seq_idx": np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)[None],
        "use_cache": False,
    }


def torchtitan(batch: Batch) -> tuple[dict[str, Any], Int64Array]:
    """Rows for torchtitan's trainer, which finds sequences by positions of 0. Padding begins at position 0 too."""
    rows = PackedTokens.of(batch, "torchtitan").causal("torchtitan").restarting("torchtitan")
    place: Int64Array = np.arange(rows.tokens.shape[1], dtype=np.int64)
    after = np.maximum.accumulate(np.where(rows.segments > 0, place + 1, 0), axis=1)  # where padding begins
    positions = np.where(rows.segments > 0, rows.positions, place - after)
    return {"input": rows.tokens, "positions": positions}, rows.next_labels


def megatron(batch: Batch) -> dict[str, Any]:
    """Rows for Megatron-LM's `pretrain_gpt.py`, as its `SFTDataset` and PyTorch's collate function make them.

    `cu_seqlens` is `[n, L + 1]`, with `L` after the last sequence. Padding belongs to the last sequence of its row.
    """
    rows = PackedTokens.of(batch, "megatron").causal("megatron")
    n, length = rows.tokens.shape
    row, first = np.nonzero(rows.starts)
    count = np.bincount(row, minlength=n)
    cu_seqlens = np.full((n, length + 1), length, np.int32)
    cu_seqlens[row, np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)] = first
    labels = rows.next_labels
    # In padding, positions count on from the last token.
    place: Int64Array = np.arange(length, dtype=np.int64)
    real = np.maximum.accumulate(np.where(rows.segments > 0, place, 0), axis=1)
    positions = np.take_along_axis(rows.positions, real, axis=1) + place - real
    return {
        "tokens": rows.tokens,
        "labels": np.where(labels == IGNORED, 0, labels),
        "loss_mask": (labels != IGNORED).astype(np.float32),
        "position_ids": positions,
        "cu_seqlens": cu_seqlens,
        "max_seqlen": np.diff(cu_seqlens, axis=1).max(1),
    }


def maxtext(batch: Batch) -> dict[str, Any]:
    """Rows for MaxText: inputs and shifted targets, each with positions and segments, as int32.

    `targets_segmentation` is 0 where there is no loss.
    """
    rows = PackedTokens.of(batch, "maxtext").causal("maxtext")
    labels = rows.next_labels
    learned = labels != IGNORED
    positions = rows.positions.astype(np.int32)
    return {
        "inputs": rows.tokens.astype(np.int32),
        "inputs_position": positions,
        "inputs_segmentation": rows.segments,
        "targets": np.where(learned, labels, 0).astype(np.int32),
        "targets_position": positions,
        "targets_segmentation": np.where(learned, rows.segments, 0),
    }
