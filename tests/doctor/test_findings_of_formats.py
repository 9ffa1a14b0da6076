"""Findings of the formats, planted and found by name; and for each kind of finding, a test that plants it."""

# pyright: basic

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.containers.tar.writer import END, member
from penstock.formats.base.findings import FINDINGS
from penstock.formats.l5kit import AGENT_DTYPE, L5KitWriter
from penstock.formats.l5kit.dtypes import FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE
from tests.doctor.test_planted import PLANTS

GOLDEN = Path(__file__).parents[1] / "golden"

# Kinds that are not in the table of `test_planted.py`, and the file whose test plants them and asserts their name.
PLANTED = {
    "unreadable": "tests/formats/lerobot/test_lerobot_damage.py",
    "truncated": "tests/doctor/test_repair.py",
    "missing-footer": "tests/doctor/test_repair.py",
    "checksum": "tests/doctor/test_repair.py",
    "missing-part": "tests/doctor/test_findings_of_formats.py",
    "unused-task": "tests/doctor/test_findings_of_formats.py",
    "totals": "tests/doctor/test_repair.py",
    "numbering": "tests/doctor/test_repair.py",
    "identity": "tests/doctor/test_findings_of_formats.py",
    "torn-tail": "tests/doctor/test_repair.py",
    "damaged-part": "tests/formats/rlds/test_rlds_errors.py",
    "not-stored": "tests/formats/zarr/test_zarr_golden.py",
    "unused-rows": "tests/doctor/test_repair.py",
    "unknown-layout": "tests/cli/test_check.py",
    "duplicate-key": "tests/doctor/test_findings_of_formats.py",
    "no-episodes": "tests/cli/test_check.py",
    "partial": "tests/doctor/test_planted.py",
    "invalid-value": "tests/doctor/test_findings_of_formats.py",
    "impossible-speed": "tests/formats/l5kit/test_damage.py",
    "wrong-statistics": "tests/doctor/test_repair.py",
    "wrong-return": "tests/doctor/test_planted.py",
    "leak": "tests/doctor/test_planted.py",
    "narrow-dtype": "tests/doctor/test_planted.py",
}


def names(path: Path, *, deep: bool = False) -> list[str]:
    return [finding.name for finding in penstock.check(path, deep=deep).findings]


def test_every_kind_of_finding_is_planted() -> None:
    assert PLANTED.keys() | PLANTS.keys() == FINDINGS.keys()
    for name, file in PLANTED.items():
        assert f'"{name}"' in (Path(__file__).parents[2] / file).read_text("utf-8")


def test_tasks_that_no_episode_has(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(GOLDEN / "lerobot" / "v3_image", folder)
    assert "unused-task" not in names(folder)
    path = folder / "meta" / "tasks.parquet"
    tasks = pq.read_table(path)
    rows = [*tasks.to_pylist(), {"task_index": 2, "__index_level_0__": "close the door"}]
    pq.write_table(pa.Table.from_pylist(rows, tasks.schema), path)
    assert "unused-task" in names(folder)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("missing-part", {"observation_space": None}), ("identity", {"dataset_id": "another-v0"})],
)
def test_metadata_of_minari(tmp_path: Path, name: str, changes: dict[str, str | None]) -> None:
    data = penstock.from_arrays(
        {
            "observations": np.zeros((4, 2), np.float32),
            "actions": np.zeros((3, 1), np.float32),
            "rewards": np.ones(3),
            "terminations": np.array([False, False, True]),
            "truncations": np.zeros(3, bool),
        },
        lengths=[3],
    )
    folder = tmp_path / "ours-v0"
    penstock.convert(data, folder, format="minari", certificate=False)
    assert name not in names(folder)
    path = next(folder.rglob("metadata.json"))
    entries = json.loads(path.read_text())
    for key, value in changes.items():
        if value is None:
            entries.pop(key)
        else:
            entries[key] = value
    path.write_text(json.dumps(entries))
    assert name in names(folder)


def test_keys_of_samples_and_tracks_of_a_frame_that_are_used_twice(tmp_path: Path) -> None:
    samples = [member(f"{key}.cls", b"1") for key in ("a", "b", "c")]
    for archive, added in (("sound.tar", []), ("double.tar", [member("a.cls", b"2")])):
        (tmp_path / archive).write_bytes(b"".join([*samples, *added, END]))
    assert "duplicate-key" not in names(tmp_path / "sound.tar")
    assert "duplicate-key" in names(tmp_path / "double.tar")
    assert "duplicate-key" not in names(_drive(tmp_path / "sound", [1, 2]), deep=True)
    assert "duplicate-key" in names(_drive(tmp_path / "double", [2, 2]), deep=True)


def test_values_that_mean_nothing_in_a_driving_log(tmp_path: Path) -> None:
    assert "invalid-value" not in names(_drive(tmp_path / "sound", [1, 2]), deep=True)
    assert "invalid-value" in names(_drive(tmp_path / "nan", [1, 2], yaw=np.nan), deep=True)
    assert "invalid-value" in names(_drive(tmp_path / "turned", [1, 2], rotation=2.0), deep=True)


def _drive(path: Path, tracks: list[int], *, yaw: float = 0.0, rotation: float = 1.0) -> Path:
    """One frame with an agent for each track."""
    frames = np.zeros(1, FRAME_DTYPE)
    frames["agent_index_interval"] = [[0, len(tracks)]]
    frames["timestamp"] = 1
    frames["ego_rotation"] = np.eye(3) * rotation
    agents = np.zeros(len(tracks), AGENT_DTYPE)
    agents["track_id"] = tracks
    agents["yaw"] = yaw
    with L5KitWriter.create(path, compressor=None) as writer:
        writer.write_scene(np.zeros((), SCENE_DTYPE), frames, agents, np.zeros(0, TL_FACE_DTYPE))
    return path
