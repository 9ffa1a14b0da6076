"""Locks, atomic replacement, sweeping, logs and cache files: what they promise, and what they do when things fail."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import FormatError, LockedError
from penstock.files import (
    AppendLog,
    atomic_file,
    atomic_path,
    locked,
    locks,
    move,
    open_locked,
    read_checked,
    replace,
    scratch_folder,
    sweep,
    write_atomic,
    write_checked,
)
from penstock.files.user_cache import make_room

MAGIC = b"log 1\n"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=["renameat2", "rename"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to rename: with the kernel's help, and without."""
    if request.param == "rename":
        monkeypatch.setattr(replace, "_renameat2", lambda *_: False)
    return str(request.param)


def test_a_new_file_has_the_permissions_of_a_fresh_one(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_atomic(tmp_path / "ours", b"1")
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "private", b"1")
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in names(tmp_path)}
    assert modes == {"plain": modes["plain"], "ours": modes["plain"], "private": 0o640}


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(errno.ENOSPC, "disk full")])
def test_a_block_that_raises_changes_nothing(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def by_file() -> None:
        with atomic_file(path) as file:
            file.write(b"new")
            raise error

    def by_path() -> None:
        with atomic_path(path, overwrite=True) as made:
            made.write_bytes(b"new")
            raise error

    for write in (by_file, by_path):
        with pytest.raises(type(error)):
            write()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_at_the_end_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    path = tmp_path / "a"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, b"new", durable="file")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    target = tmp_path / "file" / "below"
    for attempt in (lambda: write_atomic(target, b""), lambda: scratch_folder(target).__enter__()):
        with pytest.raises(NotADirectoryError) as caught:
            attempt()
        assert caught.value.filename == str(target)


def test_long_names_are_written(tmp_path: Path) -> None:
    path = tmp_path / ("ä" * 125)
    write_atomic(path, b"1")
    with atomic_path(path, overwrite=True) as made:
        made.write_bytes(b"2")
    assert path.read_bytes() == b"2"
    assert names(tmp_path) == [path.name]


def test_nothing_is_overwritten_unless_asked(tmp_path: Path, kernel: str) -> None:
    path = tmp_path / "a"
    with pytest.raises(FileExistsError), atomic_file(path, overwrite=False):
        path.write_bytes(b"quicker")
    with pytest.raises(FileExistsError, match="expected nothing at"), atomic_path(path):
        raise AssertionError("not reached")
    other = tmp_path / "b"
    with pytest.raises(FileExistsError, match="expected nothing at"), atomic_path(other) as made:  # noqa: PT012
        made.mkdir()
        other.mkdir()
    (other / "theirs").touch()
    with pytest.raises(FileExistsError):
        move(path, other)
    assert names(tmp_path) == ["a", "b"]
    assert path.read_bytes() == b"quicker"
    assert names(other) == ["theirs"]


def test_a_folder_takes_the_place_of_another(tmp_path: Path, kernel: str) -> None:
    place = tmp_path / "data"
    for text in ("1", "2", "3"):
        with atomic_path(place, overwrite=True, durable="folder") as made:
            made.mkdir()
            (made / text).write_text(text)
    assert names(place) == ["3"]
    assert names(tmp_path) == ["data"]


def test_a_second_rename_that_fails_brings_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "data"
    place.mkdir()
    (place / "old").touch()
    monkeypatch.setattr(replace, "_renameat2", lambda *_: False)
    with pytest.raises(FileNotFoundError), atomic_path(place, overwrite=True):
        pass  # nothing is made
    assert names(place) == ["old"]
    assert names(tmp_path) == ["data"]


def left_behind(tmp_path: Path) -> tuple[Path, Path]:
    """A scratch file and a scratch folder as a killed writer leaves them."""
    file, folder = tmp_path / ".a.0123456789ab.penstock", tmp_path / ".b.ba9876543210.penstock"
    file.write_bytes(b"half")
    (folder / "new" / "b").mkdir(parents=True)
    return file, folder


def test_what_killed_writers_left_is_swept_by_the_next(tmp_path: Path) -> None:
    for write in (lambda p: write_atomic(p, b"1"), lambda p: scratch_folder(p).__enter__()):
        folder = tmp_path / str(len(names(tmp_path)))
        folder.mkdir()
        left_behind(folder)
        scope = write(folder / "a")
        assert not {".a.0123456789ab.penstock", ".b.ba9876543210.penstock"} & set(names(folder))
        del scope


