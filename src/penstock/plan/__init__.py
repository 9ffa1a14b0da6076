"""Plans: which rows make up each sample, and in which order, from integers and without values."""

from penstock.plan.base import DerivedPlan, Plan, Reordered
from penstock.plan.batched import Batches
from penstock.plan.delta_timestamps import DeltaTimestamps
from penstock.plan.episodes import Episodes
from penstock.plan.goals import Goals
from penstock.plan.outputs import DerivedOutput, Read, View
from penstock.plan.pack import Pack
from penstock.plan.packing import PackIndex, PackReport, Rule, lower_bound
from penstock.plan.repeat import EpochLength, Repeat
from penstock.plan.row_numbers import RowNumbers
from penstock.plan.schedule import MixSchedule, Schedule
from penstock.plan.select import Select, Take
from penstock.plan.sequences import Sequences
from penstock.plan.shard import Shard
from penstock.plan.shuffle import Shuffle
from penstock.plan.split import Split
from penstock.plan.steps import Pairs, Steps
from penstock.plan.transform import (
    EpisodeTransform,
    PlanTransform,
    SampleTransform,
    apply,
)
from penstock.plan.weighted import Weighted
from penstock.plan.weights import MixReport, nested, proportional, shares
from penstock.plan.where import Where
from penstock.plan.windows import Windows
from penstock.plan.without import Without

__all__ = [
    "Batches",
    "DeltaTimestamps",
    "DerivedOutput",
    "DerivedPlan",
    "EpisodeTransform",
    "Episodes",
    "EpochLength",
    "Goals",
    "MixReport",
    "MixSchedule",
    "Pack",
    "PackIndex",
    "PackReport",
    "Pairs",
    "Plan",
    "PlanTransform",
    "Read",
    "Reordered",
    "Repeat",
    "RowNumbers",
    "Rule",
    "SampleTransform",
    "Schedule",
    "Select",
    "Sequences",
    "Shard",
    "Shuffle",
    "Split",
    "Steps",
    "Take",
    "View",
    "Weighted",
    "Where",
    "Windows",
    "Without",
    "apply",
    "lower_bound",
    "nested",
    "proportional",
    "shares",
]
