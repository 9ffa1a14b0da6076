"""The callback that computes what is stored beside each episode."""

from __future__ import annotations

from typing import Any


class EpisodeMetadataCallback:
    """Called with each recorded episode; what it returns is stored as the episode's metadata. Subclass to add more."""

    def __call__(self, episode: dict[str, Any]) -> dict[str, Any]:
        """Statistics of the rewards.

        Arguments: `episode`, the arrays of one episode under the names of `EpisodeData`.
        """
        rewards = episode["rewards"]
        return {f"rewards_{name}": float(getattr(rewards, name)()) for name in ("sum", "mean", "std", "max", "min")}
