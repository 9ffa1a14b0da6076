"""Archives of games: every frame in about 430 bytes, read alone. A column store whose one column is compact rows."""

from penstock_chess.formats.archive.format import ArchiveFormat
from penstock_chess.formats.archive.source import ROWS, ArchiveSource
from penstock_chess.formats.archive.writer import ArchiveWriter

FORMAT = ArchiveFormat()

__all__ = ["FORMAT", "ROWS", "ArchiveFormat", "ArchiveSource", "ArchiveWriter"]