def test_only_our_names_with_free_locks_are_swept(tmp_path: Path) -> None:
    file, folder = left_behind(tmp_path)
    others = [".a.penstock", ".a.0123456789AB.penstock", "a.0123456789ab.penstock", ".a.0123456789ab.tmp"]
    for name in others:
        (tmp_path / name).touch()
    os.symlink(tmp_path / ".a.penstock", tmp_path / ".l.0123456789ab.penstock")
    os.mkfifo(tmp_path / ".f.0123456789ab.penstock")
    with locked(file, os.O_RDWR), locked(folder):
        sweep(tmp_path)
        assert file.exists()
        assert folder.is_dir()
    sweep(tmp_path)
    assert names(tmp_path) == sorted([*others, ".l.0123456789ab.penstock", ".f.0123456789ab.penstock"])
    sweep(tmp_path / "nowhere")


def test_what_is_being_written_is_not_swept(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "a") as file, atomic_path(tmp_path / "b") as made:
        file.write(b"1")
        made.mkdir()
        sweep(tmp_path)
        assert len(names(tmp_path)) == 2
    assert names(tmp_path) == ["a", "b"]


def test_a_name_swept_before_it_was_locked_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, times = replace.try_lock, list[int]()

    def swept_first(fd: int, **options: Any) -> bool:
        if not times:
            times.append(1)
            for path in tmp_path.iterdir():
                path.unlink()
        return real(fd, **options)

    monkeypatch.setattr(replace, "try_lock", swept_first)
    write_atomic(tmp_path / "a", b"1")
    assert (tmp_path / "a").read_bytes() == b"1"
    assert times


def test_files_are_written_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    left = left_behind(tmp_path)[0]
    monkeypatch.setattr(fcntl, "flock", none)
    write_atomic(tmp_path / "a", b"1")
    with atomic_path(tmp_path / "b") as made:
        made.mkdir()
    assert {"a", "b", left.name} <= set(names(tmp_path))  # what cannot be locked may be somebody's


def test_locks_exclude_each_other_and_name_file_and_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    held = open_locked(path, os.O_RDWR | os.O_CREAT)
    process = rf" \(process {os.getpid()}\)" if locks.LOCKS.exists() else ""
    with pytest.raises(LockedError, match=f"lock is in use by another run{process}; try again when it has finished"):
        open_locked(path, shared=True, holder="another run")
    monkeypatch.setattr(locks, "LOCKS", tmp_path / "unknown")
    with pytest.raises(LockedError, match="lock is in use by another run; try again when it has finished"):
        open_locked(path, shared=True, holder="another run")
    os.close(held)
    shared = [open_locked(path, shared=True), open_locked(path, shared=True)]
    with pytest.raises(LockedError), locked(path):
        pass
    for each in shared:
        os.close(each)
    script = "import sys; from penstock.files import open_locked; open_locked(sys.argv[1])"
    with locked(path):
        done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
    assert "LockedError" in done.stderr


def test_a_lock_is_on_what_lies_at_the_path_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    first = open_locked(path)
    waiting, got = threading.Event(), list[int]()

    def wait() -> None:
        waiting.set()
        got.append(open_locked(path, os.O_RDWR | os.O_CREAT, wait=True))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    path.unlink()  # as one does who removes a lock file with the data
    os.close(first)
    thread.join()
    assert os.fstat(got[0]).st_ino == path.stat().st_ino
    os.close(got[0])


FOREIGN = {
    "model.pt": b"PK\x03\x04" + bytes(range(256)) * 9,
    "config.json": b'{"a": 1}',
    "table.csv": b"a,b\n1,2\n3,4",
    "cut": MAGIC[:-1],
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_log_refuses_foreign_files_and_leaves_them_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FOREIGN[name])
    before = path.stat()
    with pytest.raises(FormatError, match="expected a log, which begins with"):
        AppendLog(path, MAGIC, "a log")
    after = path.stat()
    assert path.read_bytes() == FOREIGN[name]
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


