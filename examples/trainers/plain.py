"""A plain loop of PyTorch.

    python examples/trainers/plain.py

Lines that differ from a program without penstock have the comment `# penstock`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from toy import BATCH, Policy, samples


def train(epochs: int = 2, checkpoint: Path | None = None, stop: int | None = None) -> tuple[Policy, list[list[int]]]:
    """Train for some epochs, from a checkpoint if there is one, and stop after update `stop` to resume later.

    Returns:
        The model, and the numbers of the samples of each batch.
    """
    torch.manual_seed(0)
    model = Policy()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = samples().loader(BATCH, output="torch")  # penstock
    seen: list[list[int]] = []
    updates = 0
    if checkpoint and checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])  # penstock
        updates = saved["updates"]
    for _ in range(updates // len(loader), epochs):
        for batch in loader:
            loss = model(**batch)["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(batch["id"].tolist())
            updates += 1
            if checkpoint and updates == stop:
                state = {"model": model.state_dict(), "updates": updates, "loader": loader.state_dict()}  # penstock
                torch.save(state, checkpoint)
                return model, seen
    return model, seen


if __name__ == "__main__":
    _, batches = train()
    print(f"{len(batches)} batches, the last one of samples {batches[-1]}")
