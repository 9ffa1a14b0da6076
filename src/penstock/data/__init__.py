"""A plan and its sources make a dataset: random access by position, or iteration with stages after the fetch."""

from penstock.data.dataset import EpisodeDataset, from_arrays
from penstock.data.iter_dataset import BlockIterator, IterDataset
from penstock.data.map_dataset import MapDataset
from penstock.data.open import open

__all__ = ["BlockIterator", "EpisodeDataset", "IterDataset", "MapDataset", "from_arrays", "open"]
