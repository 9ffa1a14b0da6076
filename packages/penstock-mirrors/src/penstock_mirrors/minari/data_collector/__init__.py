"""Recording: the environment wrapper, its callbacks, and buffers filled by hand."""

from penstock_mirrors.minari.data_collector.collection import unfinished
from penstock_mirrors.minari.data_collector.data_collector import DataCollector, recover_collection
from penstock_mirrors.minari.data_collector.episode_buffer import EpisodeBuffer

__all__ = ["DataCollector", "EpisodeBuffer", "recover_collection", "unfinished"]
