"""A plan and its sources make a dataset: random access by position, or iteration with stages after the fetch."""

from penstock.core.blocks import BlockIterator
from penstock.data.dataset import EpisodeDataset
from penstock.data.from_arrays import from_arrays
from penstock.data.iter_dataset import IterDataset
from penstock.data.map_dataset import MapDataset
from penstock.data.open import open

__all__ = ["BlockIterator", "EpisodeDataset", "IterDataset", "MapDataset", "from_arrays", "open"]
