"""The format of replay buffers: how they are recognised, opened, checked and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.containers.zarr import open_store
from penstock.containers.zarr.metadata import ARRAY, GROUP, NODE
from penstock.core.spec import Spec
from penstock.errors import FormatError
from penstock.files import locked
from penstock.files.remote import open_file
from penstock.formats.base.format import Finding, Format
from penstock.formats.base.repairs import Repair
from penstock.formats.base.writer import Target
from penstock.formats.zarr.check import findings
from penstock.formats.zarr.joining import join_buffers
from penstock.formats.zarr.layout import ENDS, META
from penstock.formats.zarr.repair import unused_rows
from penstock.formats.zarr.source import ZarrSource
from penstock.formats.zarr.writer import ZarrWriter

TARGET = Target(
    "zarr",
    flat=True,
    options=("compressor", "chunk_rows", "zarr_format"),
    files=(".zattrs*", ".zgroup*", "zarr.json*", "data", "meta"),
)


class ZarrFormat(Format):
    """Replay buffers in Zarr, as Diffusion Policy and UMI store them. See docs/formats/zarr.md.

    `open` takes the options of `ZarrSource`, `create` the options of `ZarrWriter.create`.
    """

    name: ClassVar[str] = "zarr"
    description: ClassVar[str] = "replay buffers of Diffusion Policy and UMI: Zarr arrays and the ends of episodes"
    suffixes: ClassVar[tuple[str, ...]] = (".zarr",)
    file_suffixes: ClassVar[tuple[str, ...]] = (".zip",)
    extras: ClassVar[tuple[str, ...]] = ("zarr", "jpegxl", "remote")
    places_values: ClassVar[bool] = True

    def recognises(self, path: Path) -> bool:
        """Return whether there is a Zarr group with `meta/episode_ends`: a folder, or a ZIP archive."""
        try:
            if not path.is_dir():
                with open_file(path) as file:
                    if file.read(4) != b"PK\3\4":
                        return False
            store = open_store(path)
            return any(
                store.has(root) and store.has(f"{ENDS}/{array}") for root, array in ((GROUP, ARRAY), (NODE, NODE))
            )
        except (OSError, FormatError):
            return False

    def open(self, path: Path, **options: Any) -> ZarrSource:
        """Open for reading. Raises `FormatError`, `ArgumentError`."""
        return ZarrSource(path, **options)

    @override
    def target(self, options: Mapping[str, Any]) -> Target:
        """What `create` can store."""
        return TARGET

    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any) -> ZarrWriter:
        """Create an empty buffer. Raises `FileExistsError`, `SpecError`, `DataError`, `ArgumentError`."""
        return ZarrWriter.create(path, spec, metadata, **options)

    @override
    def join_parts(self, parts: Sequence[Path], out: Path, place: Path) -> None:
        """Chunks are moved. Those with rows of two parts, and metadata of episodes, are encoded again."""
        join_buffers(parts, out)

    def append(self, path: Path, **options: Any) -> ZarrWriter:
        """Open an existing folder for more episodes. Raises `FormatError`, `DataError`, `LockedError`."""
        return ZarrWriter(path, **options)

    def check(self, path: Path, *, deep: bool = True) -> Iterator[Finding]:
        """Search for chunks that are not stored, and rows of no episode; with `deep` for chunks that cannot be read."""
        return findings(path, deep=deep)

    @override
    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        if any(finding.name == "unused-rows" for finding in findings):
            yield from unused_rows(path)

    @override
    def writing_lock(self, path: Path) -> AbstractContextManager[object]:
        return locked(path / META if path.is_dir() else path)
