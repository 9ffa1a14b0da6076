"""Which rows, in which order: arithmetic on integers that knows no values."""

from penstock.plan.base import EpisodeTransform, Plan, PlanTransform, Read, Reordered, SampleTransform, View, apply
from penstock.plan.episodes import Episodes
from penstock.plan.pairs import Pairs
from penstock.plan.repeat import Repeat
from penstock.plan.shard import Shard
from penstock.plan.shuffle import Shuffle
from penstock.plan.split import Split
from penstock.plan.steps import Steps
from penstock.plan.where import Where
from penstock.plan.windows import Windows

__all__ = [
    "EpisodeTransform",
    "Episodes",
    "Pairs",
    "Plan",
    "PlanTransform",
    "Read",
    "Reordered",
    "Repeat",
    "SampleTransform",
    "Shard",
    "Shuffle",
    "Split",
    "Steps",
    "View",
    "Where",
    "Windows",
    "apply",
]
