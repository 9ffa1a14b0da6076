"""First bytes, and names of files in folders, by which some formats are asked first: others are not imported.

Most files are not listed: archives and text can have many formats, which look at them one after the other.

Data may have a format that another distribution has: `format_elsewhere` tells where it is missing, by names and first
bytes alone.
"""

from __future__ import annotations

import sqlite3
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from penstock.errors import RemoteError
from penstock.files.remote import open_file
from penstock.files.sqlite import database

SIGNATURES = {
    b"PAR1\x15": frozenset({"tables"}),  # Parquet, and the header of its first page
    b"ARROW1\0\0": frozenset({"tables"}),
    b"\x89HDF\r\n\x1a\n": frozenset({"demos", "minari"}),
}
"""Folders of `penstock.formats` whose files begin with some bytes."""
MARKS = {
    "meta/info.json": frozenset({"lerobot"}),
    "data/main_data.hdf5": frozenset({"minari"}),
    "data/metadata.json": frozenset({"minari"}),
    "features.json": frozenset({"rlds"}),
    "[0-9]*.[0-9]*.[0-9]*/features.json": frozenset({"rlds"}),
    "meta/episode_ends/.zarray": frozenset({"zarr"}),
    "meta/episode_ends/zarr.json": frozenset({"zarr"}),
}
"""Folders of `penstock.formats` whose data are folders with some file."""
MAPPED = "penstock.toml"  # makes a folder of any data a dataset
POINTER = b"version https://git-lfs.github.com/spec/"
"""The first bytes of the text file that Git LFS has in the place of a large file."""
POINTED = "a pointer of Git LFS instead of the file; `git lfs pull` fetches it"
HEAD = 4096  # bytes of a file that are looked at, unpacked
PICKLED = (b"MILBenchTrajectory", b"MAGICALTrajectory", b"imitation.data.types", b"imitation.util.rollout")
TABLES = ("scenes", "frames", "agents")
LOOKS = 8  # files of a folder that are looked at

DISTRIBUTIONS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("l5kit", "argoverse2", "waymo", "nuplan", "py123d"), "penstock-driving"),
        **dict.fromkeys(("lc0", "lc0-archive"), "penstock-chess"),
        "native": "penstock-imitation",
    }
)
"""The distribution of each format of ours that is not in the core."""


def likely_formats(path: Path) -> frozenset[str] | None:
    """Return the folders of the formats that a file has by its first bytes, or a folder by a file in it, or None for
    others."""
    if not path.is_file():
        marked = (formats for mark, formats in MARKS.items() if any(path.glob(mark)))
        return None if (path / MAPPED).exists() else next(marked, None)
    try:
        with open_file(path) as file:
            head = file.read(max(map(len, SIGNATURES)))
    except RemoteError:
        raise
    except OSError:
        return None  # the formats say what is wrong
    likely = next((folders for signature, folders in SIGNATURES.items() if head.startswith(signature)), None)
    return None if likely is not None and is_narrower_table(path) else likely


def is_pointer(path: Path) -> bool:
    """Return whether a file is a pointer of Git LFS. Cost: one small read."""
    try:
        if not path.is_file():
            return False
        with open_file(path) as file:
            return file.read(len(POINTER)) == POINTER
    except OSError:
        return False


def install(distribution: str) -> str:
    """The end of a message about a distribution that is missing."""
    return f"install it with: pip install {distribution}"


def format_elsewhere(path: Path, installed: Mapping[str, object]) -> str | None:
    """The format of ours that data seem to have and that is not installed, or None."""
    for name, looks_like in _LOOKS.items():
        try:
            if name not in installed and looks_like(path):
                return name
        except RemoteError:
            raise
        except (OSError, ValueError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error):
            continue
    return None


def _first_files(path: Path) -> list[Path]:
    """The file itself, or the first files of a folder."""
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.iterdir() if each.is_file() and not each.name.startswith("."))[:LOOKS]


def _head(file: Path) -> bytes:
    """The first bytes, unpacked if it is a gzip."""
    with open_file(file) as raw:
        head = raw.read(HEAD)
    return zlib.decompressobj(31).decompress(head, HEAD) if head.startswith(b"\x1f\x8b") else head


def _are_games(path: Path) -> bool:
    """Training games of Leela Chess Zero: `training.*.gz` that begin with a version, or a tar file of them."""
    for file in _first_files(path):
        with open_file(file) as raw:
            if tarfile.is_tarfile(raw):
                raw.seek(0)
                with tarfile.open(fileobj=raw) as archive:
                    first = archive.next()
                return first is not None and Path(first.name).name.startswith("training.")
        if file.name.startswith("training") and 3 <= int.from_bytes(_head(file)[:4], "little") <= 7:
            return True
    return False


