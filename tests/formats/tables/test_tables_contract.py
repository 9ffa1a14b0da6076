"""The contract of sources, for Parquet, Arrow and JSON lines, in one file and in shards."""

# pyright: basic

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import feather

from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Field, Spec
from penstock.formats.base.source import Source
from penstock.formats.tables import FORMAT
from penstock.testing.examples import Example
from penstock.testing.sources import SourceContract

INDEX = "episode_index"


def spec(fields: dict[str, Field]) -> Spec:
    return Spec({INDEX: Field(np.dtype("int64")), **fields})


TYPED = spec(
    {
        "observation": Field(np.dtype("float32"), (3,)),
        "image": Field(np.dtype("uint8"), (2, 3)),
        "half": Field(np.dtype("float16")),
        "done": Field(np.dtype("bool")),
        "tokens": Field(np.dtype("int32"), kind="ragged"),
        "task": Field(np.dtype("uint8"), kind="text"),
        "infos/inner/energy": Field(np.dtype("float64")),
        "infos/note": Field(np.dtype("uint8"), kind="text"),
    }
)
PLAIN = spec(
    {
        "observation": Field(np.dtype("float64"), (2, 2)),
        "done": Field(np.dtype("bool")),
        "tokens": Field(np.dtype("int64"), kind="ragged"),
        "task": Field(np.dtype("uint8"), kind="text"),
        "infos/step": Field(np.dtype("int64")),
    }
)


@dataclass(frozen=True, eq=False)
class Rows(Example):
    """Random rows, with the number of their episode."""

    def episodes(self, seed: int = 0) -> list[Episode]:
        found = super().episodes(seed)
        return [Episode(e.spec, {**e.columns, INDEX: np.full(len(e), e.id)}, e.id, {INDEX: e.id}) for e in found]

    def __repr__(self) -> str:
        return self.name


def encoded(column: Any, field: Field) -> Any:
    """A column as an Arrow array with lists of fixed sizes."""
    if isinstance(column, Ragged):
        rows = column.strings() if field.kind == "text" else [column[i] for i in range(len(column))]
        return pa.array(rows, pa.string() if field.kind == "text" else pa.list_(pa.from_numpy_dtype(field.dtype)))
    array = pa.array(np.ascontiguousarray(column).reshape(-1))
    for size in reversed(field.shape):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


def nested(arrays: dict[str, Any]) -> Any:
    """A struct for every part of a path."""
    tree: dict[str, Any] = {}
    for path, array in arrays.items():
        head, _, rest = path.partition("/")
        if rest:
            tree.setdefault(head, {})[rest] = array
        else:
            tree[head] = array
    made = {k: nested(v) if isinstance(v, dict) else v for k, v in tree.items()}
    return pa.StructArray.from_arrays(list(made.values()), names=list(made))


def table_of(episodes: Sequence[Episode]) -> Any:
    whole: dict[str, list[Any]] = {path: [e.columns[path] for e in episodes] for path in episodes[0].spec}
    joined = {p: Ragged.concatenate(v) if isinstance(v[0], Ragged) else np.concatenate(v) for p, v in whole.items()}
    struct = nested({path: encoded(column, episodes[0].spec[path]) for path, column in joined.items()})
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(struct)])


def write_parquet(table: Any, path: Path) -> None:
    pq.write_table(table, path, row_group_size=4)


def write_arrow(table: Any, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


def write_stream(table: Any, path: Path) -> None:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)


def write_feather(table: Any, path: Path) -> None:
    feather.write_feather(table, path, compression="lz4", chunksize=4)


def write_lines(table: Any, path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


class Contract(SourceContract):
    examples: ClassVar[Sequence[Example]] = (Rows("rows", TYPED, (3, 1, 7, 2)), Rows("one", TYPED, (1,)))

    def test_the_table_holds_every_number(self, source: Source, episodes: list[Episode]) -> None:
        """The numbers of the episodes."""
        assert source.table()[INDEX].tolist() == list(range(len(episodes)))


class TestParquet(Contract):
    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        write_parquet(table_of(episodes), path / "rows.parquet")
        return FORMAT.open(path / "rows.parquet")


class TestParquetShards(Contract):
    """Episodes go on in the next shard; hardly anything stays decoded."""

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        table = table_of(episodes)
        shards(path / "table", "parquet", table, write_parquet)
        return FORMAT.open(path / "table", cache_bytes=100)


class TestArrow(Contract):
    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        write_arrow(table_of(episodes), path / "rows.arrow")
        return FORMAT.open(path / "rows.arrow")


class TestFeatherShards(Contract):
    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        shards(path / "table", "feather", table_of(episodes), write_feather)
        return FORMAT.open(path / "table")


class TestHuggingFace(Contract):
    """The layout of `save_to_disk`: Arrow streams that a state lists."""

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        folder = path / "saved"
        shards(folder, "arrow", table_of(episodes), write_stream)
        names = sorted((p.name for p in folder.iterdir()), key=lambda name: int(name[4:-6]))
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
        (folder / "dataset_info.json").write_text(json.dumps({"description": "steps"}))
        (folder / "cache-123.arrow").write_bytes(b"not of the dataset")
        found = FORMAT.open(folder)
        assert found.metadata["dataset_info"] == {"description": "steps"}
        return found


class TestJsonLines(Contract):
    examples: ClassVar[Sequence[Example]] = (Rows("rows", PLAIN, (3, 1, 7, 2)),)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        shards(path / "table", "jsonl", table_of(episodes), write_lines)
        return FORMAT.open(path / "table")


def shards(folder: Path, suffix: str, table: Any, write: Callable[[Any, Path], None]) -> None:
    """Files of five rows, whose numbers have no leading zeros."""
    folder.mkdir(parents=True)
    for number, start in enumerate(range(0, table.num_rows, 5)):
        write(table.slice(start, 5), folder / f"rows{number + 9}.{suffix}")
