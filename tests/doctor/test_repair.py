"""Damage is planted, found, mended in a copy and in place, and taken back; complete episodes stay as they were."""

# pyright: basic

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.core.ragged import Ragged
from penstock.data.located import locate
from penstock.doctor.repair import repair, undo_repair
from penstock.errors import ArgumentError, FormatError, LockedError
from penstock.formats.base.format import available, named
from tests.doctor import repairs
from tests.doctor.repairs import CAMERA, Plant, append, shorten, tables, write
from tests.forking import kill_before_call
from tests.packages import modules_of_packages

PACKAGES = modules_of_packages("doctor_cases")
MAKE = {name: make for module in (repairs, *PACKAGES) for name, make in module.MAKE.items()}
DAMAGE = [damage for module in (repairs, *PACKAGES) for damage in module.DAMAGE]
WRITERS = ["columns", "shards.tar", "rlds", "lerobot", "zarr", *(name for each in PACKAGES for name in each.WRITERS)]


def state(path: Path) -> dict[str, str]:
    """Digest of every file of a dataset, without locks."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    digests = {str(p.relative_to(path.parent)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
    return {name: digest for name, digest in digests.items() if not name.endswith("lock")}


def values(path: Path, most: int | None = None) -> list[dict[str, bytes]]:
    """Columns of the episodes, as bytes. Numbers that LeRobot computes are left out."""
    computed = ("frame_index", "index", "episode_index", "timestamp", "task_index")
    with penstock.open(path) as data:
        found: list[dict[str, bytes]] = []
        for e in range(len(data) if most is None else min(most, len(data))):
            columns = data[e].columns
            parts = {name: columns[name] for name in columns if name not in computed}
            found.append(
                {n: (c.values if isinstance(c, Ragged) else np.asarray(c)).tobytes() for n, c in parts.items()}
            )
        return found


@pytest.mark.parametrize(
    ("make", "name", "plant", "lost"), DAMAGE, ids=[f"{make}-{name}" for make, name, _, _ in DAMAGE]
)
def test_damage_is_found_mended_and_taken_back(make: str, name: str, plant: Plant, lost: int, tmp_path: Path) -> None:
    path = MAKE[make](tmp_path / make)
    whole = values(path)
    how: dict[str, Any] = {"deep": name == "numbering", "progress": False, "threads": 0}
    before = {each.name for each in repair(path, plan=True, **how).left}
    plant(path)
    damaged = state(path)
    planned = repair(path, plan=True, **how)
    assert name in [each.finding for each in planned.repairs]
    found = [each for each in planned.left if each.name == name]
    assert found
    assert all(each.repair for each in found), found
    assert state(path) == damaged

    out = tmp_path / "copy" / make
    out.parent.mkdir()
    copied = repair(path, out=out, **how)
    assert state(path) == damaged
    assert copied.out == out
    assert {each.name for each in copied.left} == before
    assert values(out) == whole[: len(whole) - lost]
    report = repair(path, in_place=True, **how)
    assert state(path) == state(out) != damaged
    for backup in reversed(report.backups):
        assert undo_repair(backup) == path
    assert state(path) == damaged
    assert not list(tmp_path.rglob(".*.*.penstock"))


def test_the_page_lists_what_is_mended(tmp_path: Path) -> None:
    """The column "repair mends it in" of the page "Findings"."""
    formats = {make: locate(MAKE[make](tmp_path / make)).format for make in dict.fromkeys(each[0] for each in DAMAGE)}
    mended: dict[str, set[str]] = {}
    for make, name, _, _ in DAMAGE:
        mended.setdefault(name, set()).add(formats[make])
    page = json.loads((Path(__file__).parents[2] / "docs/reference/repairs.json").read_text())
    listed = {name: available().keys() & formats for name, formats in page.items()}
    assert {name: formats for name, formats in listed.items() if formats} == mended


@pytest.mark.parametrize("name", ["big.tar.zst", "big.tgz"])
def test_a_long_compressed_archive_keeps_what_was_written(tmp_path: Path, name: str) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (40, 20_000), np.uint8)
    data = penstock.from_arrays(
        {"actions": np.arange(40.0), "observations/x": rows}, lengths=[4] * 10, align={"observations/x": "step"}
    )
    penstock.convert(data, tmp_path / name, certificate=False)
    whole = values(tmp_path / name)
    shorten("", 150_000)(tmp_path / name)
    with pytest.raises(FormatError):
        penstock.open(tmp_path / name)
    report = repair(tmp_path / name, in_place=True, progress=False)
    assert [each.finding for each in report.repairs] == ["truncated"]
    kept = values(tmp_path / name)
    assert 6 <= len(kept) < 10
    assert kept == whole[: len(kept)]


def test_without_damage_nothing_is_written(tmp_path: Path) -> None:
    path = write(tmp_path / "data", "columns")
    before = state(tmp_path)
    report = repair(path, in_place=True)
    assert (report.repairs, report.left, report.out, report.backups) == ((), (), None, ())
    assert repair(path, out=tmp_path / "out").out is None
    assert state(tmp_path) == before


def test_what_cannot_be_mended_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "data", "columns")
    raw = bytearray((path / CAMERA).read_bytes())
    raw[3] ^= 1
    (path / CAMERA).write_bytes(raw)
    append("episodes", b"x" * 31)(path)
    report = repair(path, in_place=True, deep=True, progress=False)
    assert [each.finding for each in report.repairs] == ["torn-tail"]
    assert {each.name for each in report.left} == {"checksum"}
    assert not report.sound


def test_records_that_are_known_to_be_lost_are_no_torn_tail(tmp_path: Path) -> None:
    path = MAKE["rlds"](tmp_path / "data")
    before = state(path)
    shorten("data-train.tfrecord-00000-of-00001", 20)(path)
    report = repair(path, in_place=True, progress=False)
    assert report.repairs == ()
    assert "damaged-part" in {each.name for each in report.left}
    assert state(path).keys() == before.keys()


def test_pages_that_belong_together_in_several_ways_are_not_guessed(tmp_path: Path) -> None:
    table = pa.table({"episode_index": np.arange(8), "x": np.arange(8)})
    for number in range(2):
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=4, use_dictionary=False)
    shorten("1.parquet", 9)(tmp_path)
    report = repair(tmp_path, plan=True)
    assert report.repairs == ()
    assert "missing-footer" in {each.name for each in report.left}


@pytest.mark.parametrize("seed", range(4))
def test_footers_of_random_tables(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, group = int(rng.integers(30, 90)), int(rng.integers(7, 20))
    data = {
        "episode_index": np.arange(rows) // 5,
        "s": [str(i) * (i % 3) for i in range(rows)],
        "ok": rng.random(rows) > 0.5,
        "v": pa.array(list(rng.normal(size=(rows, 3)))),
        "st": [{"a": i, "b": b"x" * (i % 4)} for i in range(rows)],
    }
    options: dict[str, Any] = {
        "compression": str(rng.choice(["snappy", "zstd", "none"])),
        "data_page_version": str(rng.choice(["1.0", "2.0"])),
        "data_page_size": int(rng.choice([100, 1 << 20])),
        "write_page_index": bool(rng.integers(2)),
    }
    table = pa.table(data)
    pq.write_table(table.slice(0, 10), tmp_path / "0.parquet", **options)
    raw = io.BytesIO()
    pq.write_table(table, raw, row_group_size=group, **options)
    (tmp_path / "1.parquet").write_bytes(raw.getvalue()[: int(rng.integers(len(raw.getvalue()) // 2, raw.tell() - 1))])
    from penstock.containers.arrow.footer import rebuilt_footer

    found = rebuilt_footer(tmp_path / "1.parquet", tmp_path / "0.parquet")
    (tmp_path / "1.parquet").write_bytes((tmp_path / "1.parquet").read_bytes()[: found.keep] + found.content)
    mended = pq.read_table(tmp_path / "1.parquet")
    assert 0 < len(mended) == found.rows
    assert mended.equals(table.slice(0, found.rows))


@pytest.mark.parametrize("make", WRITERS)
def test_writers_exclude_a_repair(make: str, tmp_path: Path) -> None:
    path = MAKE[make](tmp_path / make)
    format = named(locate(path).format)
    with format.append(path), pytest.raises(LockedError):
        repair(path, in_place=True)
    if make != "columns":  # whose new writers wait
        with format.writing_lock(path), pytest.raises(LockedError):
            format.append(path)


def test_arguments(tmp_path: Path) -> None:
    path = write(tmp_path / "data", "columns")
    with pytest.raises(ArgumentError, match="one of out, in_place and plan"):
        repair(path)
    with pytest.raises(ArgumentError, match="one of out, in_place and plan"):
        repair(path, in_place=True, plan=True)
    with pytest.raises(FormatError, match=r"expected backup\.json"):
        undo_repair(path)
    for content in ("no JSON", "[]", "{}", '{"dataset": "a", "format": null, "files": [{"file": "a"}]}'):
        backup = tmp_path / "backup"
        backup.mkdir(exist_ok=True)
        (backup / "backup.json").write_text(content)
        with pytest.raises(FormatError, match=r"backup\.json of a repair"):
            undo_repair(backup)
    append("episodes", b"x" * 31)(path)
    with pytest.raises(FileExistsError):
        repair(path, out=path)


def killed_at(at: int, path: Path) -> int:
    """Repair in a child process that is killed at one of its calls that change the disk; its exit status."""
    child = os.fork()
    if child == 0:
        kill_before_call(at, ("replace", "rename", "pwrite", "unlink", "mkdir", "ftruncate", "fsync"))
        repair(path, in_place=True, progress=False, threads=0)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_at_any_step_loses_nothing(tmp_path: Path, seed: int) -> None:
    path, at = tables(tmp_path / "data"), random.Random(seed).randrange(1, 12)
    whole = values(path)
    shorten("1.parquet", 9)(path)
    assert killed_at(at, path) == -signal.SIGKILL
    report = repair(path, in_place=True, progress=False, threads=0)
    assert report.sound
    assert values(path) == whole
    assert not list(tmp_path.rglob(".*.*.penstock"))
