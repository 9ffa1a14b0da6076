"""The callback that computes the metadata of each episode."""

from __future__ import annotations

from typing import Any

from penstock.formats.minari.metadata import statistics


class EpisodeMetadataCallback:
    """Callback that returns the metadata to store with each recorded episode. Subclass to add entries."""

    def __call__(self, episode: dict[str, Any]) -> dict[str, Any]:
        """Return statistics of the rewards.

        Arguments: `episode`, the arrays of one episode under the names of `EpisodeData`.
        """
        return dict(statistics(episode["rewards"]))
