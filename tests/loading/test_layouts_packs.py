"""Layouts of packs: the loss on packed rows, read as each trainer reads them, is the loss on single texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import penstock
from penstock.core.columns import Columns
from penstock.errors import SpecError
from penstock.loading.layout import LAYOUTS
from penstock.loading.layouts_packs import maxtext, megatron, torchtitan, transformers, transformers_mask, trl
from penstock.loading.ticket import Batch

WORDS, WIDTH = 31, 12
TEXTS = 23
PACKS = ("transformers", "transformers_mask", "trl", "torchtitan", "megatron", "maxtext")


class Attention(torch.nn.Module):
    """One layer of attention in float64, over tokens and positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(WORDS, WIDTH, dtype=torch.float64)
        self.places = torch.nn.Embedding(256, WIDTH, dtype=torch.float64)
        self.inner = torch.nn.Linear(WIDTH, 3 * WIDTH, dtype=torch.float64)
        self.outer = torch.nn.Linear(WIDTH, WORDS, dtype=torch.float64)

    def forward(self, tokens: Any, positions: Any, hidden: Any) -> Any:
        """Log-probabilities of the next token, `[n, L, WORDS]`. `hidden` `[n, L, L]`: what a token does not see."""
        query, key, value = self.inner(self.tokens(tokens) + self.places(positions)).chunk(3, -1)
        scores = (query @ key.transpose(-1, -2) / WIDTH**0.5).masked_fill(hidden, -1e9)
        return (self.outer(scores.softmax(-1) @ value)).log_softmax(-1)


def texts(seed: int) -> tuple[penstock.EpisodeDataset, list[Any], list[Any]]:
    """Texts of 1 to 40 tokens, and which of their tokens are learned."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 41, TEXTS)
    lengths[rng.integers(TEXTS)] = 1
    tokens, learned = rng.integers(1, WORDS, lengths.sum()), rng.random(lengths.sum()) < 0.7
    cuts = np.cumsum(lengths)[:-1]
    data = penstock.from_arrays({"tokens": tokens.astype("int32"), "loss_mask": learned}, lengths.tolist())
    return data, np.split(tokens, cuts), np.split(learned, cuts)


def renamed(columns: Columns) -> dict[str, Any]:
    return {"input_ids" if name == "tokens" else name: array for name, array in columns.flat.items()}


def later(length: int) -> Any:
    return torch.ones(length, length).triu(1).bool()


def apart(segments: Any) -> Any:
    """Tokens that a token does not see: later ones, and those of other sequences."""
    segments = torch.as_tensor(np.array(segments))
    return (segments[:, :, None] != segments[:, None, :]) | later(segments.shape[1])


def loss_at(scores: Any, targets: Any, weights: Any) -> float:
    """Mean loss of the tokens with a weight."""
    targets, weights = torch.as_tensor(np.array(targets)).long(), torch.as_tensor(np.array(weights)).double()
    losses = -scores.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return float((losses * weights).sum() / weights.sum())


def shifted(model: Attention, tokens: Any, positions: Any, hidden: Any, labels: Any) -> float:
    """Loss as Hugging Face's models compute it: they shift the labels."""
    scores = model(torch.from_numpy(tokens), torch.from_numpy(positions), hidden)[:, :-1]
    return loss_at(scores, labels[:, 1:], labels[:, 1:] != -100)


def read_transformers(model: Attention, batch: Batch) -> float:
    arrays = transformers(batch)
    assert arrays.pop("use_cache") is False
    positions = arrays["position_ids"]
    numbers = np.cumsum(np.diff(positions, axis=1, prepend=-1) != 1, axis=1)  # as `find_packed_sequence_indices`
    return shifted(model, arrays["input_ids"], positions, apart(numbers), arrays["labels"])


