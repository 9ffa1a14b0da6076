"""Zarr 2 and 3: groups of arrays in chunks. We read them ourselves, and write them row by row."""

from penstock.containers.zarr.array import Missing, ZarrArray
from penstock.containers.zarr.group import CACHE_BYTES, ZarrGroup
from penstock.containers.zarr.metadata import ArrayMetadata, described, dtype_of
from penstock.containers.zarr.rows import MemoryRows, ZarrRows
from penstock.containers.zarr.stores import DirectoryStore, ZarrStore, ZipStore, open_store
from penstock.containers.zarr.writing import (
    ArrayPart,
    ArrayWriter,
    GrowingArray,
    WritableRows,
    close_arrays,
    compressor_of,
    create_group,
    join_arrays,
    new_array,
    write_attributes,
)

__all__ = [
    "CACHE_BYTES",
    "ArrayMetadata",
    "ArrayPart",
    "ArrayWriter",
    "DirectoryStore",
    "GrowingArray",
    "MemoryRows",
    "Missing",
    "WritableRows",
    "ZarrArray",
    "ZarrGroup",
    "ZarrRows",
    "ZarrStore",
    "ZipStore",
    "close_arrays",
    "compressor_of",
    "create_group",
    "described",
    "dtype_of",
    "join_arrays",
    "new_array",
    "open_store",
    "write_attributes",
]
