"""A small network for imitation: recent observations in, an action out."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from penstock.core.spaces import Box, Discrete
from penstock.core.spec import Spec
from penstock.errors import SpecError

STRIP = 8  # pixels


class Clone(nn.Module):
    """Scores of the actions of a `Discrete` space, or an action of a `Box`, from `history` observations `[n, h, ...]`.

    Raises `SpecError` for other action spaces.
    """

    def __init__(self, spec: Spec, history: int) -> None:
        super().__init__()
        space, shape = spec.action_space, spec["observations"].shape
        if isinstance(space, Discrete):
            self.discrete, outputs = True, space.n
        elif isinstance(space, Box):
            self.discrete, outputs = False, int(np.prod(space.shape))
        else:
            raise SpecError(f"expected a Discrete or a Box action space, got {space!r}")
        self.pixels, self.image = len(shape) == 2, len(shape) == 3
        inputs = history * int(np.prod(shape)) // (STRIP if self.pixels else 1)
        if self.image:  # [channels, rows, columns]
            convolutions = nn.Conv2d(history * shape[0], 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU()
            self.see = nn.Sequential(*convolutions)
            inputs = 32 * (shape[1] // 4) * (shape[2] // 4)
        layers = (nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, outputs))
        self.layers = nn.Sequential(*layers)

    def forward(self, observations: Tensor) -> Tensor:
        """`[n, h, ...]` observations to `[n, outputs]`."""
        if self.image:
            seen = self.see(observations.flatten(1, 2).float() / 128 - 1)
        else:
            seen = strips(observations) if self.pixels else observations.float()
        return self.layers(seen.flatten(1))

    def loss(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return the loss against the recorded actions `[n, 1, ...]`."""
        guess = self(observations)
        if self.discrete:
            return nn.functional.cross_entropy(guess, actions[:, 0])
        return nn.functional.mse_loss(guess, actions.reshape(guess.shape))


class Player:
    """The clone as a policy for an environment: it keeps the last `history` observations."""

    def __init__(self, clone: Clone, history: int) -> None:
        self.clone, self.recent = clone, deque[Any](maxlen=history)

    def reset(self) -> None:
        """Clear the history; the first observation of an episode is then repeated to fill it."""
        self.recent.clear()

    def __call__(self, observation: Any) -> Any:
        """The clone's action for the observations so far."""
        self.recent.extend([observation] * (1 if self.recent else self.recent.maxlen or 1))
        with torch.no_grad():
            scores = self.clone(torch.as_tensor(np.stack(self.recent)[None]))[0]
        return int(scores.argmax()) if self.clone.discrete else scores.numpy()


def strips(images: Tensor) -> Tensor:
    """`[n, h, rows, columns]` bytes to `[n, h, rows, columns // STRIP]`: the brightest pixel of every strip of a row,
    less the first one, which is on the empty ground."""
    brightest = images.reshape(*images.shape[:-1], -1, STRIP).amax(-1).float()
    return (brightest - brightest[:, :1, :1, :1]) / 64
