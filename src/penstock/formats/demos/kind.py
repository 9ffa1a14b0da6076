"""One kind of native demonstration file: recognises and opens it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from penstock.formats.base.findings import Finding
from penstock.formats.base.source import Source


class Kind(ABC):
    """How the demonstrations of one maker are recognised and opened. Stateless."""

    name: ClassVar[str]
    description: ClassVar[str]
    several: ClassVar[bool] = False  # whether `open` also takes several files, which are one dataset
    options: ClassVar[tuple[str, ...]] = ("max_bytes",)  # that `open` takes

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Whether the content at `path` (a file or a folder of files) is of this kind. Cheap, and never raises."""

    @abstractmethod
    def open(self, path: Path, **options: Any) -> Source:
        """Open for reading."""

    def check(self, path: Path, *, deep: bool, **options: Any) -> Iterator[Finding]:
        """Look for damage: opening reads what a check could look at, unless a kind knows more."""
        self.open(path, **options).close()
        yield from ()
