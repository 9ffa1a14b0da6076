"""The contract of sources and of accounts, for files that a mapping reads."""

# pyright: basic

from __future__ import annotations

import csv
import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Spec
from penstock.data.located import locate
from penstock.formats.base.source import Source
from penstock.formats.mapping import FORMAT
from penstock.testing.accounts import AccountContract, Leftover, Planted
from penstock.testing.examples import FLAT, NUMBERS, RAGGED, Example
from penstock.testing.sources import SourceContract


def without_spaces(example: Example, *columns: str) -> Example:
    """An example that files without spaces can have, with some of its columns."""
    fields = {name: field for name, field in example.spec.fields.items() if not columns or name in columns}
    return Example(example.name, Spec(fields), example.lengths)


def rules(example: Example | Spec) -> dict[str, Any]:
    spec = example if isinstance(example, Spec) else example.spec
    return {name: {"from": name, "align": field.align} for name, field in spec.fields.items()}


def nested(episode: Episode) -> dict[str, Any]:
    """Columns as nested dicts of arrays and lists."""
    tree: dict[str, Any] = {}
    for path, column in episode.columns.items():
        here = tree
        *parts, last = path.split("/")
        for part in parts:
            here = here.setdefault(part, {})
        if isinstance(column, Ragged):
            is_text = episode.spec[path].kind == "text"
            here[last] = column.strings() if is_text else [column[i] for i in range(len(column))]
        else:
            here[last] = column
    return {**tree, **episode.metadata}


class Bare(Example):
    """Episodes without metadata, as tables have them."""

    def episodes(self, seed: int = 0) -> list[Episode]:
        return [Episode(episode.spec, episode.columns, episode.id) for episode in super().episodes(seed)]


NUMERIC = tuple(without_spaces(example) for example in (FLAT, NUMBERS))
RAGGED_ROWS = Example("ragged", Spec(dict(RAGGED.spec.fields)), (2, 4, 3))


class TestNpz(SourceContract):
    """An archive an episode; every other one deflated."""

    examples: ClassVar[Sequence[Example]] = NUMERIC

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        for e, episode in enumerate(episodes):
            save = (np.savez, np.savez_compressed)[e % 2]
            values: dict[str, Any] = {**episode.columns, **episode.metadata}
            save(path / f"episode_{e}.npz", **values)
        return FORMAT.open(path, files="episode_{e}.npz", whole_files=True, columns=rules(episodes[0].spec))


class TestHdf5(SourceContract):
    """Groups in one file: contiguous, chunked and packed, text and rows that vary in length."""

    examples: ClassVar[Sequence[Example]] = (*NUMERIC, RAGGED_ROWS)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        with h5py.File(path / "all.h5", "w") as file:
            for e, episode in enumerate(episodes):
                group = file.create_group(f"data/demo_{e}")
                group.attrs.update(episode.metadata)
                for name, column in episode.columns.items():
                    if not isinstance(column, Ragged):
                        chunks = tuple(min(2, size) for size in column.shape)
                        packed = {"chunks": chunks, "compression": "gzip"} if e % 2 and column.size else {}
                        group.create_dataset(name, data=column, **packed)
                    elif episode.spec[name].kind == "text":
                        group.create_dataset(name, data=column.strings(), dtype=h5py.string_dtype())
                    else:
                        made = group.create_dataset(name, (len(column),), h5py.vlen_dtype(column.dtype))
                        for i in range(len(column)):
                            made[i] = column[i]
        columns = rules(episodes[0].spec)
        return FORMAT.open(path / "all.h5", group="data/demo_{i}", whole_files=True, columns=columns)


class TestPickles(SourceContract):
    """A dict an episode, with lists where rows vary in length."""

    examples: ClassVar[Sequence[Example]] = (without_spaces(FLAT), RAGGED_ROWS)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        for e, episode in enumerate(episodes):
            (path / f"{e}.pkl").write_bytes(pickle.dumps(nested(episode)))
        columns = {
            name: rule | {"dtype": episodes[0].spec[name].dtype.str} for name, rule in rules(episodes[0].spec).items()
        }
        for name, field in episodes[0].spec.items():
            if field.kind == "text":
                del columns[name]["dtype"]
        return FORMAT.open(path, files="*.pkl", whole_files=True, columns=columns)


