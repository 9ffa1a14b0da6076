"""What a format implements. `__init__.py` imports a name at its first use."""

from .base.findings import Finding as Finding
from .base.format import Format as Format
from .base.source import Source as Source
from .base.writer import Writer as Writer
from .memory import MemorySource as MemorySource
