"""What data sets of scenarios hold besides; files that are damaged, or of another kind; a package that is missing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import penstock
from penstock.containers.tfrecord import record_of
from penstock.core.damage import collected_damage
from penstock.errors import FormatError, UnknownFormatError
from penstock.formats.base.source import Source
from penstock.testing.accounts import AccountContract, Leftover, Planted
from penstock_driving.formats.l5kit import SPEC
from penstock_driving.formats.scenarios import ScenarioSource
from sets.writing import NAMES, Drives, message, scenario, write

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "driving"


class Accounts(AccountContract):
    kind: ClassVar[str]
    absent: ClassVar = {
        "array": "files have tables or messages",
        "unfinished": "data sets are written elsewhere",
    }

    def write(self, path: Path) -> Path:
        return write(self.kind, path, Drives(self.kind, SPEC, (3, 2)).episodes())

    def open(self, path: Path, **options: Any) -> Source:
        return penstock.open(path, **options).source


def first(path: Path, pattern: str) -> Path:
    return sorted(path.rglob(pattern))[0]


def cut(path: Path, pattern: str) -> None:
    for file in path.rglob(pattern):
        file.write_bytes(file.read_bytes()[:-9])


def with_column(path: Path) -> None:
    file = first(path, "*.parquet")
    table = pyarrow.parquet.read_table(file)
    pyarrow.parquet.write_table(table.append_column("weather", pa.array(["fog"] * len(table))), file)


def append(file: Path, data: bytes) -> None:
    file.write_bytes(file.read_bytes() + data)


class TestArgoverse2(Accounts):
    kind = "argoverse2"
    planted: ClassVar[dict[Leftover, Planted]] = {
        "file": Planted(lambda path: (path / "00000000" / "x.bin").touch(), "other-file", "00000000/x.bin"),
        "member": Planted(
            lambda path: (path / "00000000" / "log_map_archive_0.json").touch(), "unread-part", "log_map_archive_0.json"
        ),
        "column": Planted(with_column, "unused-array", "weather"),
        "bad first file": Planted(lambda path: cut(path, "*.parquet"), "", "00000000", refused=True),
    }
    absent: ClassVar = {**Accounts.absent, "tail": "Parquet ends with its footer"}


class TestWaymo(Accounts):
    kind = "waymo"
    planted: ClassVar[dict[Leftover, Planted]] = {
        "file": Planted(lambda path: (path / "x.bin").touch(), "other-file", "x.bin"),
        "member": Planted(
            lambda path: (path / "z.tfrecord").write_bytes(
                record_of(
                    scenario(Drives("waymo", SPEC, (2,)).episodes()[0])
                    + message((8, message((1, 5))), (12, b""), (13, b""))
                )
            ),
            "unread-part",
            "map_features",
        ),
        "tail": Planted(
            lambda path: append(first(path, "*.tfrecord*"), b"tail"),
            "damaged-part",
            "training.tfrecord-00000-of-00002",
        ),
        "bad first file": Planted(lambda path: cut(path, "*.tfrecord*"), "", "training.tfrecord-00000", refused=True),
    }
    absent: ClassVar = {**Accounts.absent, "column": "unknown fields are of later versions of a message"}


class TestNuPlan(Accounts):
    kind = "nuplan"
    planted: ClassVar[dict[Leftover, Planted]] = {
        "file": Planted(lambda path: (path / "x.bin").touch(), "other-file", "x.bin"),
        "member": Planted(lambda path: (path / "wrong.db").touch(), "damaged-part", "wrong.db"),
        "bad first file": Planted(
            lambda path: [file.write_bytes(file.read_bytes()[:5000]) for file in path.rglob("*.db")],
            "",
            "log.db",
            refused=True,
        ),
    }
    absent: ClassVar = {
        **Accounts.absent,
        "column": "tables of sensors are there in every log",
        "tail": "SQLite knows its pages",
    }


class TestPy123D(Accounts):
    kind = "py123d"
    planted: ClassVar[dict[Leftover, Planted]] = {
        "file": Planted(lambda path: (first(path, "sync.arrow").parent / "x.bin").touch(), "other-file", "x.bin"),
        "member": Planted(
            lambda path: (first(path, "sync.arrow").parent / "lidar.lidar_top.arrow").touch(),
            "unread-part",
            "lidar.lidar_top.arrow",
        ),
        "bad first file": Planted(lambda path: cut(path, "ego_state_se3.arrow"), "", "sync.arrow", refused=True),
    }
    absent: ClassVar = {
        **Accounts.absent,
        "column": "a modality is a file",
        "tail": "Arrow files end with their footer",
    }


def damaged(path: Path) -> list[str]:
    with collected_damage(), penstock.open(path) as data:
        return [str(entry.message) for entry in data.source.account.left_out if entry.level == "error"]


def test_a_record_that_is_not_as_its_checksum_says(tmp_path: Path) -> None:
    path = write("waymo", tmp_path, Drives("waymo", SPEC, (3, 2, 2)).episodes())
    file = path / "training.tfrecord-00001-of-00002"
    raw = bytearray(file.read_bytes())
    raw[-20] ^= 1
    file.write_bytes(raw)
    (said,) = damaged(path)
    assert "1 scene read, then: expected a record as its checksum says" in said
    with collected_damage(), penstock.open(path) as data:
        assert [len(episode) for episode in data] == [3, 2]


def test_examples_instead_of_scenarios(tmp_path: Path) -> None:
    """The two folders of Waymo's release are confused often."""
    values = message((2, b""))
    features = b"".join(message((1, message((1, key), (2, values)))) for key in (b"roadgraph_samples/xyz", b"state/id"))
    (tmp_path / "training_tfexample.tfrecord-00000-of-01000").write_bytes(record_of(message((1, features))))
    with pytest.raises(FormatError, match=r"got tf\.Example messages .*; download the folder `scenario`"):
        penstock.open(tmp_path)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ((6, 99), "sdc_track_index within 0:"),
        ((11, message((1, 99))), "tracks_to_predict within 0:"),
        ((2, message((1, 5), (2, 1), (3, b""))), "a track of 3 states, got 1 state"),
        ((2, message((1, 5), (2, 9), *((3, b""),) * 3)), "an object_type among"),
        ((7, message((1, message((1, 5), (2, 1))))), "at most 3 dynamic_map_states, got 4"),
    ],
)
def test_scenarios_that_contradict_themselves(tmp_path: Path, field: tuple[int, Any], said: str) -> None:
    raw = scenario(Drives("waymo", SPEC, (3,)).episodes()[0])
    (tmp_path / "a.tfrecord").write_bytes(record_of(raw + message(field)))
    with pytest.raises(FormatError, match=said):
        penstock.open(tmp_path)


