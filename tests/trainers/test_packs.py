"""Packs in transformers and TRL: losses are those of single texts, and batches those of the libraries' collators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers_packs
import trl_sft
from transformers import DataCollatorWithFlattening
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

import penstock


def batch_of(layout: str, seed: int = 0, size: int = 100) -> Any:
    rows = transformers_packs.texts().sequences().pack(128, seed=seed)
    return next(iter(rows.loader(size, output="torch", layout=layout)))


def alone(model: Any) -> float:
    """Mean loss of the tokens of all texts, one text at a time."""
    losses: list[torch.Tensor] = []
    for episode in transformers_packs.texts():
        tokens = torch.from_numpy(episode.columns["tokens"].copy())[None]
        scores = model(tokens, use_cache=False).logits[0, :-1].double().log_softmax(-1)
        losses.append(-scores.gather(1, tokens[0, 1:, None])[:, 0])
    return float(torch.cat(losses).mean())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@torch.no_grad()
def test_the_loss_of_packs_is_the_loss_of_single_texts(attention: str) -> None:
    model = transformers_packs.llama(attention).double().eval()
    wanted = alone(model)
    for layout in ("transformers", "transformers_mask", "trl"):
        batch = batch_of(layout)
        if layout == "transformers_mask":
            batch["attention_mask"] = batch["attention_mask"].double()
        assert float(model(**batch).loss) == pytest.approx(wanted, abs=1e-6), layout  # HF computes it in float32
    leaking = dict(batch_of("transformers"))
    del leaking["use_cache"]
    assert abs(float(model(**leaking).loss) - wanted) > 1e-5


@torch.no_grad()
def test_a_prefix_is_seen_by_tokens_before_its_end() -> None:
    model = transformers_packs.llama("eager").eval()
    rows = transformers_packs.texts().sequences().pack(128).map(penstock.transforms.RandomPrefix(), seed=0)
    plain = next(iter(rows.loader(8)))
    batch = next(iter(rows.loader(8, output="torch", layout="transformers_mask")))
    seen = model(**batch).logits
    other = dict(batch)
    segments, prefix = plain["segment_ids"], plain["prefix_mask"]
    last = [(n, int(np.flatnonzero((segments[n] == 1) & prefix[n]).max())) for n in range(8)]
    for n, place in last:
        other["input_ids"][n, place] = (other["input_ids"][n, place] + 7) % transformers_packs.WORDS
    changed = (model(**other).logits - seen).abs().amax(-1) > 1e-7
    for n, (_, place) in enumerate(last):
        assert changed[n][segments[n] == 1].all()  # also the tokens before the one that changed
        assert not changed[n][segments[n] != 1].any()
        assert (batch["labels"][n, : place + 1] == -100).all()


@pytest.mark.parametrize("seed", range(2))
def test_the_layout_of_trl_is_what_the_collators_make(seed: int) -> None:
    ours = dict(batch_of("trl", seed, 3))
    assert ours.pop("use_cache") is False
    rows = next(iter(transformers_packs.texts().sequences().pack(128, seed=seed).loader(3)))
    texts = [
        tokens[segments == number].tolist()
        for tokens, segments in zip(rows["tokens"], rows["segment_ids"], strict=True)
        for number in range(1, segments.max() + 1)
    ]
    examples = [{"input_ids": text} for text in texts]
    theirs = [
        DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)(examples),
        DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)(examples),
    ]
    for wanted in theirs:
        assert ours.keys() == wanted.keys()
        for name, value in wanted.items():
            if isinstance(value, torch.Tensor):
                assert ours[name].dtype == value.dtype, name
                assert torch.equal(ours[name], value), name
            else:
                assert ours[name] == value, name


def test_a_llama_learns_from_packs_in_every_layout() -> None:
    layouts = ("transformers", "transformers_mask", "trl")
    curves = [transformers_packs.train(1, layout)[1] for layout in layouts]
    for curve in curves:
        np.testing.assert_allclose(curve, curves[0], atol=1e-3)
        assert curve[-1] < curve[0] - 0.5


def test_sft_trainer_learns_from_packs(tmp_path: Path) -> None:
    trainer = trl_sft.train(tmp_path, steps=8)
    losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    rows = transformers_packs.texts().sequences().pack(128, seed=0).shuffle(seed=0)
    first = next(iter(rows.loader(4, output="torch", layout="trl")))
    with torch.no_grad():
        wanted = float(transformers_packs.llama()(**first).loss)
    assert losses[0] == pytest.approx(wanted, abs=1e-3)
    assert losses[-1] < losses[0] - 0.3
