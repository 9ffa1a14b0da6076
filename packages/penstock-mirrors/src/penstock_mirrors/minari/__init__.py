"""Compatibility layer for Minari 0.5.4: its names, over penstock's reading, writing and recording.

Its page, `docs/minari.md`, lists the differences: images are stored losslessly unless asked otherwise, nothing found in
a dataset is executed, and what was recorded is kept through appending, combining and splitting.
"""

from __future__ import annotations

import sys
from types import ModuleType

from penstock.formats.minari.metadata import VERSION
from penstock_mirrors.minari.data_collector import DataCollector
from penstock_mirrors.minari.data_collector.callbacks import EpisodeMetadataCallback, StepDataCallback
from penstock_mirrors.minari.dataset import versions
from penstock_mirrors.minari.dataset.episode_data import EpisodeData
from penstock_mirrors.minari.dataset.minari_dataset import MinariDataset
from penstock_mirrors.minari.dataset.step_data import StepData
from penstock_mirrors.minari.storage.hosting import (
    download_dataset,
    list_remote_datasets,
    upload_dataset,
)
from penstock_mirrors.minari.storage.local import delete_dataset, list_local_datasets, load_dataset
from penstock_mirrors.minari.utils import (
    combine_datasets,
    create_dataset_from_buffers,
    get_normalized_score,
    split_dataset,
)

__all__ = [
    "DataCollector",
    "EpisodeData",
    "EpisodeMetadataCallback",
    "MinariDataset",
    "StepData",
    "StepDataCallback",
    "combine_datasets",
    "create_dataset_from_buffers",
    "delete_dataset",
    "download_dataset",
    "get_normalized_score",
    "list_local_datasets",
    "list_remote_datasets",
    "load_dataset",
    "split_dataset",
    "upload_dataset",
]

__version__ = VERSION
supported_dataset_versions: set[str]


class _Minari(ModuleType):
    """This module, whose `supported_dataset_versions` programs may set, as in Minari."""

    @property
    def supported_dataset_versions(self) -> set[str]:
        return versions.supported_dataset_versions

    @supported_dataset_versions.setter
    def supported_dataset_versions(self, releases: set[str]) -> None:
        versions.supported_dataset_versions = releases


sys.modules[__name__].__class__ = _Minari
