"""Mappings as text, patterns, and the errors of wrong ones."""

# pyright: basic

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import penstock
from penstock.errors import ArgumentError, FormatError
from penstock.formats.mapping import source
from penstock.formats.mapping.rules import EpisodeMapping, Pattern, toml_of

WHOLE = {
    "files": "{split}/run_{n}.csv",
    "id": "trial",
    "ends": {"flag": "end"},
    "columns": {
        "observations": ["x", "y"],
        "actions": {"from": "u", "dtype": "float32", "align": "step", "unit": "m/s"},
        "observations/camera": {"files": "{split}/{n}/*.png"},
    },
    "leave_out": ["debug/*", "*.bak", '\U0001f642\x7f"\\'],
    "rate": 30.0,
    "csv": {"separator": ";", "text": ["trial"], "skip_rows": 2},
}


def test_a_mapping_is_the_same_as_text_and_as_arguments(tmp_path: Path) -> None:
    mapping = EpisodeMapping.of(WHOLE)
    (tmp_path / "penstock.toml").write_text(toml_of(mapping))
    assert EpisodeMapping.at(tmp_path / "penstock.toml") == mapping
    assert tomllib.loads(toml_of(mapping)) == {"penstock_mapping": 1, **WHOLE}
    assert EpisodeMapping.of(mapping.to_json()).digest == mapping.digest
    assert EpisodeMapping.of({**WHOLE, "rate": 31.0}).digest != mapping.digest


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"file": "*.csv"}, "a mapping has no entry 'file'; did you mean 'files'"),
        ({"files": 3}, "expected a pattern of files"),
        ({"columns": ["x"]}, "expected a table, as in columns ="),
        ({"columns": {"x": 3}}, "expected the arrays of the column 'x'"),
        ({"columns": {"x": {"form": "a"}}}, "the column 'x' has no entry 'form'; did you mean 'from'"),
        ({"columns": {"x": {"from": "a", "align": "steps"}}}, "expected align of the column 'x' among"),
        ({"columns": {"x": {"from": "a", "dtype": "float99"}}}, "expected a dtype for the column 'x'"),
        ({"columns": {"x": {}}}, "expected `from` or `files` for the column 'x'"),
        ({"ends": {"flag": "stop"}}, "expected what arrays mark"),
        ({"csv": {"sep": ";"}}, "the table csv has no entry 'sep'"),
        ({"columns": {"x": {"from": 3}}}, "expected texts for the column 'x'"),
        ({"columns": {"x": {"from": "a", "dtype": 3}}}, "expected texts for the column 'x'"),
        ({"csv": {"separator": 3}}, "expected csv as in"),
        ({"csv": {"separator": ", "}}, "expected csv as in"),
        ({"whole_files": 1}, "expected true or false, got whole_files = 1"),
        ({"lengths": 5, "ring": "n"}, "expected one of lengths, ranges, and a ring"),
        ({"columns": {"x": {"from": "a", "without": "b"}}}, "expected `without` for metadata"),
        ({"metadata": {"x": {"from": "a", "dtype": "f4"}}}, "expected from, otherwise, files and without for metadata"),
        ({"columns": {"x": {"from": "a", "bits": "round"}}}, "expected bits of the column 'x' 'square' or a shape"),
        ({"columns": {"x": {"from": "a", "at": "1"}}}, "expected numbers for at of the column 'x'"),
        ({"columns": {"x": {"from": "a", "drop_first": -1}}}, "expected drop_first = 1 or"),
    ],
)
def test_wrong_entries_are_named(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        EpisodeMapping.of(entries)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("files = '*.csv'", "expected `penstock_mapping = 1`"),
        ("penstock_mapping = 2", "expected `penstock_mapping = 1`"),
        ("penstock_mapping = ", "expected TOML"),
        ("penstock_mapping = 1\nfile = 1", "has no entry 'file'"),
    ],
)
def test_wrong_files_are_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text(text)
    with pytest.raises(FormatError, match=re.escape(message)) as caught:
        EpisodeMapping.at(tmp_path / "penstock.toml")
    assert "penstock.toml" in str(caught.value)


