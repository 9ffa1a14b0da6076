"""Each kind of file, as other software writes it, and as a mapping reads it."""

# pyright: basic

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse
from PIL import Image

import penstock
from penstock.core.damage import collected_damage
from penstock.errors import DamageWarning, FormatError, MissingExtraError, UnknownFormatError
from penstock.formats.mapping import kinds

STEPS = 7


def opened(path: Path, **mapping: Any) -> penstock.EpisodeDataset:
    with collected_damage():
        return penstock.open(path, format="mapping", **mapping)


def column(path: Path, name: str, **mapping: Any) -> Any:
    with opened(path, **mapping) as data:
        return data[0].columns[name]


def frame() -> Any:
    return pd.DataFrame(
        {
            "t": np.arange(STEPS) / 10,
            "x": np.arange(STEPS, dtype="f8") ** 0.5,
            "n": np.arange(STEPS) * 10**12,
            "on": np.arange(STEPS) % 2 == 0,
            "say": ["a, b", "c\nd", '"quoted"', "", "né", "007", "1e5"],
        }
    )


@pytest.mark.parametrize(
    "options", [{}, {"sep": ";"}, {"sep": "\t"}, {"encoding": "utf-8-sig"}, {"lineterminator": "\r\n"}]
)
def test_text_as_pandas_writes_it(options: dict[str, Any], tmp_path: Path) -> None:
    separator = options.get("sep", ",")
    path = tmp_path / ("a.tsv" if separator == "\t" else "a.csv")
    frame().to_csv(path, index=False, **options)
    given = {"csv": {"separator": ";"}} if separator == ";" else {}
    with opened(path, **given) as data:
        read = data[0].columns
    for name in ("t", "x", "n", "on"):
        assert np.array_equal(read["timestamps" if name == "t" else name], frame()[name].to_numpy()), name
        assert read["timestamps" if name == "t" else name].dtype == frame()[name].dtype
    assert read["say"].strings() == frame()["say"].tolist()


def test_text_packed_by_gzip(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "a.csv.gz", index=False)
    assert column(tmp_path / "a.csv.gz", "n").tolist() == frame()["n"].tolist()


def test_ids_that_look_like_numbers_stay_apart_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("trial,x\n7,0\n7,1\n007,2\n007,3\n")
    with opened(tmp_path / "a.csv", id="trial") as data:
        assert np.diff(data.source.offsets).tolist() == [4]
    with opened(tmp_path / "a.csv", id="trial", csv={"text": ["trial"]}) as data:
        assert np.diff(data.source.offsets).tolist() == [2, 2]
        assert data.source.account.ends == "episodes end where `trial` changes"


def test_empty_cells_among_numbers_are_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,n,none\n1.5,1,\n,2,\n2.5,,\n")
    with pytest.warns(DamageWarning, match="none .expected values, got empty cells alone"):
        data = penstock.open(tmp_path / "a.csv", format="mapping")
    assert [(entry.where, entry.reason, entry.count) for entry in data.source.account.left_out] == [
        ("a.csv: x", "caution", 1),
        ("a.csv: n", "caution", 1),
        ("a.csv: none", "unused-array", 1),
    ]
    assert np.array_equal(data[0].columns["n"], [1, 2, np.nan], equal_nan=True)


def test_text_without_a_head_or_with_lines_above_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    columns = {"observations": ["f0", "f1"]}
    assert column(tmp_path / "a.csv", "observations", csv={"header": False}, columns=columns).tolist() == [
        [1, 2],
        [3, 4],
    ]
    (tmp_path / "b.csv").write_text("# made by a rig\nx,y\n1,2\n")
    assert column(tmp_path / "b.csv", "y", csv={"skip_rows": 1}).tolist() == [2]