def read_transformers_mask(model: Attention, batch: Batch) -> float:
    arrays = transformers_mask(batch)
    mask = arrays["attention_mask"]
    assert mask.dtype == np.float32
    assert (mask == 0).any(-1).all()
    hidden = torch.from_numpy(mask[:, 0] < 0)
    return shifted(model, arrays["input_ids"], arrays["position_ids"], hidden, arrays["labels"])


def read_trl(model: Attention, batch: Batch) -> float:
    arrays = trl(batch)
    cu_seqlens = arrays["cu_seq_lens_q"]
    assert cu_seqlens.dtype == np.int32
    assert arrays["max_length_q"] == np.diff(cu_seqlens).max()
    assert np.array_equal(cu_seqlens, arrays["cu_seq_lens_k"])
    assert arrays["seq_idx"].dtype == np.int32
    numbers = np.repeat(np.arange(len(cu_seqlens) - 1), np.diff(cu_seqlens))[None]
    assert np.array_equal(numbers, arrays["seq_idx"])
    assert numbers.shape == arrays["input_ids"].shape
    return shifted(model, arrays["input_ids"], arrays["position_ids"], apart(numbers), arrays["labels"])


def read_torchtitan(model: Attention, batch: Batch) -> float:
    inputs, labels = torchtitan(batch)
    numbers = np.cumsum(inputs["positions"] == 0, axis=1)  # as `get_document_mask_mod`
    scores = model(torch.from_numpy(inputs["input"]), torch.from_numpy(inputs["positions"]), apart(numbers))
    return loss_at(scores, labels, labels != -100)


def read_megatron(model: Attention, batch: Batch) -> float:
    arrays = megatron(batch)
    length = arrays["tokens"].shape[1]
    assert (arrays["cu_seqlens"][:, 0] == 0).all()
    assert arrays["cu_seqlens"].shape[1] == length + 1
    assert arrays["cu_seqlens"].dtype == np.int32
    assert arrays["loss_mask"].dtype == np.float32
    numbers = np.array([np.repeat(np.arange(length), np.diff(row)) for row in arrays["cu_seqlens"]])
    assert (arrays["max_seqlen"] == [np.bincount(row).max() for row in numbers]).all()
    tokens, positions = (torch.from_numpy(arrays[name]) for name in ("tokens", "position_ids"))
    # Positions count on in padding.
    starts = np.diff(numbers, axis=1, prepend=-1) != 0
    assert (arrays["position_ids"][starts] == 0).all()
    assert (np.diff(arrays["position_ids"])[~starts[:, 1:]] == 1).all()
    return loss_at(model(tokens, positions, apart(numbers)), arrays["labels"], arrays["loss_mask"])


def read_maxtext(model: Attention, batch: Batch) -> float:
    arrays = maxtext(batch)
    assert all(array.dtype == np.int32 for array in arrays.values())
    tokens, positions = (torch.from_numpy(arrays[name]) for name in ("inputs", "inputs_position"))
    scores = model(tokens, positions, apart(arrays["inputs_segmentation"]))
    return loss_at(scores, arrays["targets"], arrays["targets_segmentation"] != 0)


Read = Callable[[Attention, Batch], float]
READS: list[Read] = [
    read_transformers,
    read_transformers_mask,
    read_trl,
    read_torchtitan,
    read_megatron,
    read_maxtext,
]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_loss_of_packs_is_the_loss_of_single_texts(seed: int) -> None:
    data, tokens, learned = texts(seed)
    torch.manual_seed(seed)
    model = Attention()
    losses: list[Any] = []
    with torch.no_grad():
        for words, learns in zip(tokens, learned, strict=True):
            scores = model(torch.from_numpy(words)[None], torch.arange(len(words))[None], later(len(words)))[0, :-1]
            losses.append(-scores.gather(-1, torch.from_numpy(words[1:, None]))[learns[1:], 0])
        alone = float(torch.cat(losses).mean())
        sequences = data.sequences()
        samples = [
            sequences.pack(64, seed=seed),
            sequences.pack(64, method="next_fit", align=8),  # padding between sequences
            sequences,
            sequences.pack(64, seed=seed).map(renamed),
        ]
        for rows in samples:
            batch = next(iter(rows.loader(batch_size=len(rows))))
            for read in READS:
                assert read(model, batch) == pytest.approx(alone, abs=1e-9), read.__name__