@pytest.mark.parametrize("seed", range(20))
def test_patterns_match_as_those_of_a_shell(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ["".join(rng.choice(list("ab./[")) for _ in range(rng.integers(1, 6))) for _ in range(200)]
    pattern = "".join(rng.choice(["a", "b", ".", "*", "?", "["]) for _ in range(4)).replace("[", "[[]")
    ours = Pattern(pattern.replace("[[]", "["))
    for name in names:
        if "/" not in name:
            assert (ours.match(name) is not None) == fnmatch.fnmatchcase(name, pattern), (pattern, name)


def test_names_of_patterns() -> None:
    pattern = Pattern("{split}/**/run_{n}/{n}.csv")
    assert pattern.names == ["split", "n"]
    assert pattern.match("train/run_3/3.csv") == {"split": "train", "n": "3"}
    assert pattern.match("train/a/b/run_3/3.csv") == {"split": "train", "n": "3"}
    assert pattern.match("train/run_3/4.csv") is None
    assert pattern.filled({"n": "7"}).text == "{split}/**/run_7/7.csv"


def runs(folder: Path, lengths: tuple[int, ...] = (3, 5)) -> Path:
    for e, n in enumerate(lengths):
        np.savez(folder / f"{e}.npz", obs=np.full((n + 1, 2), e), action=np.arange(n), goal=np.array([e]))
    return folder


def test_wrong_mappings_say_which_file_which_array_and_what_was_expected(tmp_path: Path) -> None:
    folder = runs(tmp_path)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"files": "*.npy"}, "expected files '*.npy', got 0.npz, 1.npz"),
        (
            {"columns": {"actions": "acton"}},
            "expected an array 'acton' for the column 'actions'; did you mean 'action'",
        ),
        (
            {"columns": {"actions": "action", "x": "o/*"}},
            "expected arrays 'o/*' for the column 'x', got 'obs', 'action'",
        ),
        ({"columns": {"x": {"files": "{e}.txt"}}, "files": "{e}.npz"}, "expected files '0.txt' next to 0.npz"),
        ({"columns": {"x": ["obs", "action"]}}, "expected 4 rows of one number in each array of the column 'x'"),
        ({"columns": {"actions": "action", "x": {"from": "obs", "align": "step"}}}, "expected 3 rows as steps"),
        ({"group": "data/{i}"}, "expected groups 'data/{i}', got"),
        ({"lengths": [3, 5]}, "expected lengths for one file, got 2"),
        ({"ends": {"flag": "end"}}, "expected ends of arrays among ['action', 'goal', 'obs'], got 'flag'"),
    ]
    for mapping, message in cases:
        with pytest.raises((FormatError, ArgumentError), match=re.escape(message)):
            penstock.open(folder, format="mapping", **mapping)
    np.savez(folder / "1.npz", obs=np.full((6, 3), 1), action=np.arange(5), goal=np.array([1]))
    with pytest.raises(FormatError, match=r"expected int64 \[4, 2\] as in .*0.npz, got int64 \[6, 3\]") as caught:
        penstock.open(folder, format="mapping")
    assert "1.npz" in str(caught.value)


def test_files_of_two_kinds_are_asked_about(tmp_path: Path) -> None:
    runs(tmp_path)
    (tmp_path / "a.csv").write_text("x\n1\n")
    with pytest.raises(FormatError, match=re.escape("expected files of one kind, got 2 files *.npz, 1 file *.csv")):
        penstock.open(tmp_path, format="mapping")


def test_columns_are_found_by_names_and_patterns(tmp_path: Path) -> None:
    folder = runs(tmp_path)
    with penstock.open(folder, format="mapping") as data:
        assert {name: field.align for name, field in data.spec.items()} == {
            "observations": "boundary",
            "actions": "step",
            "goal": "episode",
        }
        assert data.source.account.used == {"obs": "observations", "action": "actions"}
    with h5py.File(folder / "a.h5", "w") as file:
        for e in (0, 1, 10, 2):
            for camera in ("left", "right"):
                file[f"ep{e}/obs/{camera}"] = np.full((3, 2), e)
            file[f"ep{e}/act"] = np.zeros(2)
    columns = {"observations/{camera}": "obs/{camera}", "actions": "act"}
    with penstock.open(folder / "a.h5", format="mapping", group="ep{e}", columns=columns) as data:
        assert list(data.spec) == ["observations/left", "observations/right", "actions"]
        assert [episode.metadata["e"] for episode in data] == ["0", "1", "2", "10"]
        assert [episode.columns["observations/left"][0, 0] for episode in data] == [0, 1, 2, 10]


