"""A Llama of Hugging Face transformers, trained on packs in a plain loop.

    python examples/trainers/transformers_packs.py

Lines that differ from a program without penstock have the comment `# penstock`.
"""

from __future__ import annotations

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import penstock

WORDS = 64  # size of the vocabulary


def texts(n: int = 120) -> penstock.EpisodeDataset:
    """Texts of 4 to 40 tokens, each of which counts up from a random one. A text is an episode, a token is a step."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, 40, n)
    tokens = np.concatenate([(rng.integers(WORDS) + np.arange(length)) % WORDS for length in lengths])
    return penstock.from_arrays({"tokens": tokens}, lengths.tolist())


def llama(attention: str = "sdpa") -> LlamaForCausalLM:
    """A tiny model with random weights."""
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=128,
            attn_implementation=attention,
        )
    )


def train(epochs: int = 6, layout: str = "transformers") -> tuple[LlamaForCausalLM, list[float]]:
    """Train for some epochs, and return the model and the losses."""
    model = llama()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = texts().sequences().pack(128, seed=0).shuffle(seed=0)  # penstock
    loader = rows.loader(batch_size=4, output="torch", layout=layout)  # penstock
    losses: list[float] = []
    for _ in range(epochs):
        for batch in loader:
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return model, losses


if __name__ == "__main__":
    _, curve = train()
    print(f"{len(curve)} updates, loss {curve[0]:.2f} to {curve[-1]:.2f}")