def test_a_prefix_is_seen_by_the_whole_sequence_and_by_no_other() -> None:
    data, _, _ = texts(3)
    data = data.with_column("prefix_mask", lambda episode: np.arange(len(episode)) < episode.columns["tokens"][0] % 9)
    batch = next(iter(data.sequences().pack(64, seed=0).loader(batch_size=4)))
    seen = transformers_mask(batch)["attention_mask"][:, 0] == 0
    segments, prefix = batch["segment_ids"], batch["prefix_mask"]
    for n, i, j in np.ndindex(seen.shape):
        wanted = segments[n, i] == segments[n, j] and (j <= i or bool(prefix[n, j]))
        assert seen[n, i, j] == wanted
    for arrange in (transformers, trl, torchtitan, megatron, maxtext):
        with pytest.raises(SpecError, match=r"prefix_mask.*transformers_mask"):
            arrange(batch)


def test_a_split_text_has_no_loss_at_the_start_of_its_parts() -> None:
    data = penstock.from_arrays({"tokens": np.arange(1, 21)}, [20])
    rows = data.sequences().pack(8, method="concat_split", positions="continue")
    batch = next(iter(rows.loader(batch_size=3)))
    assert trl(batch)["labels"][0].tolist() == [-100, *range(2, 9), -100, *range(10, 17), -100, *range(18, 21)]
    for arrange in (transformers, torchtitan):
        with pytest.raises(SpecError, match="positions='restart'"):
            arrange(batch)


def test_a_layout_changes_neither_order_nor_state_nor_tickets() -> None:
    data, _, _ = texts(4)
    rows = data.sequences().pack(64, seed=0).shuffle(seed=1)
    for name in PACKS:
        arrange = LAYOUTS[name].arrange
        plain, loader = rows.loader(batch_size=2), rows.loader(batch_size=2, output="torch", layout=name)
        batches, laid = iter(plain), iter(loader)
        for _ in range(3):
            batch, arrays = next(batches), next(laid)
            assert arrays.ticket == batch.ticket
            assert loader.state_dict() == plain.state_dict()
            assert equal(arrays, arrange(batch))
        resumed = rows.loader(batch_size=2, output="torch", layout=name)
        resumed.load_state_dict(loader.state_dict())
        assert equal(next(iter(resumed)), arrange(next(batches)))


def equal(tensors: Any, arrays: Any) -> bool:
    """Whether nested tensors have the values and dtypes of nested arrays."""
    if type(arrays) is dict:
        values: dict[str, Any] = arrays
        return tensors.keys() == values.keys() and all(equal(tensors[name], value) for name, value in values.items())
    if type(arrays) is tuple:
        parts: tuple[Any, ...] = arrays
        return len(tensors) == len(parts) and all(map(equal, tensors, parts))
    if type(arrays) is np.ndarray:
        array: Any = arrays
        return tensors.numpy().dtype == array.dtype and np.array_equal(tensors, array)
    return type(tensors) is type(arrays) and tensors == arrays


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"tokens": np.ones((2, 3), int)}, "segment_ids and positions"),
        ({"words": np.ones((2, 3), int), "mask": np.ones((2, 3), bool)}, "'tokens' or 'input_ids'"),
        ({"tokens": np.ones((2, 3)), "mask": np.ones((2, 3), bool)}, "integers"),
        ({"tokens": np.ones((2, 3), int), "mask": np.ones((2, 3), bool), "loss_mask": np.ones(2)}, "'loss_mask'"),
    ],
)
def test_wrong_batches_are_refused(columns: dict[str, Any], message: str) -> None:
    for name in PACKS:
        with pytest.raises(SpecError, match=message):
            LAYOUTS[name].arrange(Batch.of(Columns(columns), None))