def test_an_empty_database_and_one_of_something_else(tmp_path: Path) -> None:
    """SQLite makes an empty file where a wrong path is opened."""
    path = write("nuplan", tmp_path, Drives("nuplan", SPEC, (2,)).episodes())
    (path / "empty.db").touch()
    with sqlite3.connect(path / "other.db") as database:
        database.execute("CREATE TABLE lidar_pc (token)")
    assert damaged(path)[0].startswith("expected a database of nuPlan, got an empty file; SQLite makes one when")
    assert damaged(path)[1].startswith("expected a database of nuPlan, got none of the tables ['ego_pose', ")


def test_two_cars_in_a_file_are_two_scenes(tmp_path: Path) -> None:
    path = write("nuplan", tmp_path, Drives("nuplan", SPEC, (4,)).episodes())
    with sqlite3.connect(path / "log.db") as database:
        database.execute("INSERT INTO log VALUES (x'f1', 'other car', 'log', NULL, NULL)")
        database.execute("INSERT INTO lidar VALUES (x'f2', x'f1')")
        database.execute("UPDATE lidar_pc SET lidar_token = x'f2' WHERE rowid IN (SELECT MAX(rowid) FROM lidar_pc)")
    with penstock.open(path) as data:
        assert sorted(len(episode) for episode in data) == [1, 3]
        assert {entry["host"] for entry in data.source.episode_metadata([0, 1])} == {"car", "other car"}


