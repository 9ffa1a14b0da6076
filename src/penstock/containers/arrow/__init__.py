"""Arrow arrays as NumPy arrays, and Parquet files whose row groups are decoded one column at a time. Needs PyArrow."""

from penstock.containers.arrow.parquet import ParquetFile, identity_of, one_array
from penstock.containers.arrow.values import Shapes, TableColumn, array_of, arrow, leaves_of, values_of

__all__ = [
    "ParquetFile",
    "Shapes",
    "TableColumn",
    "array_of",
    "arrow",
    "identity_of",
    "leaves_of",
    "one_array",
    "values_of",
]