def _is_log(path: Path) -> bool:
    """A driving log of L5Kit: a group of tables in Zarr, in a folder or a ZIP archive, or as `.npy` files."""
    if path.is_dir():
        return all((path / name).is_dir() or (path / f"{name}.npy").is_file() for name in TABLES)
    with open_file(path) as file, zipfile.ZipFile(file) as archive:
        tops = {name.split("/")[-2] for name in archive.namelist() if name.endswith("/.zarray")}
    return tops.issuperset(TABLES)


def is_narrower_table(path: Path) -> bool:
    """Whether a table, or a folder of tables, is of Argoverse 2 or py123d, whose rows are no steps."""
    files = [path] if not path.is_dir() else [*path.glob("scenario_*.parquet"), path / "sync.arrow"]
    return any(is_scenario_table(file) or is_sync_table(file) for file in files[:LOOKS] if file.is_file())


def is_scenario_table(file: Path) -> bool:
    """A scenario of Argoverse 2, by its name and the names of columns at the end of the file."""
    if not (file.name.startswith("scenario_") and file.suffix == ".parquet"):
        return False
    with open_file(file) as raw:
        raw.seek(max(file.stat().st_size - (1 << 16), 0))
        return b"focal_track_id" in raw.read()


def is_sync_table(file: Path) -> bool:
    """The table that joins the others of a log of py123d."""
    if file.name != "sync.arrow":
        return False
    with open_file(file) as raw:
        return b"sync.timestamp_us" in raw.read(HEAD)


def is_motion_records(file: Path) -> bool:
    """Records of Waymo Open Motion: a message that begins with times, or examples of them."""
    if ".tfrecord" not in file.name:
        return False
    with open_file(file) as raw:
        head = raw.read(1 << 16)
    return head[12:13] + head[21:22] == b"\x09\x09" or b"roadgraph_samples/" in head


def is_nuplan_database(file: Path) -> bool:
    """A log of nuPlan in SQLite."""
    if file.suffix != ".db":
        return False
    with open_file(file) as raw:
        head = raw.read(HEAD)
    if not head.startswith(b"SQLite format 3\0"):
        return False
    try:
        with database(file) as opened:
            return opened.execute("SELECT 1 FROM sqlite_master WHERE name = 'lidar_pc'").fetchone() is not None
    except sqlite3.Error:
        return b"lidar_pc" in head  # of a damaged one, which its format says


def _anywhere(looks_like: Callable[[Path], bool]) -> Callable[[Path], bool]:
    """Whether it holds for the file, or for one of the first files in a folder and the first folders below."""

    def found(path: Path) -> bool:
        level = [path]
        while level:
            if any(looks_like(file) for folder in level for file in _first_files(folder)):
                return True
            level = [each for folder in level if folder.is_dir() for each in _folders_in(folder)][:LOOKS]
        return False

    return found


def _folders_in(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))[:LOOKS]


def _are_native(path: Path) -> bool:
    """Demonstrations of a benchmark: pickles of trajectories, Atari's archives of one object, streams of MineRL."""
    if path.is_dir() and any(path.glob("rendered.npz")) | any(path.glob("*/rendered.npz")):
        return True
    for file in _first_files(path):
        head = _head(file)
        if head.startswith(b"PK\3\4"):
            with open_file(file) as raw, zipfile.ZipFile(raw) as archive:
                if archive.namelist() != ["arr_0.npy"]:
                    continue
                with archive.open("arr_0.npy") as member:
                    head = member.read(HEAD)
        of_objects = head.startswith(b"\x93NUMPY") and b"'|O'" in head[:80] and b"states" in head
        pickled = head.startswith(b"\x80") and (any(name in head for name in PICKLED) or _is_procgen(head))
        if of_objects or pickled:
            return True
    return False


def _is_procgen(head: bytes) -> bool:
    """A pickled dict that begins with one of the lists of a recording of Procgen."""
    return any(key in head[:64] for key in (b"obs", b"acts", b"rews", b"dones"))


_LOOKS: Mapping[str, Callable[[Path], bool]] = MappingProxyType(
    {
        "l5kit": _is_log,
        "lc0": _are_games,
        "lc0-archive": lambda path: path.is_dir() and b'"content": "lc0-archive"' in _head(path / "spec.json"),
        "native": _are_native,
        "argoverse2": _anywhere(is_scenario_table),
        "waymo": _anywhere(is_motion_records),
        "nuplan": _anywhere(is_nuplan_database),
        "py123d": _anywhere(is_sync_table),
    }
)
