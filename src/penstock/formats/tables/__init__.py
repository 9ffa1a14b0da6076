"""Tables with a row for each step: Parquet, Arrow and JSON-lines files, and saved Hugging Face datasets."""

from penstock.formats.tables.format import TablesFormat

FORMAT = TablesFormat()

__all__ = ["FORMAT", "TablesFormat"]
