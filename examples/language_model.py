"""A small language model of bytes, trained on packed rows of three mixed corpora.

    python examples/language_model.py [--out curve.png]

The texts come with every Python: its manual, and the docstrings and functions of the standard library. Short texts
share a row, and attention stays within a text.
"""

from __future__ import annotations

import argparse
import ast
import sysconfig
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from torch import nn

import penstock

LENGTH, WIDTH, HEADS = 128, 96, 3  # bytes of a row; numbers of a token; heads of attention
SHARES = {"manual": 0.5, "docstrings": 0.25, "functions": 0.25}  # of all rows


def texts() -> dict[str, list[str]]:
    """The three corpora, as lists of texts."""
    docstrings, functions = list[str](), list[str]()
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        source = file.read_text("utf-8")
        lines = source.splitlines()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                functions.append("\n".join(lines[node.lineno - 1 : node.end_lineno]))
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                docstrings.append(ast.get_docstring(node) or "")
    corpora = {"manual": list(topics.values()), "docstrings": docstrings, "functions": functions}
    return {name: [text for text in some if len(text) > 20] for name, some in corpora.items()}


def dataset(some: list[str]) -> penstock.EpisodeDataset:
    """One episode a text, one step a byte."""
    coded = [text.encode() for text in some]
    tokens = np.frombuffer(b"".join(coded), np.uint8)
    return penstock.from_arrays({"tokens": tokens}, [len(each) for each in coded])


def rows(corpora: dict[str, list[str]]) -> tuple[penstock.MapDataset, dict[str, penstock.MapDataset]]:
    """Mixed rows to train on, and the rows of each corpus to test on."""
    packed, held_out = {}, {}
    for name, some in corpora.items():
        ours, theirs = dataset(some).split(0.95, 0.05, seed=0)
        packed[name] = ours.sequences().pack(LENGTH, overlong="split", seed=0).shuffle(seed=0)
        held_out[name] = theirs.sequences().pack(LENGTH, overlong="split", seed=0)
    return penstock.mix(packed, SHARES, stop="never"), held_out


class LanguageModel(nn.Module):
    """A transformer that sees the bytes before, of the same text only."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256))

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Scores of the next byte, `[n, length, 256]`."""
        n = tokens.shape[1]
        other = segments[:, :, None] != segments[:, None, :]
        later = torch.ones(n, n).triu(1).bool()
        hidden = (other | later).repeat_interleave(HEADS, 0)
        return self.head(self.layers(self.tokens(tokens) + self.places(positions), hidden))


def loss_of(model: LanguageModel, batch: penstock.Columns) -> torch.Tensor:
    """Mean loss in bits a byte, over all bytes but the first of each text."""
    tokens, positions, segments = (
        torch.from_numpy(batch[name].astype(np.int64)) for name in ("tokens", "positions", "segment_ids")
    )
    scores = model(tokens[:, :-1], positions[:, :-1], segments[:, :-1])
    follows = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    return nn.functional.cross_entropy(scores[follows], tokens[:, 1:][follows]) / np.log(2)


def train(mixed: penstock.MapDataset, updates: int) -> tuple[LanguageModel, list[float]]:
    torch.manual_seed(0)
    model, losses = LanguageModel(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=updates, pct_start=0.1)
    for batch in mixed.loader(batch_size=16):
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if len(losses) == updates:
            return model.eval(), losses
    raise ValueError("expected rows without end")


def test(model: LanguageModel, held_out: dict[str, penstock.MapDataset], most: int) -> dict[str, float]:
    """Loss of each corpus, on texts kept for the test. Functions that are trained on have some of its docstrings."""
    with torch.no_grad():
        return {name: loss_of(model, packs[: min(most, len(packs))]).item() for name, packs in held_out.items()}


def write(model: LanguageModel, start: str, more: int) -> str:
    """Continue a text."""
    generator, tokens = torch.Generator().manual_seed(0), list(start.encode())
    for _ in range(more):
        recent = torch.tensor([tokens[-LENGTH:]])
        with torch.no_grad():
            scores = model(recent, torch.arange(recent.shape[1])[None], torch.ones_like(recent))[0, -1]
        tokens.append(int(torch.multinomial(torch.softmax(scores / 0.7, -1), 1, generator=generator)))
    return bytes(tokens).decode(errors="replace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="file to draw the curve to, such as curve.png")
    out = parser.parse_args().out
    mixed, held_out = rows(texts())
    model, losses = train(mixed, updates=1500)
    tested = test(model, held_out, 64)
    for name, loss in tested.items():
        print(f"{name}: {loss:.2f} bits a byte, on texts kept for the test")
    print(write(model, "The ", 200))
    if out:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
        axes.plot(losses, lw=0.8, label="trained")
        for name, loss in tested.items():
            axes.plot(len(losses), loss, "o", label=name)
        axes.set(xlabel="update", ylabel="bits a byte")
        axes.legend()
        figure.savefig(out)


if __name__ == "__main__":
    main()