def test_a_type_that_is_wider_in_another_file_is_widened_for_text_alone(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("x\n1\n2\n")
    (tmp_path / "1.csv").write_text("x\n1.5\n")
    with opened(tmp_path) as data:
        assert data.spec["x"].dtype == np.float64
        assert [episode.columns["x"].tolist() for episode in data] == [[1, 2], [1.5]]
    np.savez(tmp_path / "0.npz", x=np.arange(2))
    np.savez(tmp_path / "1.npz", x=np.arange(2.0))
    with pytest.raises(FormatError, match=r"expected int64 \[2\] as in .*0.npz, got float64 \[2\]; say the type"):
        opened(tmp_path, files="*.npz")
    with opened(tmp_path, files="*.npz", columns={"x": {"from": "x", "dtype": "float32"}}) as data:
        assert data.spec["x"].dtype == np.float32


def test_json_of_columns_and_of_rows(tmp_path: Path) -> None:
    rows = [{"obs": {"q": [i, 2.5]}, "action": i, "say": f"\u2028{i}", "tokens": [1] * i} for i in range(4)]
    (tmp_path / "rows.json").write_text(json.dumps({"robot": "arm", "steps": rows}))
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n")
    (tmp_path / "columns.json").write_text(json.dumps({key: [row[key] for row in rows] for key in ("action", "say")}))
    for name, prefix in (("rows.json", "steps/"), ("rows.jsonl", ""), ("columns.json", "")):
        columns = {"actions": f"{prefix}action", "say": f"{prefix}say"}
        if name.startswith("rows"):
            columns |= {"observations/q": f"{prefix}obs/q", "tokens": f"{prefix}tokens"}
        with opened(tmp_path / name, columns=columns) as data:
            read = data[0].columns
            assert read["actions"].tolist() == [0, 1, 2, 3]
            assert read["say"].strings() == [row["say"] for row in rows]
            if name.startswith("rows"):
                assert read["observations/q"].tolist() == [[i, 2.5] for i in range(4)]
                assert [read["tokens"][i].tolist() for i in range(4)] == [[1] * i for i in range(4)]
    with opened(tmp_path / "rows.json", columns={"actions": "steps/action"}) as data:
        assert data[0].metadata["robot"] == "arm"


def test_a_step_without_an_action_is_nan_and_a_broken_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"obs": 1, "action": 2}\n{"obs": 3}\n')
    assert np.array_equal(column(tmp_path / "a.jsonl", "actions"), [2, np.nan], equal_nan=True)
    (tmp_path / "b.jsonl").write_text('{"obs": 1}\n{"obs": \n')
    with pytest.raises(FormatError, match=r"line 2 in .*b.jsonl"):
        opened(tmp_path / "b.jsonl")


def test_matlab_as_scipy_writes_it(tmp_path: Path) -> None:
    trial = {"q": np.arange(STEPS * 3.0).reshape(STEPS, 3), "u": np.arange(STEPS), "name": "left", "rate": 50.0}
    scipy.io.savemat(tmp_path / "a.mat", {"trial": trial, "words": np.array(["a", "b"], dtype=object)})
    columns = {"observations": "trial/q", "actions": "trial/u"}
    with opened(tmp_path / "a.mat", columns=columns) as data:
        assert np.array_equal(data[0].columns["observations"], trial["q"])
        assert np.array_equal(data[0].columns["actions"], trial["u"])
        assert data[0].metadata == {"trial/name": "left", "trial/rate": 50.0}
    scipy.io.savemat(tmp_path / "one.mat", {"q": np.zeros((1, 3)), "u": np.zeros((1, 1))})
    with pytest.raises(FormatError, match="expected an array 'u'"):  # MATLAB has no array of one axis
        opened(tmp_path / "one.mat", columns={"observations": "q", "actions": "u"})


@pytest.mark.parametrize("deflated", [False, True])
def test_matlab_is_read_as_scipy_reads_it(deflated: bool, tmp_path: Path) -> None:
    """Every class of numbers, text, structs, arrays of structs, cells; sparse matrices are named."""
    from penstock.containers.matlab import UnreadVariable, read_matlab

    rng = np.random.default_rng(2)
    kinds = ("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "c16", "?")
    written: dict[str, Any] = {
        f"x_{kind.replace('?', 'bool')}": (rng.normal(size=(3, 2, 4)) * 100).astype(kind) for kind in kinds
    }
    written |= {
        "text": "né 日本",
        "rows": np.array(["ab", "c"]),
        "none": np.zeros((0, 3)),
        "long_name_of_a_variable": 1.5,
    }
    written |= {"cell": np.array([np.arange(3), "x"], dtype=object), "deep": {"a": {"b": np.eye(2)}, "c": "s"}}
    written["many"] = np.array([(1.0, "p"), (2.0, "q")], dtype=[("v", "O"), ("w", "O")])
    written["thin"] = scipy.sparse.eye(3)
    scipy.io.savemat(tmp_path / "a.mat", written, do_compression=deflated)
    read = read_matlab(tmp_path / "a.mat")
    loaded = scipy.io.loadmat(tmp_path / "a.mat")
    for name in written:
        if name.startswith("x_") or name in ("none", "long_name_of_a_variable"):
            assert np.array_equal(read[name], loaded[name]), name
            assert read[name].dtype == (np.bool_ if name == "x_bool" else loaded[name].dtype), name
    assert (read["text"], read["rows"], read["thin"]) == ("né 日本", ["ab", "c"], UnreadVariable("sparse matrix"))
    assert (read["cell"][0].tolist(), read["cell"][1]) == ([[0, 1, 2]], "x")
    assert (read["deep"]["a"]["b"].tolist(), read["deep"]["c"]) == ([[1, 0], [0, 1]], "s")
    assert [(row["v"].item(), row["w"]) for row in read["many"]] == [(1, "p"), (2, "q")]


def test_matlab_73_has_the_axes_that_matlab_shows(tmp_path: Path) -> None:
    values = np.arange(STEPS * 3.0).reshape(STEPS, 3)
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=512) as file:
        for name, stored, kind in (
            ("q", values.T, "double"),
            ("ok", np.ones((1, STEPS), "u1"), "logical"),
            ("who", np.array([[ord(c)] for c in "rig"], "u2"), "char"),
            ("cells", np.zeros((1, 2), "u8"), "cell"),
        ):
            file.create_dataset(name, data=stored).attrs["MATLAB_class"] = np.bytes_(kind)
    with opened(tmp_path / "a.mat", columns={"observations": "q", "ok": "ok"}) as data:
        assert np.array_equal(data[0].columns["observations"], values)
        assert data[0].columns["ok"].dtype == np.bool_
        assert data[0].metadata == {"who": "rig"}
        assert [entry.where for entry in data.source.account.left_out] == ["a.mat: cells"]


