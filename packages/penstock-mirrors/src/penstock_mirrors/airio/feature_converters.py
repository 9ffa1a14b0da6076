"""Model inputs from examples: target tokens, input tokens, loss weights, segment ids and positions."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged, offsets_of
from penstock.errors import SpecError
from penstock_mirrors.airio.flow import Preprocessor
from penstock_mirrors.airio.packing import (
    MultiBinTruePackIterPreprocessor,
    PackPreprocessor,
    SingleBinTruePackIterPreprocessor,
)
from penstock_mirrors.airio.preprocessors import (
    MapFnTransform,
    UpdateRuntimeArgs,
    batched,
    feature,
    joined,
    pad,
    remove_features_not_in_sequence_lengths,
    trim,
)
from penstock_mirrors.airio.runtime import AirIOInjectedRuntimeArgs

Tokens = AnyArray


def get_t5x_enc_dec_feature_converter_preprocessors(
    pack: bool | PackPreprocessor,
    use_multi_bin_packing: bool = True,
    passthrough_feature_keys: Sequence[str] = (),
    pad_id: int = 0,
    bos_id: int = 0,
) -> list[Preprocessor]:
    """For an encoder and a decoder: `inputs` and `targets` become `encoder_input_tokens`, `decoder_target_tokens`,
    `decoder_input_tokens` (the targets one place later, `bos_id` before each sequence) and `decoder_loss_weights` (true
    where a target is not `pad_id`); with `pack` also `encoder_segment_ids`, `encoder_positions`, and the decoder's.

    `pack` is a packer, or True for one of AirIO's two. The features in `passthrough_feature_keys` stay.
    """
    kept = tuple(passthrough_feature_keys)
    convert = functools.partial(_enc_dec, packed=bool(pack), kept=kept, pad_id=pad_id, bos_id=bos_id)
    sides = {"encoder_input_tokens": "inputs", **_decoder()} | _marks(bool(pack), encoder="inputs", decoder="targets")
    return [
        MapFnTransform(remove_features_not_in_sequence_lengths),
        MapFnTransform(trim),
        *_packer(pack, use_multi_bin_packing),
        MapFnTransform(functools.partial(pad, pad_id=pad_id)),
        MapFnTransform(convert, update_runtime_args=_lengths(sides, kept)),
    ]


def get_t5x_lm_feature_converter_preprocessors(
    pack: bool | PackPreprocessor, use_multi_bin_packing: bool = True, pad_id: int = 0, bos_id: int = 0
) -> list[Preprocessor]:
    """For a decoder alone: `targets` become `decoder_target_tokens`, `decoder_input_tokens` and `decoder_loss_weights`,
    with `pack` also `decoder_segment_ids` and `decoder_positions`.
    """
    convert = functools.partial(_lm, packed=bool(pack), pad_id=pad_id, bos_id=bos_id)
    return [
        MapFnTransform(remove_features_not_in_sequence_lengths),
        MapFnTransform(trim),
        *_packer(pack, use_multi_bin_packing),
        MapFnTransform(functools.partial(pad, pad_id=pad_id)),
        MapFnTransform(convert, update_runtime_args=_lengths(_decoder() | _marks(bool(pack), decoder="targets"), ())),
    ]


def get_t5x_prefix_lm_feature_converter_preprocessors(
    pack: bool | PackPreprocessor,
    use_multi_bin_packing: bool = True,
    pad_id: int = 0,
    bos_id: int = 0,
    loss_on_targets_only: bool = True,
    passthrough_feature_keys: Sequence[str] = (),
) -> list[Preprocessor]:
    """For a decoder that sees a prefix whole: `inputs` and `targets` are laid end to end (in the room of both) and
    become what an LM gets, with `decoder_causal_attention`, which is 1 on the inputs and the place behind them, where
    the first target is predicted. The loss is on targets alone unless `loss_on_targets_only` is False.
    """
    kept = tuple(passthrough_feature_keys)
    convert = functools.partial(
        _prefix_lm, packed=bool(pack), kept=kept, pad_id=pad_id, bos_id=bos_id, only_targets=loss_on_targets_only
    )
    sides = _decoder() | {"decoder_causal_attention": "targets"} | _marks(bool(pack), decoder="targets")
    return [
        MapFnTransform(
            functools.partial(_concatenated, kept=kept),
            update_runtime_args=functools.partial(_concatenated_lengths, kept=kept),
        ),
        *_packer(pack, use_multi_bin_packing),
        MapFnTransform(trim),
        MapFnTransform(functools.partial(pad, pad_id=pad_id)),
        MapFnTransform(convert, update_runtime_args=_lengths(sides, kept)),
    ]


def make_autoregressive_inputs(tokens: Tokens, segment_ids: Tokens | None = None, bos_id: int = 0) -> Tokens:
    """Shift tokens `[n, L, ...]` right by one, `bos_id` first; with `[n, L]` segment ids, first in every sequence."""
    shifted = np.empty_like(tokens)
    shifted[:, :1] = bos_id
    shifted[:, 1:] = tokens[:, :-1]
    if segment_ids is not None:
        if segment_ids.dtype.kind not in "iu" or tokens.shape != segment_ids.shape:
            raise SpecError(
                f"expected integer segment ids {list(tokens.shape)} for packed tokens, got {segment_ids.dtype} "
                f"{list(segment_ids.shape)}"
            )
        shifted[:, 1:][segment_ids[:, 1:] != segment_ids[:, :-1]] = bos_id
    return shifted


@batched
def _lm(columns: Columns, runtime_args: AirIOInjectedRuntimeArgs, packed: bool, pad_id: int, bos_id: int) -> Columns:
    runtime_args.length("targets")
    targets = feature(columns, "targets")
    ids = feature(columns, "targets_segment_ids") if packed else None
    outputs = {
        "decoder_target_tokens": targets,
        "decoder_input_tokens": make_autoregressive_inputs(targets, ids, bos_id),
        "decoder_loss_weights": targets != pad_id,
    }
    if packed:
        outputs |= {"decoder_segment_ids": ids, "decoder_positions": feature(columns, "targets_positions")}
    return Columns(outputs, columns.n)


@batched
def _enc_dec(
    columns: Columns,
    runtime_args: AirIOInjectedRuntimeArgs,
    packed: bool,
    kept: tuple[str, ...],
    pad_id: int,
    bos_id: int,
) -> Columns:
    runtime_args.length("inputs")
    outputs = {"encoder_input_tokens": feature(columns, "inputs"), **{name: feature(columns, name) for name in kept}}
    if packed:
        outputs |= {f"encoder_{kind}": feature(columns, f"inputs_{kind}") for kind in ("segment_ids", "positions")}
    return _lm(columns, runtime_args, packed, pad_id, bos_id).merged(outputs)


@batched
def _concatenated(columns: Columns, runtime_args: AirIOInjectedRuntimeArgs, kept: tuple[str, ...]) -> Columns:
    """Inputs and targets end to end, and how wide the inputs are at every place. Empty targets are one 0."""
    runtime_args.length("inputs")
    runtime_args.length("targets")
    inputs, targets = _rows(columns, "inputs"), _rows(columns, "targets")
    empty = (targets.lengths == 0).astype(np.int64)
    targets = joined(targets, Ragged(np.zeros(int(empty.sum()), targets.dtype), offsets_of(empty)))
    both = joined(inputs, targets)
    widths = Ragged(np.repeat(inputs.lengths, both.lengths), both.offsets)
    return Columns({"targets": both, "inputs_width": widths, **{name: feature(columns, name) for name in kept}})


@batched
def _prefix_lm(
    columns: Columns,
    runtime_args: AirIOInjectedRuntimeArgs,
    packed: bool,
    kept: tuple[str, ...],
    pad_id: int,
    bos_id: int,
    only_targets: bool,
) -> Columns:
    outputs = _lm(columns, runtime_args, packed, pad_id, bos_id)
    tokens, widths = outputs["decoder_target_tokens"], feature(columns, "inputs_width")
    positions: Tokens = np.arange(tokens.shape[1], dtype=np.int64)[None]
    real = np.bool_(True)
    if packed:
        positions, real = feature(columns, "targets_positions"), outputs["decoder_segment_ids"] > 0
    else:
        widths = widths[:, :1]
    weights = outputs["decoder_loss_weights"]
    if only_targets:
        weights = (weights & (positions >= widths)).astype(tokens.dtype)
    attention = ((positions <= widths) & real).astype(tokens.dtype)
    return outputs.merged(
        {
            "decoder_loss_weights": weights,
            "decoder_causal_attention": attention,
            **{name: feature(columns, name) for name in kept},
        }
    )


def _concatenated_lengths(args: AirIOInjectedRuntimeArgs, kept: tuple[str, ...]) -> AirIOInjectedRuntimeArgs:
    given = dict(args.sequence_lengths or {})
    room = sum(length for name, length in args.limits.items() if name not in kept)
    both = {"targets": room, "inputs_width": room}
    return args.replace(sequence_lengths=both | {name: given[name] for name in kept if name in given})


def _lengths(sides: dict[str, str], kept: tuple[str, ...]) -> UpdateRuntimeArgs:
    """Return the sequence length of each output of a converter, which is the length of its input feature."""

    def update(args: AirIOInjectedRuntimeArgs) -> AirIOInjectedRuntimeArgs:
        lengths = {new: args.length(old) for new, old in sides.items()}
        passed = {name: length for name, length in (args.sequence_lengths or {}).items() if name in kept}
        return args.replace(sequence_lengths=lengths | passed)

    return update


def _decoder() -> dict[str, str]:
    return dict.fromkeys(("decoder_target_tokens", "decoder_input_tokens", "decoder_loss_weights"), "targets")


def _marks(packed: bool, **sides: str) -> dict[str, str]:
    kinds = ("segment_ids", "positions") if packed else ()
    return {f"{side}_{kind}": of for side, of in sides.items() for kind in kinds}


def _packer(pack: bool | PackPreprocessor, use_multi_bin_packing: bool) -> list[Preprocessor]:
    if isinstance(pack, PackPreprocessor):
        return [pack]
    chosen = MultiBinTruePackIterPreprocessor if use_multi_bin_packing else SingleBinTruePackIterPreprocessor
    return [chosen] if pack else []


def _rows(columns: Columns, name: str) -> Ragged:
    values = feature(columns, name)
    if not isinstance(values, Ragged):
        raise SpecError(f"expected {name!r} as variable-length sequences, got {values.dtype}{list(values.shape)}")
    return values
