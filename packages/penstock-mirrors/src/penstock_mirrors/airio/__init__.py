"""Compatibility layer for AirIO programs: tasks, mixtures, packing and feature converters over penstock's plans.

It has AirIO's names and needs no TensorFlow, JAX or Grain. Filtered and packed datasets keep their length, random
access and global shuffle, and are mixed at exact rates. `docs/mirrors/airio.md` maps the names and lists differences.
"""

from __future__ import annotations

from penstock_mirrors.airio import core, feature_converters, packing, preprocessors, pygrain, pygrain_common
from penstock_mirrors.airio.builders import TaskBuilder
from penstock_mirrors.airio.data_sources import DataSource, FunctionDataSource, JsonDataSource, PenstockDataSource
from penstock_mirrors.airio.dataset_providers import Mixture, Task, get_dataset
from penstock_mirrors.airio.preprocessors import FilterFnTransform, MapFnTransform, RandomMapFnTransform, batched
from penstock_mirrors.airio.runtime import SKIP_FEATURE, AirIOInjectedRuntimeArgs, ShardInfo

GrainTask = Task
GrainTaskBuilder = TaskBuilder
GrainMixture = Mixture

__all__ = [
    "SKIP_FEATURE",
    "AirIOInjectedRuntimeArgs",
    "DataSource",
    "FilterFnTransform",
    "FunctionDataSource",
    "GrainMixture",
    "GrainTask",
    "GrainTaskBuilder",
    "JsonDataSource",
    "MapFnTransform",
    "Mixture",
    "PenstockDataSource",
    "RandomMapFnTransform",
    "ShardInfo",
    "Task",
    "TaskBuilder",
    "batched",
    "core",
    "feature_converters",
    "get_dataset",
    "packing",
    "preprocessors",
    "pygrain",
    "pygrain_common",
]