class TestSaved(SourceContract):
    """What `torch.save` writes."""

    examples: ClassVar[Sequence[Example]] = (without_spaces(FLAT),)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        for e, episode in enumerate(episodes):
            tensors = {name: torch.from_numpy(np.array(column)) for name, column in episode.columns.items()}
            torch.save({**tensors, **episode.metadata}, path / f"{e}.pt")
        return FORMAT.open(path, files="{e}.pt", whole_files=True, columns=rules(episodes[0].spec))


class TestParquet(SourceContract):
    """A table of all steps without an id: lengths are given."""

    examples: ClassVar[Sequence[Example]] = (Bare("table", without_spaces(FLAT, "rewards", "actions").spec, (3, 1, 2)),)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        whole = {name: np.concatenate([episode.columns[name] for episode in episodes]) for name in episodes[0].spec}
        pq.write_table(pa.table(whole), path / "t.parquet", row_group_size=3)
        lengths = [len(episode) for episode in episodes]
        return FORMAT.open(path / "t.parquet", lengths=lengths, columns={name: name for name in whole})

    def test_metadata_of_episodes(self, source: Source, episodes: list[Episode]) -> None:
        """A table has none."""
        assert source.episode_metadata([0]) == [{}]

    def test_the_table_holds_every_number(self, source: Source, episodes: list[Episode]) -> None:
        """Of lengths alone."""
        assert source.table()["total_steps"].tolist() == [len(episode) for episode in episodes]


def write_csv(path: Path, rows: Mapping[str, Sequence[Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows)
        writer.writerows(zip(*rows.values(), strict=True))


class Accounts(AccountContract):
    absent: ClassVar[Mapping[Leftover, str]] = {
        "column": "it is an array",
        "unfinished": "penstock writes no such files",
        "bad first file": "a file that cannot be read is an error that names it: nothing is left out in silence",
    }

    def open(self, path: Path, **options: Any) -> Source:
        return locate(path).open(**options)


def more_rows(path: Path) -> None:
    np.savez(path / "extra.npz", obs=np.zeros((4, 2)), action=np.zeros(4))


def edit_npz(path: Path, **arrays: Any) -> None:
    with np.load(path) as stored:
        values: dict[str, Any] = {**stored, **arrays}
    np.savez(path, **values)


class TestNpzAccount(Accounts):
    absent: ClassVar[Mapping[Leftover, str]] = {
        **Accounts.absent,
        "tail": "the archive says where it ends; `penstock.check` of demonstrations looks behind it",
    }
    planted: ClassVar[Mapping[Leftover, Planted]] = {
        "file": Planted(lambda path: (path / "notes.bin").write_bytes(b"x"), "other-file", "notes.bin"),
        "array": Planted(lambda path: edit_npz(path / "0.npz", force=np.zeros(3)), "unused-array", "force"),
        "member": Planted(
            lambda path: edit_npz(path / "1.npz", mark=np.array([object()], dtype=object)), "damaged-part", "mark"
        ),
    }

    def write(self, path: Path) -> Path:
        for e in range(3):
            np.savez(path / f"{e}.npz", obs=np.zeros((4, 2)), action=np.zeros(3))
        text = 'penstock_mapping = 1\nfiles = "{e}.npz"\n[columns]\nobservations = "obs"\nactions = "action"\n'
        (path / "penstock.toml").write_text(text)
        return path


class TestCsvAccount(Accounts):
    absent: ClassVar[Mapping[Leftover, str]] = {
        **Accounts.absent,
        "member": "a text has columns alone",
        "tail": "text behind the last row is a row, and its cells are counted",
    }
    planted: ClassVar[Mapping[Leftover, Planted]] = {
        "file": Planted(lambda path: (path / "old.csv~").write_text("x"), "other-file", "old.csv~"),
        "array": Planted(
            lambda path: write_csv(path / "0.csv", {"x": [1, 2], "u": [1, 2], "w": [3, 4]}), "unused-array", "w"
        ),
    }

    def write(self, path: Path) -> Path:
        for e in range(3):
            write_csv(path / f"{e}.csv", {"x": [1, 2], "u": [3, 4]})
        text = {"files": "{e}.csv", "columns": {"observations": "x", "actions": "u"}}
        lines = ["penstock_mapping = 1", f"files = {json.dumps(text['files'])}", "[columns]"]
        (path / "penstock.toml").write_text("\n".join([*lines, 'observations = "x"', 'actions = "u"']))
        return path
