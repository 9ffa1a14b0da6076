"""Arrow arrays as NumPy arrays; Parquet files, and Arrow files behind URLs, one column of a block at a time. Needs
PyArrow.
"""

from penstock.containers.arrow.files import FileEnds, ParquetFile, RangedArrowFile, chunks_of, one_array
from penstock.containers.arrow.pages import stored_leaves
from penstock.containers.arrow.values import (
    Shapes,
    TableColumn,
    array_of,
    arrow,
    leaves_of,
    numbers_of,
    plain_array,
    plain_type,
    values_of,
)

__all__ = [
    "FileEnds",
    "ParquetFile",
    "RangedArrowFile",
    "Shapes",
    "TableColumn",
    "array_of",
    "arrow",
    "chunks_of",
    "leaves_of",
    "numbers_of",
    "one_array",
    "plain_array",
    "plain_type",
    "stored_leaves",
    "values_of",
]
