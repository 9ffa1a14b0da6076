"""Training data of Leela Chess Zero: files of chunks, a chunk the frames of one game.

`open_chunks` is what live data take in, `FORMAT` makes games episodes of a `Source`, `write_chunk` writes one chunk.
"""

from penstock_chess.formats.lc0.chunks import ChunkFile, open_chunks
from penstock_chess.formats.lc0.errors import ChunkError, Reason
from penstock_chess.formats.lc0.format import Lc0Format
from penstock_chess.formats.lc0.records import FRAME, NO_MOVE, RECORDS, SPEC
from penstock_chess.formats.lc0.source import Lc0Source
from penstock_chess.formats.lc0.upgrade import Missing, upgraded
from penstock_chess.formats.lc0.writer import Lc0Writer, packed_chunk, write_chunk

FORMAT = Lc0Format()

__all__ = [
    "FORMAT",
    "FRAME",
    "NO_MOVE",
    "RECORDS",
    "SPEC",
    "ChunkError",
    "ChunkFile",
    "Lc0Format",
    "Lc0Source",
    "Lc0Writer",
    "Missing",
    "Reason",
    "open_chunks",
    "packed_chunk",
    "upgraded",
    "write_chunk",
]
