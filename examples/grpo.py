"""A tiny language model learns by GRPO to sort digits, and to ask a tool for their sum.

    python examples/grpo.py [--out curve.png]

A prompt is some digits and the sign of a task, such as `3 1 2 >`. The reward is the share of the sorted digits
`1 2 3 .` at their place. The other task, `3 1 2 +`, wants the last digit of the sum: `6 .`. A model that says `?` gets
the digit from a tool, and a small reward for the call; then it has to repeat the digit. Groups are stale after four
updates, tasks take turns, and short completions share rows. Four tokens are sampled between two updates, so most
completions are continued by a newer policy.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import nn

import penstock

SORT, END, CALL, SUM, TOKENS = 10, 11, 12, 13, 14  # `>`, `.`, `?` and `+`; digits are 0 to 9
CALLED = 0.2  # reward of the turn that calls the tool
GROUP, PROMPTS, DIGITS, WIDTH, ROW = 8, 16, 4, 64, 32


class Policy(nn.Module):
    """A small transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(ROW, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, segments: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of the next token, `[n, length, TOKENS]`."""
        length = tokens.shape[1]
        hidden = (segments[:, :, None] != segments[:, None, :]) | torch.ones(length, length).triu(1).bool()
        hidden = hidden.repeat_interleave(4, 0)
        out = self.layers(self.tokens(tokens) + self.places(positions), hidden)
        return torch.log_softmax(self.head(out), -1)


def tool(prompt: list[int]) -> int:
    """What the tool answers: the last digit of the sum."""
    return sum(prompt[:-1]) % 10


def reward(prompt: list[int], tokens: list[int]) -> float:
    """Share of places with the right token; the end counts as one, of a sum after the right digit alone.

    For a sum, a call of the tool and its answer take no place.
    """
    if prompt[-1] == SORT:
        wanted, said = [*sorted(prompt[:-1]), END], tokens
    else:
        wanted, said = [tool(prompt), END], tokens[2:] if tokens[:1] == [CALL] else tokens
    right = [i < len(said) and said[i] == token for i, token in enumerate(wanted)]
    return float(np.mean(right if prompt[-1] == SORT else np.cumprod(right)))


def called(prompt: list[int], tokens: list[int]) -> bool:
    """Whether a completion asks the tool, repeats its answer, and ends."""
    return tokens == [CALL, tool(prompt), tool(prompt), END]


def sample(
    policy: Policy, recorder: penstock.replay.CompletionRecorder, version: int, steps: int
) -> list[tuple[list[int], list[int]]]:
    """Continue all pending completions by some tokens. Returns the prompts and the tokens of the finished ones."""
    finished: list[tuple[list[int], list[int]]] = []
    for _ in range(steps):
        pending = recorder.pending
        if not pending:
            break
        length = [len(one.prompt) + len(one.tokens) for one in pending]
        tokens = torch.zeros(len(pending), max(length), dtype=torch.long)
        for row, one in zip(tokens, pending, strict=True):
            row[: len(one.prompt) + len(one.tokens)] = torch.tensor(one.prompt + one.tokens)
        with torch.no_grad():
            places = torch.arange(tokens.shape[1]).expand(tokens.shape)
            scores = policy(tokens, places, torch.ones_like(tokens))[
                torch.arange(len(pending)), torch.tensor(length) - 1
            ]
        chosen = torch.multinomial(scores.exp(), 1)
        for one, token, score in zip(
            pending, chosen[:, 0].tolist(), scores.gather(1, chosen)[:, 0].tolist(), strict=True
        ):
            asks = token == CALL and one.prompt[-1] == SUM and not one.tokens
            recorder.extend(one.key, [token], [score], version, reward=CALLED if asks else 0.0)
            if token == CALL:
                recorder.extend(one.key, [tool(one.prompt)], sampled=False)
            if token == END or len(one.tokens) >= DIGITS + 2:
                finished.append((one.prompt, one.tokens))
                recorder.finish(one.key, reward(one.prompt, one.tokens), truncated=token != END)
    return finished


def loss_of(policy: Policy, batch: penstock.Columns) -> torch.Tensor:
    """The clipped objective of PPO, with the advantage of a completion at each of its tokens."""
    arrays = {name: torch.from_numpy(np.array(batch[name])) for name in ("tokens", "positions", "segment_ids")}
    tokens, positions, segments = (array.long() for array in arrays.values())
    scores = policy(tokens[:, :-1], positions[:, :-1], segments[:, :-1])
    now = scores.gather(2, tokens[:, 1:, None])[:, :, 0]
    before = torch.from_numpy(np.array(batch["log_probs"]))[:, 1:]
    advantages = torch.from_numpy(np.array(batch["advantages"]))[:, 1:]
    learns = torch.from_numpy(np.array(batch["completion_mask"]))[:, 1:]
    ratio = (now - before).exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -gain[learns].mean()


def train(updates: int, seed: int = 0) -> tuple[list[tuple[float, float, float]], penstock.Replay]:
    """Train, and return figures of the completions that ended before each update.

    They are the mean reward, the share of sums that ask the tool, and the share that also repeat its answer and end.
    """
    torch.manual_seed(seed)
    rng, policy = np.random.default_rng(seed), Policy()
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    sampler = penstock.replay.GroupSampler(GROUP, max_staleness=4, drop_equal_rewards=True, balance_tasks=True)
    replay = penstock.Replay(
        None, 100_000, samples=penstock.replay.Completions(ROW, pack=True), sampler=sampler, seed=seed
    )
    recorder = penstock.replay.CompletionRecorder(replay, GROUP, seed=seed)
    curve: list[tuple[float, float, float]] = []
    finished: list[tuple[list[int], list[int]]] = []
    while len(curve) < updates:
        while len(recorder) < PROMPTS:
            task = int(rng.integers(2))
            digits = rng.integers(0, 10, rng.integers(2, DIGITS + 1)).tolist()
            recorder.add_prompt([*digits, (SORT, SUM)[task]], task=task)
        finished += sample(policy, recorder, len(curve), steps=4)
        if not replay.refresh().may_sample(GROUP * PROMPTS // 2):
            continue
        loss = loss_of(policy, replay.sample(max_tokens=64 * ROW))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        last = finished[-512:]
        sums = [(tokens[0] == CALL, called(prompt, tokens)) for prompt, tokens in last if prompt[-1] == SUM]
        asked, right = np.mean(sums, axis=0).tolist()
        curve.append((float(np.mean([reward(*each) for each in last])), asked, right))
        replay.set_policy_version(len(curve))
    return curve, replay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="file to draw the curve to, such as curve.png")
    out = parser.parse_args().out
    curve, replay = train(updates=300)
    dropped = replay.refresh().dropped
    names = ("mean reward", "sums that ask the tool", "sums with its answer")
    for name, before, after in zip(names, curve[0], curve[-1], strict=True):
        print(f"{name}: {before:.2f} before, {after:.2f} after {len(curve)} updates")
    print(f"{dropped} completions were too old")
    if out:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
        axes.plot(curve, label=names)
        axes.set(xlabel="update", ylim=(0, 1))
        axes.legend()
        figure.savefig(out)


if __name__ == "__main__":
    main()
