"""Recognition of tables, options, missing values, and damaged files."""

# pyright: basic

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.containers.arrow import ParquetFile
from penstock.core.selection import Selection
from penstock.errors import ArgumentError, DamageWarning, FormatError, UnknownFormatError
from penstock.files import mapping
from penstock.formats.base.account import Account
from penstock.formats.base.format import recognise
from penstock.formats.base.source import Source
from penstock.formats.tables import FORMAT
from penstock.formats.tables.shards import ParquetShard
from penstock.formats.tables.source import TableSource

OPTIONS = {"data_format": "parquet"}


def parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path / "t.parquet", **options)
    return path / "t.parquet"


def column(source: Source, e: int, name: str) -> Any:
    return source.episode(e).columns[name]


def lines(path: Path, *rows: object) -> Path:
    (path / "t.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return path / "t.jsonl"


def test_episodes_are_runs_of_integers_or_text(tmp_path: Path) -> None:
    columns = {"x": [1, 2, 3, 4], "episode_id": ["b", "b", "a", "c"], "group": [7, 5, 5, 5]}
    file = parquet(tmp_path, columns, row_group_size=1)
    data = penstock.open(file)
    assert [column(data.source, e, "x").tolist() for e in range(3)] == [[1, 2], [3], [4]]
    assert data.source.episode_metadata([2, 0]) == [{"episode_id": "c"}, {"episode_id": "b"}]
    assert penstock.open(file, episode="group").source.offsets.tolist() == [0, 1, 4]
    assert penstock.open(file).source.fingerprint != penstock.open(file, episode="group").source.fingerprint


def test_episode_columns_of_dictionaries_and_structs(tmp_path: Path) -> None:
    names = pa.array(["b", "b", "a"]).dictionary_encode()
    file = parquet(tmp_path, {"traj_id": names, "meta": [{"id": 1}, {"id": 2}, {"id": 2}]})
    assert FORMAT.open(file).offsets.tolist() == [0, 2, 3]
    assert column(FORMAT.open(file), 0, "traj_id").strings() == ["b", "b"]
    assert FORMAT.open(file, episode="meta/id").offsets.tolist() == [0, 1, 3]


def test_without_an_episode_column_the_columns_are_listed(tmp_path: Path) -> None:
    file = parquet(tmp_path, {"run": [1], "x": [2.0]})
    with pytest.raises(FormatError, match=r"got \['run', 'x'\]; say which, as episode='run'"):
        penstock.open(file)
    with pytest.raises(ArgumentError, match="did you mean 'run'"):
        penstock.open(file, episode="runs")
    with pytest.raises(FormatError, match="integers or text"):
        penstock.open(file, episode="x")
    with pytest.raises(ArgumentError, match="no option 'episodes'"):
        penstock.open(file, episodes="run")


@pytest.mark.parametrize("size", [1, 2, 10])
def test_rows_of_an_episode_must_be_next_to_each_other(tmp_path: Path, size: int) -> None:
    file = parquet(tmp_path, {"episode": [4, 4, 5, 4]}, row_group_size=size)
    with pytest.raises(FormatError, match="episode 4 at row 0 and again at row 3; sort the table"):
        penstock.open(file)


RECORDINGS = {  # episodes of each recording, as number and steps
    "one of each": [[(0, 3)], [(0, 3)], [(0, 3)]],
    "the last number is the first": [[(0, 4)], [(0, 3), (1, 2)]],
    "several": [[(0, 3), (1, 2)], [(0, 3), (1, 2)]],
    "a gap": [[(0, 3), (1, 2)], [(1, 3), (2, 2)]],
    "numbers that fall": [[(2, 3), (1, 2)], [(0, 3)]],
}
EVIDENCE: dict[str, dict[str, Any]] = {
    "steps": {"frame_index": lambda t, _: t},
    "steps from 1": {"step": lambda t, _: t + 1.0},
    "done": {"next.done": lambda t, length: t == length - 1},
    "one of two flags": {
        "terminated": lambda t, length: t == length - 1 and length == 3,
        "truncated": lambda t, length: t == length - 1 and length != 3,
    },
    "a count of all steps, and done": {"step": lambda t, _: None, "done": lambda t, length: t == length - 1},
}


def rows_of(recording: list[tuple[int, int]], evidence: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"episode_index": e, "x": float(t), **{name: value(t, length) for name, value in evidence.items()}}
        for e, length in recording
        for t in range(length)
    ]


