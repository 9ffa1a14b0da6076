"""The dataset and episodes that the options of a command choose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.cli.options import pairs
from penstock.data.chosen import ChosenDataset
from penstock.data.dataset import EpisodeDataset
from penstock.formats.base.source import Source


def chosen(source: Source, episodes: str | None, where: str | None) -> EpisodeDataset:
    """Select episodes: first by number, then by condition."""
    return ChosenDataset("", episodes=episodes, where=where).choose(source)


def chosen_dataset(
    location: str,
    options: list[str] | None = None,
    format: str | None = None,
    storage: Mapping[str, Any] | None = None,
    episodes: str | None = None,
    where: str | None = None,
    *,
    curation: Path | None = None,
    shuffle: bool = False,
    seed: int = 0,
) -> ChosenDataset:
    """Return a dataset and its chosen episodes as plain values that another process can open."""
    reader_options = pairs(options, "--open")
    place = None if curation is None else str(curation)
    return ChosenDataset(
        location, format, reader_options, dict(storage or {}), episodes, where, place, shuffle=shuffle, seed=seed
    )
