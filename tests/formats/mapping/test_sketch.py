"""What `open`, `info` and `adopt` say of data that no format knows."""

# pyright: basic

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.core.damage import collected_damage
from penstock.errors import UnknownFormatError
from penstock.formats.mapping.sketch import Sketch


def csv_runs(folder: Path) -> Path:
    for e in (1, 2, 10):
        rows = "".join(f"{t / 10},{t},{-t},{t % 3}\n" for t in range(e + 1))
        (folder / f"run_{e}.csv").write_text(f"t,obs_0,obs_1,action\n{rows}")
    (folder / "README.md").write_text("Recorded on a Tuesday.")
    return folder


def groups(folder: Path) -> Path:
    with h5py.File(folder / "all.h5", "w") as file:
        for e in range(3):
            file[f"trials/t{e}/q"] = np.zeros((e + 3, 2))
            file[f"trials/t{e}/u"] = np.zeros(e + 2)
        file["calibration"] = np.eye(3)
    return folder / "all.h5"


def pairs(folder: Path) -> Path:
    for e in range(3):
        (folder / f"{e}").mkdir()
        np.save(folder / f"{e}" / "obs.npy", np.zeros((e + 3, 2)))
        np.save(folder / f"{e}" / "actions.npy", np.zeros((e + 2, 1)))
    return folder


def flat(folder: Path) -> Path:
    np.savez(folder / "buffer.npz", s=np.zeros((5, 2)), u=np.zeros(5), done=np.arange(5) % 2)
    return folder / "buffer.npz"


MADE = {
    "csv": (csv_runs, "4 files: 3 .csv, 1 .md; run_1.csv has t: float64 [2], obs_0: int64 [2]", (2, 3, 11)),
    "groups": (groups, "trials/t{n}/q: float64 [3, 2] in the first of 3 groups", (2, 3, 4)),
    "pairs": (pairs, "6 files: 6 .npy; 0/actions.npy has values: float64 [2, 1]", (2, 3, 4)),
    "flat": (flat, "buffer.npz has s: float64 [5, 2], u: float64 [5], done: int64 [5]", (2, 2, 1)),
}


@pytest.mark.parametrize("kind", MADE)
def test_the_error_says_what_is_there_and_its_call_works(kind: str, tmp_path: Path) -> None:
    make, seen, lengths = MADE[kind]
    path = make(tmp_path)
    with pytest.raises(UnknownFormatError) as caught:
        penstock.open(path)
    message = str(caught.value)
    assert seen in message
    assert "penstock.from_arrays(" in message
    call = re.search(r"as (penstock\.open\(.*?\)), or write", message)
    assert call is not None
    with collected_damage():
        data: Any = eval(call[1], {"penstock": penstock})  # noqa: S307  the call that a person would copy
    with data:
        assert np.diff(data.source.offsets).tolist() == list(lengths)


def test_an_empty_folder_and_one_without_arrays_are_said(tmp_path: Path) -> None:
    with pytest.raises(UnknownFormatError, match="got an empty folder"):
        penstock.open(tmp_path)
    (tmp_path / "notes.docx").write_text("x")
    with pytest.raises(UnknownFormatError, match=r"There: 1 file: 1 \.docx"):
        penstock.open(tmp_path)
    (tmp_path / "a.npz").write_bytes(b"PK\3\4 and then nothing")
    with pytest.raises(UnknownFormatError, match=r"a\.npz cannot be read: expected an .npz file"):
        penstock.open(tmp_path)


@pytest.mark.parametrize("kind", MADE)
def test_adopt_writes_a_mapping_that_opens(kind: str, tmp_path: Path) -> None:
    make, _, lengths = MADE[kind]
    path = make(tmp_path)
    shown = CliRunner().invoke(app, ["adopt", str(path)], input="n\n", env={"COLUMNS": "150"})
    assert shown.exit_code == 1
    assert "penstock_mapping = 1" in shown.stdout
    assert not list(tmp_path.glob("*.toml"))
    done = CliRunner().invoke(app, ["adopt", str(path), "--yes"], env={"COLUMNS": "150"})
    assert done.exit_code == 0, done.output
    (written,) = tmp_path.glob("*.toml")
    with collected_damage(), penstock.open(path if path.is_dir() else written) as data:
        assert np.diff(data.source.offsets).tolist() == list(lengths)
    again = CliRunner().invoke(app, ["adopt", str(path), "--yes"])
    assert (again.exit_code, "expected no file at" in again.output) == (2, True)


def test_info_shows_a_table_of_what_is_there(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["info", str(csv_runs(tmp_path))], env={"COLUMNS": "150"})
    assert shown.exit_code == 2
    assert "run_1.csv" in shown.stdout
    assert f"; call `penstock adopt {tmp_path}`, which guesses how to read them" in shown.stderr
    assert re.search(r"obs_0 +int64 \[2\]", shown.stdout)


def test_columns_are_guessed_from_names(tmp_path: Path) -> None:
    guess = Sketch.of(csv_runs(tmp_path)).guess
    assert guess is not None
    assert {name: rule.arrays for name, rule in (guess.columns or {}).items()} == {
        "timestamps": ("t",),
        "observations": ("obs_0", "obs_1"),
        "actions": ("action",),
    }