def safetensors(path: Path, arrays: dict[str, tuple[str, Any]]) -> None:
    """As the README of the format describes it: a length, a header in JSON, and the bytes."""
    header: dict[str, Any] = {"__metadata__": {"made": "here"}}
    body = b""
    for name, (kind, array) in arrays.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def test_safetensors(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(STEPS, 2)).astype("f4")
    half = np.zeros(STEPS, "u2")
    safetensors(
        tmp_path / "a.safetensors", {"flag": ("BOOL", np.ones(3, bool)), "obs": ("F32", values), "b": ("BF16", half)}
    )
    with opened(tmp_path / "a.safetensors", columns={"observations": "obs"}) as data:
        assert np.array_equal(data[0].columns["observations"], values)
        assert data[0].metadata == {"made": "here"}
        assert {entry.where: entry.reason for entry in data.source.account.left_out} == {
            "flag": "unused-array",
            "a.safetensors: b": "unsupported-dtype",
        }
    raw = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(raw[:-20])
    with pytest.raises(FormatError, match="bytes in the file"):
        opened(tmp_path / "a.safetensors")


def test_folders_of_images_and_a_table_of_times(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for run in ("one", "two"):
        pixels = rng.integers(0, 255, (11, 4, 6, 3)).astype("u1")
        (tmp_path / run / "cam").mkdir(parents=True)
        for i, image in enumerate(pixels):
            Image.fromarray(image).save(tmp_path / run / "cam" / f"{i}.png")
        pd.DataFrame({"t": np.arange(11) / 30, "u": np.arange(11)}).to_csv(tmp_path / run / "steps.csv", index=False)
        (tmp_path / run / "Thumbs.db").write_bytes(b"x")
    columns = {
        "observations/camera": {"files": "{run}/cam/*.png"},
        "actions": "u",
        "timestamps": {"from": "t", "unit": "s"},
    }
    with opened(tmp_path, files="{run}/steps.csv", columns=columns, rate=30) as data:
        assert [episode.metadata["run"] for episode in data] == ["one", "two"]
        assert np.array_equal(data[1].columns["observations/camera"], pixels)
        assert (data.metadata["fps"], data.metadata["units"]) == (30, {"timestamps": "s"})
        windows = data.windows(3, pad="zero")
        assert np.array_equal(windows[[15]]["observations/camera"][0], pixels[4:7])
        assert [entry.where for entry in data.source.account.left_out] == ["one/Thumbs.db", "two/Thumbs.db"]
    (tmp_path / "two" / "cam" / "3.png").unlink()
    with pytest.raises(FormatError, match="got 10 in the column 'observations/camera'"):
        opened(tmp_path, files="{run}/steps.csv", columns=columns)


def test_pickles_are_read_as_data_and_run_nothing(tmp_path: Path) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return print, ("run",)

    (tmp_path / "a.pkl").write_bytes(gzip.compress(pickle.dumps({"obs": np.zeros((4, 2)), "acts": [1, 2, 3]})))
    assert column(tmp_path / "a.pkl", "actions").tolist() == [1, 2, 3]
    (tmp_path / "b.pkl").write_bytes(pickle.dumps({"obs": Evil()}))
    with pytest.raises(FormatError, match="print"):
        opened(tmp_path / "b.pkl")


def test_a_file_that_changed_since_it_was_opened_is_refused(tmp_path: Path) -> None:
    for e in range(3):
        (tmp_path / f"{e}.csv").write_text("x\n1\n2\n")
    with opened(tmp_path, cache_bytes=0) as data:
        (tmp_path / "1.csv").write_text("x\n3\n4\n5\n")
        with pytest.raises(FormatError, match=r"1.csv"):
            list(data)


def test_a_kind_whose_distribution_is_missing_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kinds, "kinds_of_packages", dict)
    for name in ("a.mcap", "b.bag", "c.db3"):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(MissingExtraError, match="pip install penstock-logs"):
            penstock.open(tmp_path / name)
    with pytest.raises(UnknownFormatError, match=r"a\.mcap cannot be read: expected the distribution that reads"):
        penstock.open(tmp_path)


def test_spreadsheets_are_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    (tmp_path / "runs.xlsx").write_bytes(b"PK\x03\x04 no archive")
    for path in (tmp_path, tmp_path / "runs.xlsx"):
        with pytest.raises(FormatError, match="spreadsheets are not read: save each sheet as CSV"):
            penstock.open(path, format="mapping")
        with pytest.raises(FormatError, match="spreadsheets are not read: save each sheet as CSV"):
            penstock.open(path)
