"""The data layer for learning from sequential experience: open, record, plan, fetch, resume.

Importing this package loads nothing else: each name below is fetched from its own module when it is first used.

>>> import penstock
>>> penstock.Columns({"rewards": [1.0, 2.0]})
Columns(rewards: float64[2])
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.conversion.convert import convert
    from penstock.core import spaces
    from penstock.core.columns import Columns
    from penstock.core.episode import Episode
    from penstock.core.ragged import Ragged
    from penstock.core.selection import Selection
    from penstock.core.spec import Field, Spec
    from penstock.data.dataset import EpisodeDataset, from_arrays
    from penstock.data.iter_dataset import IterDataset
    from penstock.data.jigsaw import Jigsaw
    from penstock.data.lengths import read_lengths
    from penstock.data.map_dataset import MapDataset
    from penstock.data.measure import measure
    from penstock.data.mix import mix
    from penstock.data.open import open
    from penstock.data.records import from_records
    from penstock.errors import (
        ArgumentError,
        ChecksumError,
        DataError,
        ExpiredRowError,
        FormatError,
        LockedError,
        MissingExtraError,
        PenstockError,
        PlanError,
        SpecError,
        StateError,
        UnknownFormatError,
        UnsafeDataError,
        WorkerError,
    )
    from penstock.formats.base.format import Format
    from penstock.formats.base.source import Source
    from penstock.formats.base.writer import Writer
    from penstock.formats.memory import MemorySource
    from penstock.load.loader import Loader
    from penstock.plan.nominal import Nominal
    from penstock.plan.pack import Pack
    from penstock.plan.pairs import Pairs
    from penstock.plan.repeat import Repeat
    from penstock.plan.sequences import Sequences
    from penstock.plan.shard import Shard
    from penstock.plan.shuffle import Shuffle
    from penstock.plan.split import Split
    from penstock.plan.steps import Steps
    from penstock.plan.target_pairs import TargetPairs
    from penstock.plan.where import Where
    from penstock.plan.windows import Windows
    from penstock.record.collector import Collector
    from penstock.record.recorder import Recorder
    from penstock.record.rollout import rollout, rollout_vector
    from penstock.record.vector import VectorCollector

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "ChecksumError",
    "Collector",
    "Columns",
    "DataError",
    "Episode",
    "EpisodeDataset",
    "ExpiredRowError",
    "Field",
    "Format",
    "FormatError",
    "IterDataset",
    "Jigsaw",
    "Loader",
    "LockedError",
    "MapDataset",
    "MemorySource",
    "MissingExtraError",
    "Nominal",
    "Pack",
    "Pairs",
    "PenstockError",
    "PlanError",
    "Ragged",
    "Recorder",
    "Repeat",
    "Selection",
    "Sequences",
    "Shard",
    "Shuffle",
    "Source",
    "Spec",
    "SpecError",
    "Split",
    "StateError",
    "Steps",
    "TargetPairs",
    "UnknownFormatError",
    "UnsafeDataError",
    "VectorCollector",
    "Where",
    "Windows",
    "WorkerError",
    "Writer",
    "convert",
    "from_arrays",
    "from_records",
    "measure",
    "mix",
    "open",
    "read_lengths",
    "rollout",
    "rollout_vector",
    "spaces",
]

# Where each public name lives, as `pkgutil.resolve_name` reads it.
_HOME = {
    "ArgumentError": "penstock.errors:ArgumentError",
    "ChecksumError": "penstock.errors:ChecksumError",
    "Collector": "penstock.record.collector:Collector",
    "Columns": "penstock.core.columns:Columns",
    "DataError": "penstock.errors:DataError",
    "Episode": "penstock.core.episode:Episode",
    "EpisodeDataset": "penstock.data.dataset:EpisodeDataset",
    "ExpiredRowError": "penstock.errors:ExpiredRowError",
    "Field": "penstock.core.spec:Field",
    "Format": "penstock.formats.base.format:Format",
    "FormatError": "penstock.errors:FormatError",
    "IterDataset": "penstock.data.iter_dataset:IterDataset",
    "Jigsaw": "penstock.data.jigsaw:Jigsaw",
    "Loader": "penstock.load.loader:Loader",
    "LockedError": "penstock.errors:LockedError",
    "MapDataset": "penstock.data.map_dataset:MapDataset",
    "MemorySource": "penstock.formats.memory:MemorySource",
    "MissingExtraError": "penstock.errors:MissingExtraError",
    "Nominal": "penstock.plan.nominal:Nominal",
    "Pack": "penstock.plan.pack:Pack",
    "Pairs": "penstock.plan.pairs:Pairs",
    "PenstockError": "penstock.errors:PenstockError",
    "PlanError": "penstock.errors:PlanError",
    "Ragged": "penstock.core.ragged:Ragged",
    "Recorder": "penstock.record.recorder:Recorder",
    "Repeat": "penstock.plan.repeat:Repeat",
    "Selection": "penstock.core.selection:Selection",
    "Sequences": "penstock.plan.sequences:Sequences",
    "Shard": "penstock.plan.shard:Shard",
    "Shuffle": "penstock.plan.shuffle:Shuffle",
    "Source": "penstock.formats.base.source:Source",
    "Spec": "penstock.core.spec:Spec",
    "SpecError": "penstock.errors:SpecError",
    "Split": "penstock.plan.split:Split",
    "StateError": "penstock.errors:StateError",
    "Steps": "penstock.plan.steps:Steps",
    "TargetPairs": "penstock.plan.target_pairs:TargetPairs",
    "UnknownFormatError": "penstock.errors:UnknownFormatError",
    "UnsafeDataError": "penstock.errors:UnsafeDataError",
    "VectorCollector": "penstock.record.vector:VectorCollector",
    "Where": "penstock.plan.where:Where",
    "Windows": "penstock.plan.windows:Windows",
    "WorkerError": "penstock.errors:WorkerError",
    "Writer": "penstock.formats.base.writer:Writer",
    "convert": "penstock.conversion.convert:convert",
    "from_arrays": "penstock.data.dataset:from_arrays",
    "from_records": "penstock.data.records:from_records",
    "measure": "penstock.data.measure:measure",
    "mix": "penstock.data.mix:mix",
    "open": "penstock.data.open:open",
    "read_lengths": "penstock.data.lengths:read_lengths",
    "rollout": "penstock.record.rollout:rollout",
    "rollout_vector": "penstock.record.rollout:rollout_vector",
    "spaces": "penstock.core.spaces",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    try:
        value = globals()[name] = pkgutil.resolve_name(_HOME[name])
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        missing = pkgutil.resolve_name("penstock.errors:MissingExtraError")
        raise missing("gymnasium is not installed; install it with: pip install 'penstock[gymnasium]'") from error
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