def test_a_log_refuses_folders_and_pipes(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(FormatError, match="no regular file"):
            AppendLog(tmp_path / name, MAGIC, "a log")


def test_a_log_has_one_writer_and_any_readers(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()  # an empty file has nothing to lose
    log = AppendLog(path, MAGIC, "a log")
    log.append(b"1\n")
    with pytest.raises(LockedError):
        AppendLog(path, MAGIC, "a log")
    assert path.read_bytes() == log.read() == MAGIC + b"1\n"
    log.close()
    log.close()
    with pytest.raises(ValueError, match="closed"):
        log.append(b"2\n")
    os.symlink(path, tmp_path / "link")
    again = AppendLog(tmp_path / "link", MAGIC, "a log")
    again.append(b"2\n")
    again.truncate(len(MAGIC) + 2)
    again.append(b"3\n")
    again.close()
    assert path.read_bytes() == MAGIC + b"1\n3\n"


FORK = """
import os, sys
from penstock.errors import LockedError
from penstock.files import AppendLog
path = sys.argv[1]
log = AppendLog(path, b"log\\n", "a log")
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.close(writing)
    try:
        log.append(b"child\\n")
    except LockedError:
        os.read(reading, 1)  # lives on, with a copy of the descriptor, until the parent is through
        log.close()
        os._exit(7)
    os._exit(1)
os.close(reading)
log.append(b"parent\\n")
log.close()
AppendLog(path, b"log\\n", "a log").close()
os.close(writing)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def test_a_forked_process_neither_writes_to_a_log_nor_holds_its_lock(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, tmp_path / "log"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log").read_bytes() == b"log\nparent\n"


def test_half_a_record_is_taken_back_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.pwrite, [3]

    def almost_full(fd: int, data: Any, position: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "disk full")
        done = real(fd, data[: room[0]], position)
        room[0] -= done
        return done

    log = AppendLog(tmp_path / "log", MAGIC, "a log")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", almost_full)
        with pytest.raises(OSError, match=re.escape(f"disk full: '{tmp_path / 'log'}'")):
            log.append(b"first\n")
    log.append(b"second\n")
    log.close()
    assert (tmp_path / "log").read_bytes() == MAGIC + b"second\n"


def test_a_cache_file_is_believed_as_written_and_never_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "cache"
    write_checked(path, b"magic\n", "key", b"content", b" in parts")
    raw = path.read_bytes()
    whole = read_checked(path, b"magic\n", "key")
    assert whole is not None
    assert bytes(whole) == b"content in parts"
    assert read_checked(path, b"other\n", "key") is None
    assert read_checked(path, b"magic\n", "ke") is None
    assert read_checked(path, b"magic\n", "keyc") is None
    assert read_checked(path, b"magic\n", "key", limit=len(raw) - 1) is None
    numbers = random.Random(0)
    damaged = [raw[:n] for n in range(len(raw))] + [raw + b"\0", b"\0" * len(raw), numbers.randbytes(200)]
    for i in range(len(raw)):
        damaged.append(raw[:i] + bytes([raw[i] ^ 1 << numbers.randrange(8)]) + raw[i + 1 :])
    for each in damaged:
        path.write_bytes(each)
        assert read_checked(path, b"magic\n", "key") is None


def test_a_cache_file_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    write_checked(tmp_path / "real", b"magic", "", b"1")
    os.symlink(tmp_path / "real", tmp_path / "link")
    for name in ("pipe", "folder", "link", "missing", "real/below"):
        assert read_checked(tmp_path / name, b"magic", "") is None


def test_threads_write_one_file_at_once(tmp_path: Path) -> None:
    path, failed = tmp_path / "cache", list[BaseException]()

    def write(text: bytes) -> None:
        try:
            for _ in range(20):
                write_checked(path, b"magic", "key", text * 1000)
                found = read_checked(path, b"magic", "key")
                assert found is not None
                assert bytes(found[:1]) * 1000 == found
        except BaseException as error:  # noqa: BLE001 - told below
            failed.append(error)

    threads = [threading.Thread(target=write, args=(bytes([i]),)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert names(tmp_path) == ["cache"]


def test_a_cache_keeps_what_changed_last_and_is_listed_seldom_while_it_is_half_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[int] = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: (listed.append(number), real(folder))[1])
    for number in range(300):
        make_room(tmp_path, "*.kept", 1000 - 10)
        path = tmp_path / f"{number}.kept"
        path.write_bytes(bytes(10))
        os.utime(path, ns=(number, number))
    (tmp_path / "other").write_bytes(bytes(5000))
    monkeypatch.undo()
    make_room(tmp_path, "*.kept", 1000)
    assert {path.name for path in tmp_path.iterdir()} == {"other", *(f"{number}.kept" for number in range(200, 300))}
    assert len([number for number in listed if 8 <= number < 49]) < 20
    assert [number for number in listed if number >= 60] == list(range(60, 300))
