"""Transforms: frozen dataclasses that decide which rows make up a sample, and functions of whole batches."""

from __future__ import annotations

from penstock.core.selection import Selection
from penstock.data.augment import Augmentation, ColorJitter, GaussianNoise, RandomCrop, RandomShift
from penstock.data.flatten import FlattenObservations
from penstock.data.lengths import read_lengths
from penstock.data.measure import measure
from penstock.data.normalize import Normalize
from penstock.data.texts import FillInTheMiddle, RandomPrefix, SpanCorruption
from penstock.plan.batched import Batches
from penstock.plan.delta_timestamps import DeltaTimestamps
from penstock.plan.goals import Goals
from penstock.plan.pack import Pack
from penstock.plan.repeat import EpochLength, Repeat
from penstock.plan.row_numbers import RowNumbers
from penstock.plan.sequences import Sequences
from penstock.plan.shard import Shard
from penstock.plan.shuffle import Shuffle
from penstock.plan.split import Split
from penstock.plan.steps import Pairs, Steps
from penstock.plan.weighted import Weighted
from penstock.plan.where import Where
from penstock.plan.windows import Windows
from penstock.plan.without import Without

__all__ = [
    "Augmentation",
    "Batches",
    "ColorJitter",
    "DeltaTimestamps",
    "EpochLength",
    "FillInTheMiddle",
    "FlattenObservations",
    "GaussianNoise",
    "Goals",
    "Normalize",
    "Pack",
    "Pairs",
    "RandomCrop",
    "RandomPrefix",
    "RandomShift",
    "Repeat",
    "RowNumbers",
    "Selection",
    "Sequences",
    "Shard",
    "Shuffle",
    "SpanCorruption",
    "Split",
    "Steps",
    "Weighted",
    "Where",
    "Windows",
    "Without",
    "measure",
    "read_lengths",
]