def test_a_focal_track_need_not_be_complete_and_steps_without_the_ego_are_left_out(tmp_path: Path) -> None:
    path = write("argoverse2", tmp_path, Drives("argoverse2", SPEC, (6,)).episodes())
    file = first(path, "*.parquet")
    table = pyarrow.parquet.read_table(file).to_pandas()
    keep = ~((table["track_id"] == "AV") & (table["timestep"] == 2)) & ~(
        (table["track_id"] == "t1") & (table["timestep"] > 3)
    )
    pyarrow.parquet.write_table(pa.Table.from_pandas(table[keep], preserve_index=True), file)
    with collected_damage() as said, penstock.open(path) as data:
        assert len(data[0]) == 5
        assert data.source.episode_metadata([0])[0]["focal_track"] == "t1"
        assert "frames without a pose of the ego" in said[0]
        assert "time-gap" in {finding.name for finding in penstock.check(path).findings}


def test_each_data_set_has_its_rate(tmp_path: Path) -> None:
    """nuPlan has 20 frames a second; a made-up one of 10 is another rate, as samples divide by `step_time`."""
    assert "time-rate" not in {finding.name for finding in penstock.check(GOLDEN / "nuplan").findings}
    path = write("nuplan", tmp_path, Drives("nuplan", SPEC, (4,)).episodes())
    (said,) = (finding.message for finding in penstock.check(path).findings if finding.name == "time-rate")
    assert said.startswith("expected a frame every 0.05 s, as scenes of nuPlan have them, got one every 0.1 s")


def test_empty_folders_are_not_data_sets(tmp_path: Path) -> None:
    (tmp_path / "logs" / "train").mkdir(parents=True)
    with pytest.raises(UnknownFormatError):
        penstock.open(tmp_path)
    for name in NAMES:
        with pytest.raises(FormatError, match="got none"):
            penstock.open(tmp_path, format=name)


def test_a_file_that_changed_is_noticed(tmp_path: Path) -> None:
    """Also where what opening learned of it is kept in the cache."""
    write("py123d", tmp_path / "a", Drives("py123d", SPEC, (3,)).episodes())
    with penstock.open(tmp_path / "a" / "py123d") as data:
        before = data.source.fingerprint
    write("py123d", tmp_path / "b", Drives("py123d", SPEC, (3,)).episodes(1))
    for name in ("ego_state_se3", "box_detections_se3"):
        file = first(tmp_path / "b", f"{name}.arrow")
        first(tmp_path / "a", f"{name}.arrow").write_bytes(file.read_bytes())
    with penstock.open(tmp_path / "a" / "py123d") as data:
        source: Any = data.source
        assert isinstance(source, ScenarioSource)
        assert source.fingerprint != before
        assert np.isfinite(source.agents[:]["centroid"]).all()


SINGLE: list[tuple[str, Callable[[Path], Path]]] = [
    ("argoverse2", lambda path: first(path, "*.parquet")),
    ("argoverse2", lambda path: first(path, "*.parquet").parent),
    ("waymo", lambda path: first(path, "*.tfrecord*")),
    ("nuplan", lambda path: first(path, "*.db")),
    ("py123d", lambda path: first(path, "sync.arrow").parent),
]


@pytest.mark.parametrize(("name", "part"), SINGLE)
def test_a_part_of_a_data_set_is_one(name: str, part: Callable[[Path], Path]) -> None:
    with collected_damage(), penstock.open(part(GOLDEN / name)) as data, penstock.open(GOLDEN / name) as whole:
        assert isinstance(data.source, ScenarioSource)
        assert data[0].columns["timestamp"].tolist() == whole[0].columns["timestamp"].tolist()
