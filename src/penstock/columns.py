"""Columns that are computed from episodes, figures of columns, and columns of rows of different lengths."""

from __future__ import annotations

from penstock.core.ragged import Ragged
from penstock.data.episode_function import EpisodeFunction, EpisodeRows
from penstock.data.returns import (
    advantages,
    episode_returns,
    lambda_returns,
    n_step_returns,
    progress,
    returns_to_go,
    role_mask,
    steps_to_end,
    timesteps,
)
from penstock.data.statistics import ColumnStatistics, Statistics

__all__ = [
    "ColumnStatistics",
    "EpisodeFunction",
    "EpisodeRows",
    "Ragged",
    "Statistics",
    "advantages",
    "episode_returns",
    "lambda_returns",
    "n_step_returns",
    "progress",
    "returns_to_go",
    "role_mask",
    "steps_to_end",
    "timesteps",
]
