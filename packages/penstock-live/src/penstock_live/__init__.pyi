"""Public names, and the module of each. `__init__.py` imports a name from there at its first use."""

from .chunk_sources import ChunkSourceLoader as ChunkSourceLoader
from .chunk_sources import Inlet as Inlet
from .directory import FilePathProvider as FilePathProvider
from .endpoint import MetricsEndpoint as MetricsEndpoint
from .extractor import SimpleChunkExtractor as SimpleChunkExtractor
from .hanse import HanseSampling as HanseSampling
from .hooks import ChunkFunctions as ChunkFunctions
from .hooks import ChunkStages as ChunkStages
from .hooks import Rejected as Rejected
from .join import JoinPositions as JoinPositions
from .journal import Journal as Journal
from .journal import read_journal as read_journal
from .options import LiveOptions as LiveOptions
from .options import Stream as Stream
from .pipeline import LivePipeline as LivePipeline
from .pool import ShufflingChunkPool as ShufflingChunkPool
from .position_store import PositionStore as PositionStore
from .sampler import ShufflingFrameSampler as ShufflingFrameSampler
from .source_chunks import EpisodeInlet as EpisodeInlet
from .splitter import ChunkSourceSplitter as ChunkSourceSplitter
from .stream_shuffler import StreamShuffler as StreamShuffler
from .tensors import TensorGenerator as TensorGenerator
from .unpacker import ChunkUnpacker as ChunkUnpacker