@pytest.mark.parametrize("evidence", EVIDENCE)
@pytest.mark.parametrize("name", RECORDINGS)
def test_recordings_that_number_alike_stay_apart(
    tmp_path: Path, name: str, evidence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings = [rows_of(recording, EVIDENCE[evidence]) for recording in RECORDINGS[name]]
    rows = [row for recording in recordings for row in recording]
    for i, row in enumerate(rows):
        row |= {"step": i} if row.get("step", 0) is None else {}
    lengths = [length for recording in RECORDINGS[name] for _, length in recording]
    for kind in ("parquet", "jsonl", "one"):
        (tmp_path / kind).mkdir()
        for i, recording in enumerate([rows] if kind == "one" else recordings):
            if kind == "jsonl":
                (tmp_path / kind / f"{i}.jsonl").write_text("\n".join(json.dumps(row) for row in recording))
            else:
                pq.write_table(pa.Table.from_pylist(recording), tmp_path / kind / f"{i}.parquet", row_group_size=2)
        with penstock.open(tmp_path / kind) as data:
            assert np.diff(data.source.offsets).tolist() == lengths
            assert (np.diff(data.windows(2)[:]["x"], axis=1) == 1).all()
    monkeypatch.setattr("penstock.formats.tables.source.MANY_FILES", 2)
    with penstock.open(tmp_path / "parquet") as data:
        assert np.diff(data.source.offsets).tolist() == lengths
    with penstock.open(tmp_path / "one", columns=["x"]) as data:
        assert np.diff(data.source.offsets).tolist() == lengths


@pytest.mark.parametrize("ids", ["numbers", "texts", "dictionary"])
def test_episodes_are_the_same_for_all_sizes_of_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: str
) -> None:
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 9, 12)
    numbers = np.repeat([0, 0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9], lengths)
    texts = pa.array([f"e{number}" for number in numbers])
    names = {"numbers": numbers, "texts": texts, "dictionary": texts.dictionary_encode()}[ids]
    steps = np.concatenate([np.arange(length) for length in lengths])
    done = np.zeros(len(numbers), bool)
    done[[3, -1]] = True
    columns = {"episode_id": names, "frame_index": steps, "done": done, "truncated": np.zeros_like(done)}
    columns["observation"] = np.zeros(len(done))
    read: set[str] = set()
    decode = ParquetFile._read

    def counted(self: ParquetFile, groups: Any, name: str) -> Any:
        read.add(name)
        return decode(self, groups, name)

    monkeypatch.setattr(ParquetFile, "_read", counted)
    accounts: list[Account] = []
    for size, together in ((len(done), 0), (7, 0), (7, 20), (1, 1 << 20), (1, 0)):
        monkeypatch.setattr(ParquetShard, "together", together)
        source = TableSource(parquet(tmp_path, columns, row_group_size=size))
        assert np.diff(source.offsets).tolist() == lengths.tolist()
        accounts.append(source.account)
    assert accounts == accounts[:1] * len(accounts)
    assert read == {"episode_id", "frame_index", "done"}  # the footer says that nothing is truncated
    read.clear()
    episode = {name: values[:3] for name, values in columns.items() if name != "done"} | {"episode_id": [7, 7, 7]}
    assert TableSource(parquet(tmp_path, episode)).offsets.tolist() == [0, 3]
    assert read == {"frame_index"}


