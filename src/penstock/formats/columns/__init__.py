"""The column store: a folder with one append-only file of raw values a column, and the table of episodes."""

from penstock.formats.columns.format import ColumnsFormat

FORMAT = ColumnsFormat()

__all__ = ["FORMAT", "ColumnsFormat"]
