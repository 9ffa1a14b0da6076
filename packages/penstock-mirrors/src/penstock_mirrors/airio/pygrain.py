"""The names of `airio.pygrain`, for programs that say `import airio.pygrain as airio`."""

from __future__ import annotations

from penstock_mirrors.airio import data_sources, dataset_providers, preprocessors
from penstock_mirrors.airio.builders import TaskBuilder as GrainTaskBuilder
from penstock_mirrors.airio.data_sources import FunctionDataSource, JsonDataSource
from penstock_mirrors.airio.dataset_providers import Mixture as GrainMixture
from penstock_mirrors.airio.dataset_providers import Task as GrainTask
from penstock_mirrors.airio.preprocessors import FilterFnTransform, MapFnTransform, RandomMapFnTransform
from penstock_mirrors.airio.runtime import AirIOInjectedRuntimeArgs, ShardInfo

# Names of the original that this package lacks, and their replacements.
INSTEAD = {
    "ArrayRecordDataSource": "a FunctionDataSource that returns array_record's reader",
    "TfdsDataSource": "a FunctionDataSource that returns tfds.data_source(...)",
    "SentencePieceVocabulary": "a MapFnTransform of a function that calls sentencepiece",
    "UnigramVocabulary": "a MapFnTransform of a function that looks words up",
    "Tokenizer": "a MapFnTransform of a function that tokenizes",
    "TokenizerConfig": "a MapFnTransform of a function that tokenizes",
    "Vocabulary": "a MapFnTransform of a function that tokenizes",
    "lazy_dataset_transforms": "methods of the MapDataset that get_dataset gives",
    "dataset_iterators": "the MapDataset or Loader that get_dataset gives",
}

__all__ = [
    "AirIOInjectedRuntimeArgs",
    "FilterFnTransform",
    "FunctionDataSource",
    "GrainMixture",
    "GrainTask",
    "GrainTaskBuilder",
    "JsonDataSource",
    "MapFnTransform",
    "RandomMapFnTransform",
    "ShardInfo",
    "data_sources",
    "dataset_providers",
    "preprocessors",
]


def __getattr__(name: str) -> object:
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(f"{message}; use {INSTEAD[name]}" if name in INSTEAD else message)
