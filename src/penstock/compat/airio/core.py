"""The names of `airio.core`."""

from __future__ import annotations

from penstock.compat.airio import data_sources, dataset_providers, preprocessors
from penstock.compat.airio.builders import TaskBuilder
from penstock.compat.airio.data_sources import DataSource
from penstock.compat.airio.dataset_providers import DatasetProviderBase, Mixture, Task, get_dataset
from penstock.compat.airio.preprocessors import FilterFnTransform, MapFnTransform, RandomMapFnTransform
from penstock.compat.airio.runtime import AirIOInjectedRuntimeArgs, ShardInfo

__all__ = [
    "AirIOInjectedRuntimeArgs",
    "DataSource",
    "DatasetProviderBase",
    "FilterFnTransform",
    "MapFnTransform",
    "Mixture",
    "RandomMapFnTransform",
    "ShardInfo",
    "Task",
    "TaskBuilder",
    "data_sources",
    "dataset_providers",
    "get_dataset",
    "preprocessors",
]
