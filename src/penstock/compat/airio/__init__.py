"""The door for programs written for AirIO: tasks, mixtures, packing and feature converters over penstock's plans.

Its names, without TensorFlow, JAX and Grain. What is filtered or packed keeps its length, its random access and its
global shuffle, and is mixed at exact rates. How the names map, and what differs, is in `docs/compat/airio.md`.
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
