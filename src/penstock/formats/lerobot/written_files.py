"""Files of a dataset that is written: Parquet that appears when it is complete, tasks, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.containers.arrow import arrow
from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array, is_scalar
from penstock.errors import DataError, require
from penstock.files import atomic_file

TASKS = "meta/tasks.parquet"


def write_tasks(root: Path, tasks: Sequence[str]) -> None:
    """Write the tasks as a table whose index is the text, as pandas stores it."""
    pa = arrow()
    text = "__index_level_0__"
    described = [
        {
            "name": "task_index",
            "field_name": "task_index",
            "pandas_type": "int64",
            "numpy_type": "int64",
            "metadata": None,
        },
        {"name": None, "field_name": text, "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
    ]
    schema = pa.schema(
        [("task_index", pa.int64()), (text, pa.string())],
        metadata={"pandas": json_bytes({"index_columns": [text], "column_indexes": [], "columns": described})},
    )
    columns = [pa.array(range(len(tasks)), pa.int64()), pa.array(list(tasks), pa.string())]
    write_tables(root / TASKS, schema, [pa.Table.from_arrays(columns, schema=schema)])


def write_tables(path: Path, schema: Any, tables: Iterable[Any]) -> None:
    """Write a Parquet file with a row group for each table, which appears when it is complete."""
    parquet = require("pyarrow.parquet", "arrow")
    with (
        atomic_file(path, durable="file") as file,
        parquet.ParquetWriter(file, schema, compression="snappy", use_dictionary=True) as writer,
    ):
        for table in tables:
            writer.write_table(table.replace_schema_metadata(schema.metadata), row_group_size=max(len(table), 1))


def tables_with(file: Any, columns: Mapping[str, AnyArray]) -> Iterator[Any]:
    """Yield the row groups of a Parquet file with other values in some columns."""
    pa = arrow()
    begin = 0
    for group in range(file.num_row_groups):
        table = file.read_row_group(group, use_threads=False)
        for name, column in columns.items():
            place = table.schema.get_field_index(name)
            values = pa.array(column[begin : begin + len(table)]).cast(table.schema.field(place).type)
            table = table.set_column(place, table.schema.field(place), values)
        begin += len(table)
        yield table


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON text. Raises `DataError` for objects that JSON cannot hold."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=4, default=_number).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"expected metadata that JSON can hold, got {error}") from error


def _number(value: object) -> Any:
    """Return numbers and arrays of NumPy as JSON has them. Raises `TypeError` for other objects."""
    if is_scalar(value) or is_array(value):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__}")