def test_an_episode_goes_on_in_the_next_file(tmp_path: Path) -> None:
    rows = rows_of([(0, 6), (1, 2)], {"frame_index": lambda t, _: t, "done": lambda t, length: t == length - 1})
    for i, part in enumerate((rows[:2], rows[2:5], rows[5:])):
        pq.write_table(pa.Table.from_pylist(part), tmp_path / f"{i}.parquet")
    with penstock.open(tmp_path) as data:
        assert np.diff(data.source.offsets).tolist() == [6, 2]
        assert (
            data.source.account.ends == "episodes end where `episode_index` changes or where `frame_index` starts again"
        )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"episode": [0, 1, 0, 1], "frame_index": [0, 0, 1, 1]}, "episode 0 at row 0 and again at row 2"),
        ({"episode": [0, 1, 0, 1], "done": [False, False, True, True]}, "again at row 2; sort the table"),
    ],
    ids=["steps", "done"],
)
def test_rows_of_environments_in_turn_are_refused(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        penstock.open(parquet(tmp_path, columns))


@pytest.mark.parametrize(
    ("columns", "lengths", "message"),
    [
        ({"episode": [0, 0, 0, 1, 1], "done": [True, False, False, False, True]}, [3, 2], "`done` is true at row 0"),
        ({"episode": [0] * 4 + [1] * 4, "done": [0, 0, 1, 1, 0, 1, 1, 1]}, [4, 4], "`done` is true at row 2"),
        ({"episode": [0] * 4 + [1] * 3, "step": [0, 2, 1, 3, 0, 1, 2]}, [4, 3], "step .falls at row 2"),
    ],
    ids=["a flag without order", "a flag that stays set", "rows without order"],
)
def test_marks_that_cannot_be_ends_are_not_used_and_named(
    tmp_path: Path, columns: dict[str, Any], lengths: list[int], message: str
) -> None:
    with pytest.warns(DamageWarning, match=message):
        data = penstock.open(parquet(tmp_path, columns))
    assert np.diff(data.source.offsets).tolist() == lengths
    name = next(name for name in columns if name != "episode")
    assert penstock.open(tmp_path / "t.parquet", ends={name: "unused"}).source.account.left_out == ()


def test_other_names_of_marks_are_an_option(tmp_path: Path) -> None:
    file = parquet(tmp_path, {"episode": [0, 0, 0, 0], "tick": [0, 1, 0, 1], "infos": [{"t": i % 2} for i in range(4)]})
    assert len(penstock.open(file)) == 1
    for ends in ({"tick": "step"}, {"infos/t": "step"}):
        source = FORMAT.open(file, ends=ends)
        assert np.diff(source.offsets).tolist() == [2, 2]
        assert pickle.loads(pickle.dumps(source)).offsets.tolist() == [0, 2, 4]
    with pytest.raises(ArgumentError, match="got 'gone'"):
        penstock.open(file, ends={"gone": "step"})


def test_missing_values_are_nan_in_floats_and_errors_elsewhere(tmp_path: Path) -> None:
    columns = {"episode": [0, 0], "f": [1.0, None], "i": [1, None], "s": ["a", None], "m": [{"x": 1.0}, None]}
    source = FORMAT.open(parquet(tmp_path, columns))
    np.testing.assert_array_equal(source.read(["f"], whole(2))["f"], [[1.0, np.nan]])
    np.testing.assert_array_equal(source.read(["m/x"], whole(2))["m/x"], [[1.0, np.nan]])
    for column in ("i", "s"):
        with pytest.raises(FormatError, match="got 1 missing in 2 rows") as error:
            source.read([column], whole(2))
        assert "t.parquet" in str(error.value)
        assert f"{column}, block 0" in str(error.value)
    findings = penstock.check(tmp_path / "t.parquet", deep=True).findings
    assert [(finding.name, finding.episodes) for finding in findings] == [("unreadable", (0,))] * 2  # a column each
    with pytest.raises(FormatError, match="the episode of every row, got 1 missing"):
        FORMAT.open(tmp_path / "t.parquet", episode="i")


def whole(rows: int) -> Any:
    zero = np.zeros(1, np.int64)
    return Selection(zero, zero, zero + rows, zero, (1, rows))


def test_lists_of_one_length_have_the_shape_that_the_caller_names(tmp_path: Path) -> None:
    file = parquet(tmp_path, {"episode": [0, 0], "x": [[[1, 2]], [[3, 4]]], "y": [[1], [2, 3]]})
    with pytest.raises(FormatError, match=r"leave them out.*columns=\['episode', 'y'\]"):
        FORMAT.open(file)
    source = FORMAT.open(file, shapes={"x": (1, 2)})
    assert column(source, 0, "x").tolist() == [[[1, 2]], [[3, 4]]]
    with pytest.raises(FormatError, match=r"lists of length 2, got lengths \[1\]"):
        FORMAT.open(file, shapes={"x": (2, 1)}).read(["x"], whole(2))
    with pytest.raises(ArgumentError, match="shapes"):
        FORMAT.open(file, shapes={"x": (1, 2), "y": (1, 2)})
    with pytest.raises(ArgumentError, match="expected columns among"):
        FORMAT.open(file, shapes={"x": (1, 2), "z": (1,)})


def test_some_columns(tmp_path: Path) -> None:
    file = parquet(tmp_path, {"episode": [0], "x": [1], "when": pa.array([0], pa.timestamp("s"))})
    assert list(FORMAT.open(file, columns=["x"]).spec) == ["episode", "x"]
    with pytest.raises(ArgumentError, match=r"got \['w'\]"):
        FORMAT.open(file, columns=["w"])


def test_json_lines_have_one_type_in_all_files(tmp_path: Path) -> None:
    rows = [{"episode": i // 2, "x": 1, "v": [i, 2 * i], "t": [1] * i, "g": [[i, i]] * i} for i in range(4)]
    for i, row in enumerate(rows):
        (tmp_path / f"{i}.jsonl").write_text(json.dumps({**row, "x": 0.5 if i == 3 else 1}) + "\n\n")
    source = FORMAT.open(tmp_path)
    fields = {name: (field.dtype.str, field.shape, field.kind) for name, field in source.spec.items()}
    assert fields["x"] == ("<f8", (), "array")
    assert fields["v"] == ("<i8", (2,), "array")
    assert fields["t"] == ("<i8", (), "ragged")
    assert fields["g"] == ("<i8", (2,), "ragged")
    assert column(source, 1, "x").tolist() == [1.0, 0.5]
    assert column(source, 1, "t").lengths.tolist() == [2, 3]


@pytest.mark.parametrize("line", ['{"episode": 0, "x"', "[1]", "nothing", '{"x": 1} {"x": 2}'])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(f'{{"episode": 0, "x": 1}}\n\n{line}\n{{"episode": 0, "x": 2}}\n')
    with pytest.raises(FormatError, match=r"a JSON object.*t\.jsonl:3"):
        penstock.open(file)


def test_values_of_several_types_in_json(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"lines 1 to 2"):
        penstock.open(lines(tmp_path, {"episode": 0, "x": 1}, {"episode": 0, "x": "a"}))
    with pytest.raises(FormatError, match="missing"):
        penstock.open(lines(tmp_path, {"episode": 0, "x": 1}, {"episode": 0})).source.episode(0)


def test_shards_must_have_the_same_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"episode": [0], "x": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"episode": [0], "x": [1.0]}), tmp_path / "1.parquet")
    with pytest.raises(FormatError, match=r"expected the columns of 0\.parquet.*1\.parquet"):
        FORMAT.open(tmp_path)


