"""Memory maps without descriptors, and files that are truncated while they are mapped."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.errors import FormatError, UnsafeDataError, WorkerError
from penstock.files import descriptors, mapping
from penstock.files.descriptors import PooledFile, PooledFiles
from penstock.files.mapping import MappedFiles, check_mapped, map_file
from penstock.formats.columns.format import ColumnsFormat
from penstock.formats.columns.writer import ColumnsWriter
from penstock.kernels import rows as rows_module
from penstock.kernels.rows import RowMap
from penstock.kernels.tiles import TileMap
from tests.descriptors import opened, opened_below


def maps_of(path: Path) -> int:
    return sum(str(path) in line for line in Path("/proc/self/maps").read_text().splitlines())


@pytest.fixture(autouse=True)
def _time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second, whenever the clock is looked at."""
    seconds = itertools.count(1.0)
    monkeypatch.setattr(mapping, "_clock", lambda: next(seconds))
    monkeypatch.setattr(mapping, "SHARE", float("inf"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "values"
    path.write_bytes(bytes(range(200)) * 50)
    return path


def test_a_map_holds_no_descriptor_and_goes_with_its_last_array(file: Path) -> None:
    whole = map_file(file)
    part, view = whole[100:200].reshape(2, 50), whole.data[7:9]
    assert opened_below(file) == 0
    assert part.tolist() == np.arange(100, 200).reshape(2, 50).tolist()
    assert not part.flags.writeable
    assert view.readonly
    del whole, part
    gc.collect()
    assert bytes(view) == b"\7\10"
    assert maps_of(file) == 1  # a memoryview keeps it as well
    del view
    gc.collect()
    assert maps_of(file) == 0


def test_nothing_is_unmapped_at_exit(file: Path) -> None:
    # Daemon threads may still copy then; what is left to `weakref.finalize` must not run.
    child = os.fork()
    if child == 0:
        import weakref

        weakref.finalize._registry.clear()  # type: ignore[attr-defined]  # those of the parent, as of temporary folders
        array = map_file(file)
        weakref.finalize._exitfunc()  # type: ignore[attr-defined]  # what `atexit` calls
        os._exit(0 if int(array.sum()) == 50 * sum(range(200)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_sizes_and_kinds_that_cannot_be_mapped_are_refused(file: Path, tmp_path: Path) -> None:
    assert map_file(file, 3).tolist() == [0, 1, 2]
    with pytest.raises(FormatError, match="expected at least 10001 bytes, got 10000"):
        map_file(file, 10001)
    (tmp_path / "empty").touch()
    assert len(map_file(tmp_path / "empty")) == 0
    with pytest.raises(FormatError, match="found none"):
        map_file(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    for odd in (tmp_path, tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(UnsafeDataError, match="regular file"):
            map_file(odd)
    (tmp_path / "link").symlink_to(file)
    assert len(map_file(tmp_path / "link")) == 10000
    with pytest.raises(UnsafeDataError, match="link"):
        map_file(tmp_path / "link", follow=False)


def test_errors_name_the_limit_that_was_reached(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(descriptors.os, "open", full)
        with pytest.raises(OSError, match=r"this process may have \d+.*ulimit -n") as found:
            map_file(file)
    assert (found.value.errno, found.value.filename) == (errno.EMFILE, str(file))
    error = mapping._map_error(errno.ENOMEM, file)
    assert "vm.max_map_count" in str(error)
    assert error.filename == str(file)


def rows_of(buffer: np.ndarray) -> Callable[[], object]:  # type: ignore[type-arg]
    rows = RowMap.build([buffer], np.array([10]), np.array([0]), np.array([0]), 100)
    one = np.zeros(1, np.int64)
    return lambda: rows.gather(one, one + 10, one, np.empty(1000, np.uint8))


def tiles_of(buffer: np.ndarray) -> Callable[[], object]:  # type: ignore[type-arg]
    zero = np.zeros(1, np.int64)
    rows, tile = np.array([0, 10]), np.array([[10, 100]])
    tiles = TileMap.build([buffer], (100,), 1, rows, tile, np.array([0, 1]), zero, zero, b"\0")
    return lambda: tiles.gather(zero, zero + 10, zero, np.empty((10, 100), np.uint8))


@pytest.mark.parametrize("reader", [rows_of, tiles_of])
def test_a_gather_from_a_file_that_was_truncated_is_an_error(file: Path, reader: Callable[..., Callable[[], object]]):
    read = reader(map_file(file))
    read()
    os.truncate(file, 9999)
    with pytest.raises(FormatError, match=r"expected at least 10000 bytes, got 9999: the file was truncated.*values"):
        read()
    with open(file, "ab") as whole_again:
        whole_again.write(b"x")
    read()


def test_a_file_that_was_replaced_or_deleted_is_read_as_it_was(file: Path, tmp_path: Path) -> None:
    array = map_file(file)
    (tmp_path / "short").write_bytes(b"x")
    os.replace(tmp_path / "short", file)
    check_mapped(array)
    file.unlink()
    check_mapped(array)
    assert array[100] == 100


def test_what_a_writer_had_not_committed_may_be_cut_off(file: Path) -> None:
    committed = map_file(file)[:500]
    os.truncate(file, 500)
    check_mapped(committed, committed[:0], np.zeros(3, np.uint8), committed.data, memoryview(b"x"))
    MappedFiles([committed[100:]]).check()
    os.truncate(file, 499)
    with pytest.raises(FormatError, match="expected at least 500 bytes, got 499"):
        MappedFiles([committed[:100], np.zeros(3, np.uint8), committed[100:]]).check()
    MappedFiles([committed[:100]]).check()


def test_a_file_that_was_just_looked_at_is_believed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array, looks, now = map_file(file), list[object](), [1.0]
    stat = os.stat

    def looked(path: Any) -> os.stat_result:
        looks.append(path)
        now[0] += 0.001
        return stat(path)

    monkeypatch.setattr(mapping.os, "stat", looked)
    monkeypatch.setattr(mapping, "_clock", lambda: now[0])
    monkeypatch.setattr(mapping, "SHARE", 0.02)
    check_mapped(array, array[:10])
    now[0] += 0.008
    check_mapped(array)
    assert len(looks) == 1
    now[0] += 0.002
    check_mapped(array, array)
    assert len(looks) == 2
    files = MappedFiles([map_file(file) for _ in range(30)])
    files.check()
    assert len(looks) == 32
    now[0] += 30 * 0.001 / mapping.SHARE - 0.01  # however many there are, they take a small share of the time
    files.check()
    assert len(looks) == 32
    now[0] += 0.02
    files.check()
    assert len(looks) == 62


def test_few_spans_look_at_their_own_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "MANY_FILES", 0)
    for i in range(24):
        (tmp_path / str(i)).write_bytes(bytes([i]) * 4)
    rows = RowMap.build([map_file(tmp_path / str(i)) for i in range(24)], *np.array([[4] * 24, range(24), [0] * 24]), 1)
    out, zero = np.empty(96, np.uint8), np.zeros(1, np.int64)
    os.truncate(tmp_path / "4", 0)
    rows.gather(zero + 2, zero + 10, zero, out)
    assert out[:10].tolist() == [0] * 2 + [1] * 4 + [2] * 4
    rows.gather(zero + 23, zero + 1, zero, out)
    for start, length in ((18, 1), (0, 96), (14, 4)):
        with pytest.raises(FormatError, match="truncated"):
            rows.gather(zero + start, zero + length, zero, out)
    for start, length in ((97, 1), (-1, 1), (95, 2), (1 << 62, 1 << 62)):  # as without files
        with pytest.raises(IndexError, match="expected rows within 0:96"):
            rows.gather(zero + start, zero + length, zero, out)


def store_of(path: Path) -> Path:
    penstock.convert(columns(3), path / "store", format="columns")
    return next(path.glob("store/segments/0/c1.values"))


def shard_of(path: Path) -> Path:
    penstock.convert(columns(3), path / "a.tar", format="webdataset")
    return path / "a.tar"


@pytest.mark.parametrize("made", [store_of, shard_of])
def test_a_loader_over_a_file_that_was_truncated_names_it(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    values = made(tmp_path)
    whole = values.read_bytes()
    with penstock.open(tmp_path / ("a.tar" if values.suffix == ".tar" else "store")) as source:
        loader = source.windows(2).loader(2, threads=1)
        assert [batch["c1"].shape for batch in loader] == [(2, 2)] * 3  # to the end: no thread is reading now
        os.truncate(values, 10)
        with pytest.raises(
            WorkerError, match=f"FormatError: .*the file was truncated while it was open.*{values.name}"
        ):
            list(loader)
        with open(values, "r+b") as again:  # the same file: it was not replaced
            again.write(whole)
        assert len(list(loader)) == 3


@pytest.fixture(params=[0, 200])
def few_files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    """A process that may open 24 files more, and has few or many files open already."""
    penstock.convert(columns(2), tmp_path / "warm", format="columns")  # imports and kernels need files as well
    with penstock.open(tmp_path / "warm") as data:
        assert len(data.windows(2)[:]["c0"])
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    others = [os.open(tmp_path, os.O_RDONLY) for _ in range(request.param)]
    limit = len(opened()) + 24
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for fd in others:
        os.close(fd)


def columns(number: int) -> penstock.EpisodeDataset:
    return penstock.from_arrays({f"c{i}": np.arange(8.0) + i for i in range(number)}, lengths=[4, 4])


@pytest.mark.usefixtures("few_files")
def test_stores_of_many_columns_need_few_descriptors(tmp_path: Path) -> None:
    penstock.convert(columns(20), tmp_path / "store", format="columns")
    opened = [penstock.open(tmp_path / "store") for _ in range(12)]
    mixed = penstock.mix([data.windows(2) for data in opened], [1] * len(opened))
    assert mixed[:24]["c19"].shape == (24, 2)
    for data in opened:
        data.close()


@pytest.mark.usefixtures("few_files")
def test_a_writer_of_more_columns_than_files_may_be_open_goes_on_where_it_stopped(tmp_path: Path) -> None:
    data = columns(50)
    for name, options in (("raw", {}), ("packed", {"compression": 1})):
        store = tmp_path / name
        with ColumnsWriter.create(store, data.spec, **options) as writer:
            writer.write_all(data)
        with ColumnsWriter(store, sync="close") as writer:
            writer.write_all(data)
        with penstock.open(store) as found:
            assert [e.columns["c49"].tolist() for e in found] == [
                [49 + i for i in range(first, first + 4)] for first in (0, 4, 0, 4)
            ]
        assert list(ColumnsFormat().check(store)) == []


def test_a_pooled_file_that_was_replaced_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "POOLED", 1)
    first, second = (PooledFile(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in "ab")
    with first as fd, first as same, second as other:
        assert fd == same != other
    (tmp_path / "new").touch()
    os.replace(tmp_path / "new", tmp_path / "a")
    with first as fd:  # still open
        os.pwrite(fd, b"x", 0)
    with second, PooledFile(tmp_path / "c", os.O_RDWR | os.O_CREAT):
        pass
    with pytest.raises(FormatError, match="got another: it was replaced"), first:
        pass
    for file in (first, second):
        file.close()
        file.close()


def test_pooled_files_close_for_others_where_the_process_has_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "_POOL", descriptors._Pool())  # without what earlier tests left idle
    files = [PooledFile(tmp_path / str(i), os.O_RDWR | os.O_CREAT) for i in range(3)]
    for file in files:
        with file:
            pass
    real, failures = os.open, [1, 1]

    def scarce(*args: Any) -> int:
        if failures:
            failures.pop()
            raise OSError(errno.EMFILE, "Too many open files")
        return real(*args)

    monkeypatch.setattr(descriptors.os, "open", scarce)
    with PooledFile(tmp_path / "d", os.O_RDWR | os.O_CREAT) as fd:
        os.pwrite(fd, b"x", 0)
    assert sum(file.fd < 0 for file in files) == 2
    for file in files:
        file.close()


def test_pooled_files_are_open_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "_POOL", descriptors._Pool())  # without what earlier tests left idle
    files = [PooledFile(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in "ab"]
    with PooledFiles(files), files[0] as fd:
        assert fd == files[0].fd != files[1].fd
        assert not descriptors._POOL.close_idle()
    (tmp_path / "c").mkdir()
    with pytest.raises(UnsafeDataError), PooledFiles([*files, PooledFile(tmp_path / "c", os.O_RDWR)]):
        pass
    assert files[0].group is files[1].group
    assert files[0].group.users == 0
    assert [descriptors._POOL.close_idle() for _ in range(2)] == [True, False]
    assert all(file.fd < 0 for file in files)


def test_threads_share_pooled_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "POOLED", 2)
    files = [PooledFile(tmp_path / str(i), os.O_RDWR | os.O_CREAT) for i in range(6)]

    def write(number: int) -> None:
        with files[number % 6] as fd:
            os.pwrite(fd, bytes([number % 6]), number)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(240)))
    for i, file in enumerate(files):
        file.close()
        assert set(file.path.read_bytes()[i::6]) == {i}