def test_ends_of_flat_files_are_the_marks_of_each_file(tmp_path: Path) -> None:
    for e, lengths in enumerate(([2, 3], [4])):
        ends = np.concatenate([np.arange(n) == n - 1 for n in lengths])
        np.savez(tmp_path / f"{e}.npz", obs=np.arange(len(ends)), act=np.zeros(len(ends)), stop=ends)
    with penstock.open(tmp_path, format="mapping", ends={"stop": "end"}) as data:
        assert np.diff(data.source.offsets).tolist() == [2, 3, 4]
    with penstock.open(tmp_path, format="mapping", ends={"stop": "termination"}) as data:
        assert np.diff(data.source.offsets).tolist() == [2, 3, 4]
        assert data[1].columns["terminations"].tolist() == [False, False, True]
    with penstock.open(tmp_path, format="mapping", whole_files=True) as data:
        assert np.diff(data.source.offsets).tolist() == [5, 4]


@pytest.mark.parametrize("seed", range(12))
def test_random_folders_are_read_as_a_loop_reads_them(seed: int, tmp_path: Path) -> None:
    """Episodes by files, by groups, or by marks; arrays of any shape; windows of each against plain slices."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, rng.integers(1, 7)).tolist()
    shapes = {name: tuple(rng.integers(1, 4, rng.integers(3)).tolist()) for name in ("obs", "act", "extra")}
    extra = {"obs": int(rng.integers(2))}
    episodes = [
        {name: rng.normal(size=(n + extra.get(name, 0), *shape)) for name, shape in shapes.items()} for n in lengths
    ]
    way = ("files", "groups", "marks")[seed % 3]
    if way == "files":
        for e, arrays in enumerate(episodes):
            np.savez(tmp_path / f"{e}.npz", **arrays)
        given: dict[str, Any] = {}
    elif way == "groups":
        with h5py.File(tmp_path / "a.h5", "w") as file:
            for e, arrays in enumerate(episodes):
                for name, array in arrays.items():
                    file[f"demo_{e}/{name}"] = array
        given = {"group": "demo_{e}"}
    else:
        extra.clear()
        flat = {
            name: np.concatenate([arrays[name][:n] for arrays, n in zip(episodes, lengths, strict=True)])
            for name in shapes
        }
        flat["done"] = np.concatenate([np.arange(n) == n - 1 for n in lengths])
        np.savez(tmp_path / "a.npz", **flat)
        given = {}
    with penstock.open(tmp_path, format="mapping", **given) as data:
        assert np.diff(data.source.offsets).tolist() == lengths
        windows = data.windows(2, pad="drop").shuffle(seed=seed)
        for k in range(min(len(windows), 20)):
            row = windows[[k]]
            found = [
                (arrays["obs"][t : t + 2], arrays["act"][t : t + 2])
                for arrays, n in zip(episodes, lengths, strict=True)
                for t in range(n - 1)
            ]
            assert any(
                np.array_equal(row["observations"][0], obs) and np.array_equal(row["actions"][0], act)
                for obs, act in found
            )


def test_opening_reads_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also files that serve several episodes, and without a cache."""
    opened: Counter[str] = Counter()
    original = source.tree_of

    def counted(paths: Sequence[Path], csv: Any = None, **options: Any) -> Any:
        opened[paths[0].name] += 1
        return original(paths, csv, **options)

    monkeypatch.setattr(source, "tree_of", counted)
    for e in range(4):
        (tmp_path / f"{e}.csv").write_text("x,done\n1,0\n2,1\n")
        (tmp_path / f"{e}.json").write_text('{"u": [1, 2]}')
    columns = {"observations": "x", "actions": {"files": "{e}.json"}}
    with penstock.open(tmp_path, format="mapping", files="{e}.csv", columns=columns, cache_bytes=0) as data:
        assert len(data) == 4
    assert opened == {f"{e}.{kind}": 1 for e in range(4) for kind in ("csv", "json")}


def test_arrays_of_many_groups_are_listed_in_one_pass(tmp_path: Path) -> None:
    """Not once for each group, which took minutes for files of many episodes."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for e in range(300):
            file[f"demo_{e}/obs/q"] = np.full(2, e)
            file[f"demo_{e}/act"] = np.zeros(2)
            file[f"demo_{e}/success"] = e % 2
    with penstock.open(tmp_path / "a.h5", format="mapping", group="demo_{e}") as data:
        assert [episode.columns["observations/q"][0] for episode in data] == list(range(300))
        assert data[7].metadata == {"success": 1, "e": "7"}
        tree = source.tree_of([tmp_path / "a.h5"])
        assert tree.leaves_of("demo_7") is tree.leaves_of("demo_7")
        assert tree.leaves_of("demo_7").keys() == {"obs/q", "act"}
        assert tree.leaves_of("demo_7/obs").keys() == {"q"}
        assert tree.leaves_of("demo") == {}
