"""Data of a distribution that is not installed: `open` and `format=` say what to install."""

from __future__ import annotations

import shutil
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import penstock
from penstock.errors import RemoteError, UnknownFormatError
from penstock.formats.base import format as registry
from penstock.formats.base.format import available
from penstock.formats.base.signatures import DISTRIBUTIONS, format_elsewhere

GOLDEN = Path(__file__).parents[1] / "golden"
NATIVE = GOLDEN / "ilr" / "native"
DATA = {
    "games in a folder": (GOLDEN / "lc0" / "endings", "penstock-chess"),
    "a game": (GOLDEN / "lc0" / "endings" / "training.700060.gz", "penstock-chess"),
    "atari": (NATIVE / "atari" / "pong_synth.npz", "penstock-imitation"),
    "dm_control": (NATIVE / "dm_control" / "reacher-easy-synth.pkl.gz", "penstock-imitation"),
    "magical": (NATIVE / "magical" / "move-to-region", "penstock-imitation"),
    "minerl": (NATIVE / "minecraft" / "MineRLNavigateVectorObf-v0", "penstock-imitation"),
    "scenarios in Parquet": (GOLDEN / "driving" / "argoverse2", "penstock-driving"),
    "scenarios in TFRecord": (GOLDEN / "driving" / "waymo", "penstock-driving"),
    "a database": (GOLDEN / "driving" / "nuplan", "penstock-driving"),
    "a log in Arrow": (next((GOLDEN / "driving" / "py123d").rglob("sync.arrow")).parent, "penstock-driving"),
    "procgen": (NATIVE / "procgen" / "demo_coinrun.pickle", "penstock-imitation"),
}
CORE = {name: entry for name, entry in available().items() if name not in DISTRIBUTIONS}


@pytest.fixture
def core_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the formats of the core are installed."""
    monkeypatch.setattr(registry, "available", lambda: CORE)


@pytest.mark.usefixtures("core_alone")
@pytest.mark.parametrize("name", DATA)
def test_data_of_a_missing_distribution_name_it(name: str) -> None:
    path, distribution = DATA[name]
    with pytest.raises(
        UnknownFormatError, match=f"which is not installed; install it with: pip install {distribution}"
    ):
        penstock.open(path)


@pytest.mark.usefixtures("core_alone")
@pytest.mark.parametrize("kind", ["zarr", "npy", "zip"])
def test_driving_logs_name_their_distribution(tmp_path: Path, kind: str) -> None:
    log = tmp_path / "log.zarr"
    for table in ("scenes", "frames", "agents"):
        if kind == "npy":
            log.mkdir(exist_ok=True)
            (log / f"{table}.npy").write_bytes(b"")
        else:
            (log / table).mkdir(parents=True)
            (log / table / ".zarray").write_text("{}")
    path = Path(shutil.make_archive(str(tmp_path / "log"), "zip", tmp_path, "log.zarr")) if kind == "zip" else log
    with pytest.raises(UnknownFormatError, match="pip install penstock-driving"):
        penstock.open(path)


def test_a_tar_file_of_games_names_its_distribution(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "games.tar", "w") as archive:
        archive.add(GOLDEN / "lc0" / "endings" / "training.700060.gz", "run/training.700060.gz")
    assert format_elsewhere(tmp_path / "games.tar", CORE) == "lc0"


@pytest.mark.usefixtures("core_alone")
@pytest.mark.parametrize(("name", "distribution"), DISTRIBUTIONS.items())
def test_a_format_that_is_not_installed_is_named(tmp_path: Path, name: str, distribution: str) -> None:
    with pytest.raises(UnknownFormatError, match=f"pip install {distribution}"):
        penstock.open(tmp_path, format=name)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8bno gzip", b"PK\3\4no archive", b"\x80\4no pickle", b"\x93NUMPY"])
def test_other_files_are_nobodys(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "training.1.gz").write_bytes(content)
    for path in (tmp_path, tmp_path / "training.1.gz"):
        assert format_elsewhere(path, CORE) is None


def test_what_is_installed_is_not_looked_for() -> None:
    for path, distribution in DATA.values():
        if find_spec(distribution.replace("-", "_")) is not None:
            assert format_elsewhere(path, available()) is None


def test_a_store_that_does_not_answer_is_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(path: Path) -> None:
        raise RemoteError(f"no answer for {path.name}")

    (tmp_path / "training.1.gz").write_bytes(b"")
    monkeypatch.setattr("penstock.formats.base.signatures.open_file", refuses)
    with pytest.raises(RemoteError, match=r"no answer for training\.1\.gz"):
        format_elsewhere(tmp_path, CORE)
