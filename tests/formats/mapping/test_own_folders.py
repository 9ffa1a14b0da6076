"""Folders as people have them: a folder for each run, video and documents beside tables, damaged and uneven files."""

# pyright: basic

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.cli.sketch import sketch_table
from penstock.containers.video import VideoWriter
from penstock.core.damage import collected_damage
from penstock.errors import DamageWarning, FormatError, PlanError
from penstock.formats.mapping.sketch import Look, Sketch

LENGTHS = (5, 8, 6, 7)


def runs(folder: Path) -> Path:
    """Runs with joints, a camera and a document each; names have spaces, one cell is empty."""
    for e, n in enumerate(LENGTHS):
        run = folder / f"2024-03-0{e + 1}_pick {e}{' (retry)' * (e == 2)}"
        run.mkdir(parents=True)
        rows = [f"{t / 20},{t},{-t if t or e else ''},{t % 3},open" for t in range(n)]
        (run / "joints.csv").write_text("\n".join(["time [s],J1 (rad),J2 (rad),action,gripper", *rows]) + "\n")
        about = {"operator": ["kim", "jo"][e % 2], "score": e / 10, "tags": ["day", "lab"]}
        (run / "meta.json").write_text(json.dumps(about))
        with VideoWriter(run / "wrist.mp4", fps=20) as video:
            video.append(np.full((n, 32, 48, 3), 20 * e, np.uint8))
    (folder / "README.txt").write_text("with the new gripper")
    return folder


def adopt(path: Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["adopt", str(path), "--yes"], env={"COLUMNS": "300"})
    return done.exit_code, done.output


def test_video_and_documents_beside_a_table_are_guessed(tmp_path: Path) -> None:
    assert adopt(runs(tmp_path))[0] == 0
    with pytest.warns(DamageWarning, match=r"pick 0/joints\.csv: J2 \(rad\): 1 empty cell among numbers, read as NaN$"):
        data = penstock.open(tmp_path)
    assert [len(episode) for episode in data] == list(LENGTHS)
    assert list(data.spec) == ["timestamps", "actions", "gripper", "J", "wrist"]
    assert data.spec["wrist"].shape == (32, 48, 3)
    assert {name: data[2].metadata[name] for name in ("operator", "score", "tags")} == {
        "operator": "kim",
        "score": 0.2,
        "tags": ["day", "lab"],
    }
    assert [len(data.filter(text)) for text in ("operator == 'jo'", "operator != 'jo' and score < 0.1")] == [2, 1]
    with pytest.raises(PlanError, match=r"'operater'; text in the metadata has a name too"):
        data.filter("operater == 'jo'")


def test_files_that_do_not_fit_are_all_named_with_the_entry_that_leaves_them_out(tmp_path: Path) -> None:
    first, second, third, _ = sorted(path for path in runs(tmp_path).iterdir() if path.is_dir())
    whole = (second / "wrist.mp4").read_bytes()
    (second / "wrist.mp4").write_bytes(whole[: len(whole) // 2])
    (third / "joints.csv").write_text("time [s],J1 (rad)\n0,1\n")
    code, output = adopt(tmp_path)
    assert code == 1
    assert "which does not open the files yet; edit it" in output
    assert "expected 4 files as the mapping says, got 2 that are not: " in output
    entry = re.search(r"leave_out = \[.*?\]", output)
    assert entry is not None
    assert json.loads(entry[0].partition("=")[2]) == [f"{second.name}/*", f"{third.name}/*"]
    mapping = tmp_path / "penstock.toml"
    mapping.write_text(f"{entry[0]}\n{mapping.read_text()}")
    with collected_damage(), penstock.open(tmp_path) as data:
        assert [len(episode) for episode in data] == [LENGTHS[0], LENGTHS[3]]
    with VideoWriter(first / "wrist.mp4", fps=20, overwrite=True) as video:
        video.append(np.zeros((LENGTHS[0] - 1, 32, 48, 3), np.uint8))
    with pytest.raises(FormatError, match=r"expected 5 rows .* got 4 in the column 'wrist'.* leave_out = \[\"2024"):
        penstock.open(tmp_path)


def test_pictures_beside_a_log_are_its_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for e, n in enumerate((3, 5)):
        (tmp_path / f"Run{e}").mkdir()
        for row in range(n):
            Image.fromarray(rng.integers(0, 256, (8, 9, 3), np.uint8)).save(tmp_path / f"Run{e}" / f"frame{row}.png")
        log = [{"steer": row / 2, "frame": row} for row in range(n)]
        (tmp_path / f"Run{e}" / "log.json").write_text(json.dumps(log))
    assert adopt(tmp_path)[0] == 0
    with collected_damage(), penstock.open(tmp_path) as data:
        assert [len(episode) for episode in data] == [3, 5]
        assert np.asarray(data[1].columns["frame"]).tolist() == [0, 1, 2, 3, 4]
        assert data[1].columns["frame_files"].shape == (5, 8, 9, 3)


def test_values_and_arrays_of_documents_become_metadata(tmp_path: Path) -> None:
    np.savez(tmp_path / "0.npz", actions=np.zeros(3))
    document = {"camera": {"fps": 20}, "words": ["pick", "none"], "state": "none", "goal": [1.5, 2.5]}
    (tmp_path / "0.json").write_text(json.dumps(document))

    def metadata(**rule: str) -> object:
        rules = {"it": {"files": "{n}.json", **rule}}
        with penstock.open(tmp_path, format="mapping", files="{n}.npz", metadata=rules) as data:
            return data[0].metadata["it"]

    given = [
        {"from": "camera/fps"},
        {"from": "goal"},
        {"from": "words", "without": "no*"},
        {"from": "x", "otherwise": "state"},
    ]
    assert [metadata(**rule) for rule in given] == [20, [1.5, 2.5], "pick", "none"]
    assert metadata(**{"from": "state", "without": "no*"}) == []
    (tmp_path / "0.json").write_text(json.dumps({"camera": {"fps": 30}}))
    assert metadata() == 30  # the only one, also below another name


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            {"files": "{run}/meta.json"},
            r"expected one value for the metadata 'about', got .*; say which with from; all",
        ),
        (
            {"files": "{run}/meta.json", "from": "operater"},
            r"expected 'operater' for the metadata 'about', got \['oper",
        ),
        ({"files": "{run}/notes.json"}, "expected a value for the metadata 'about', got no such files"),
    ],
)
def test_metadata_that_no_file_has_are_refused(rule: dict[str, str], message: str, tmp_path: Path) -> None:
    columns = {"actions": "action"}
    with pytest.raises(FormatError, match=message):
        penstock.open(
            runs(tmp_path), format="mapping", files="{run}/joints.csv", columns=columns, metadata={"about": rule}
        )


def test_the_name_of_an_extra_is_shown_whole(tmp_path: Path) -> None:
    error = "pyarrow.csv is not installed; install it with: pip install 'penstock[arrow]'"
    console = Console(width=200)
    with console.capture() as shown:
        console.print(sketch_table(Sketch(tmp_path, ["a.csv"], [Look("a.csv", {}, error)])))
    assert "'penstock[arrow]'" in shown.get()
