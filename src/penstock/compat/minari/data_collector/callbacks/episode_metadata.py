"""The callback that computes the metadata of each episode."""

from __future__ import annotations

from typing import Any


class EpisodeMetadataCallback:
    """Callback that returns the metadata to store with each recorded episode. Subclass to add entries."""

    def __call__(self, episode: dict[str, Any]) -> dict[str, Any]:
        """Return statistics of the rewards.

        Arguments: `episode`, the arrays of one episode under the names of `EpisodeData`.
        """
        rewards = episode["rewards"]
        return {f"rewards_{name}": float(getattr(rewards, name)()) for name in ("sum", "mean", "std", "max", "min")}
