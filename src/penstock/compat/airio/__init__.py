"""Compatibility layer for AirIO programs: tasks, mixtures, packing and feature converters over penstock's plans.

It has AirIO's names and needs no TensorFlow, JAX or Grain. Filtered and packed datasets keep their length, random
access and global shuffle, and are mixed at exact rates. `docs/compat/airio.md` maps the names and lists differences.
"""

from __future__ import annotations

from penstock.compat.airio import core, feature_converters, packing, preprocessors, pygrain, pygrain_common
from penstock.compat.airio.builders import TaskBuilder
from penstock.compat.airio.data_sources import DataSource, FunctionDataSource, JsonDataSource, PenstockDataSource
from penstock.compat.airio.dataset_providers import Mixture, Task, get_dataset
from penstock.compat.airio.preprocessors import FilterFnTransform, MapFnTransform, RandomMapFnTransform, batched
from penstock.compat.airio.runtime import SKIP_FEATURE, AirIOInjectedRuntimeArgs, ShardInfo

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
