"""Arrow files behind URLs: the footer, then the buffers of single columns of single record batches.

PyArrow reads a file object. With `included_fields` it asks for the buffers of these columns alone, so the file object
fetches their ranges and nothing between them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.containers.arrow.values import arrow
from penstock.files.remote import open_file


class RangedArrowFile:
    """An Arrow file of which parts are read.

    Args:
        path: The file.

    Raises:
        pyarrow.ArrowException: The file is no Arrow file, or damaged.
        OSError: It cannot be read.
        MissingExtraError: PyArrow is not installed.

    Cost of opening: the footer, and the narrowest column, whose buffers come with the number of rows.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.schema: Any = self._reader(None).schema
        narrowest = self._reader(min(range(len(self.schema)), key=self._width, default=None))
        self.rows: list[int] = [narrowest.get_batch(i).num_rows for i in range(narrowest.num_record_batches)]

    def _reader(self, column: int | None) -> Any:
        """A reader of one column. Readers are not shared by threads."""
        pa = arrow()
        fields = [] if column is None else [column]
        file = open_file(self._path, buffer=1)
        return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=fields))

    def _width(self, column: int) -> int:
        """Bits of a row; types without a fixed width are wider than all others."""
        try:
            return int(self.schema.field(column).type.bit_width)
        except ValueError:
            return 1 << 62

    def column(self, batch: int, name: str) -> Any:
        """Return a column of a record batch as an Arrow array.

        Args:
            batch: Number of the record batch.
            name: Name of the column.
        """
        return self._reader(self.schema.names.index(name)).get_batch(batch).column(0)
