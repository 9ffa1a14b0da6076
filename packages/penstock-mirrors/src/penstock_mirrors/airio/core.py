"""The names of `airio.core`."""

from __future__ import annotations

from penstock_mirrors.airio import data_sources, dataset_providers, preprocessors
from penstock_mirrors.airio.builders import TaskBuilder
from penstock_mirrors.airio.data_sources import DataSource
from penstock_mirrors.airio.dataset_providers import DatasetProviderBase, Mixture, Task, get_dataset
from penstock_mirrors.airio.preprocessors import FilterFnTransform, MapFnTransform, RandomMapFnTransform
from penstock_mirrors.airio.runtime import AirIOInjectedRuntimeArgs, ShardInfo

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
