"""Compatibility layer for Minari 0.5.4: its names, over penstock's reading, writing and recording.

Its page, `docs/minari.md`, lists the differences: images are stored losslessly unless asked otherwise, nothing found in
a dataset is executed, and what was recorded is kept through appending, combining and splitting.
"""

from __future__ import annotations

from penstock.formats.minari.metadata import VERSION

__version__ = VERSION
supported_dataset_versions: set[str] = {
    "0.4.0",
    "0.4.1",
    "0.4.2",
    "0.4.3",
    "0.5.0",
    "0.5.1",
    "0.5.2",
    "0.5.3",
    "0.5.4",
}

from penstock_mirrors.minari.data_collector import DataCollector  # noqa: E402
from penstock_mirrors.minari.data_collector.callbacks import EpisodeMetadataCallback, StepDataCallback  # noqa: E402
from penstock_mirrors.minari.dataset.episode_data import EpisodeData  # noqa: E402
from penstock_mirrors.minari.dataset.minari_dataset import MinariDataset  # noqa: E402
from penstock_mirrors.minari.dataset.step_data import StepData  # noqa: E402
from penstock_mirrors.minari.storage.hosting import (  # noqa: E402
    download_dataset,
    list_remote_datasets,
    upload_dataset,
)
from penstock_mirrors.minari.storage.local import delete_dataset, list_local_datasets, load_dataset  # noqa: E402
from penstock_mirrors.minari.utils import (  # noqa: E402
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
