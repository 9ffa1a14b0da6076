"""Thresholds of checks, marks of episodes, and reports of repairs."""

from __future__ import annotations

from penstock.data.curation import Curation, MarkConflict
from penstock.data.episode_marks import EpisodeMarks
from penstock.doctor.repair import RepairReport, undo_repair
from penstock.doctor.thresholds import CheckThresholds

__all__ = [
    "CheckThresholds",
    "Curation",
    "EpisodeMarks",
    "MarkConflict",
    "RepairReport",
    "undo_repair",
]