def test_recognition_is_by_content(tmp_path: Path) -> None:
    file = parquet(tmp_path, {"episode": [0]})
    file.rename(tmp_path / "anything")
    assert recognise(tmp_path / "anything")[0].name == "tables"
    (tmp_path / "noise.parquet").write_bytes(b"\x00" * 100)
    (tmp_path / "object.json").write_text('{"episode": 0}')
    for name in ("noise.parquet", "object.json"):
        with pytest.raises(UnknownFormatError):
            penstock.open(tmp_path / name)
    assert not FORMAT.recognises(tmp_path)  # a folder with other data
    (tmp_path / "empty").mkdir()
    assert not FORMAT.recognises(tmp_path / "empty")
    with pytest.raises(FormatError, match="expected files named"):
        FORMAT.open(tmp_path / "empty")


def test_datasets_of_other_formats_stay_theirs(tmp_path: Path) -> None:
    data = penstock.from_arrays({"actions": [0.0, 1.0], "observations": [0.0, 1.0, 2.0]}, lengths=[2])
    out = penstock.convert(data, tmp_path / "demo", format="minari", fill_missing=True, options=OPTIONS).out
    assert recognise(out)[0].name == "minari"
    assert not FORMAT.recognises(Path(out))


def test_a_folder_of_splits_is_refused_with_their_names(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(FormatError, match=r"\['train', 'test'\]; open one of its folders"):
        penstock.open(tmp_path)


@pytest.mark.parametrize("state", ["[]", '{"_data_files": 3}', '{"_data_files": [{"filename": "../x.arrow"}]}', "{"])
def test_a_forged_list_of_shards(tmp_path: Path, state: str) -> None:
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(FormatError):
        FORMAT.open(tmp_path)


def test_truncated_files_are_refused(tmp_path: Path) -> None:
    table = pa.table({"episode": [0, 0, 1], "x": [0.5, 1.5, 2.5], "s": ["a", "bb", "c"]})
    pq.write_table(table, tmp_path / "t.parquet")
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_stream(tmp_path / "s.arrow", table.schema) as writer:
        writer.write_table(table)
    for name in ("t.parquet", "t.arrow", "s.arrow"):
        raw = (tmp_path / name).read_bytes()
        refused = 0
        for size in range(0, len(raw), 37):
            (tmp_path / name).write_bytes(raw[:size])
            try:
                with penstock.open(tmp_path / name, format="tables").source as source:
                    found = [column(source, e, "x").tolist() for e in range(len(source))]
                assert found in ([], [[0.5, 1.5], [2.5]])  # a stream may lack its end mark alone
            except FormatError as error:
                refused += 1
                assert name in str(error)  # noqa: PT017
        assert refused > len(raw) // 37 // 2


def test_a_parquet_file_that_changes_is_an_error(tmp_path: Path) -> None:
    file = parquet(tmp_path, {"episode": [0], "x": [1]})
    source: TableSource = FORMAT.open(file)
    parquet(tmp_path, {"episode": [0, 0], "x": [1, 2]})
    with pytest.raises(FormatError, match="got a changed one; open the dataset again"):
        source.episode(0)


def test_an_arrow_file_that_is_cut_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "BELIEVED", -1.0)  # look at the file at each read
    table = pa.table({"episode": [0] * 5000, "x": np.arange(5000.0)})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table)
    source = FORMAT.open(tmp_path / "t.arrow")
    with (tmp_path / "t.arrow").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(FormatError, match="truncated"):
        source.read(["x"], whole(5000))


@pytest.mark.parametrize(("size", "message"), [(-3, r"0 or more values, got .*-3"), (1 << 29, "too small in array")])
def test_false_sizes_of_lists_are_an_error(tmp_path: Path, size: int, message: str) -> None:
    columns = {"episode_id": pa.array([0]), "x": pa.array([[0.0] * 12345], pa.list_(pa.float64(), 12345))}
    table, path = pa.table(columns).slice(0, 0 if size < 0 else 1), tmp_path / "t.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    path.write_bytes(path.read_bytes().replace((12345).to_bytes(4, "little"), size.to_bytes(4, "little", signed=True)))
    with pytest.raises(FormatError, match=message):
        penstock.open(path)
