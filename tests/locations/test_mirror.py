"""Mirrors: what is fetched and how often, errors of the network, killed processes, damage, and limits."""

# pyright: basic

from __future__ import annotations

import errno
import functools
import gc
import gzip
import io
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import rich.console
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.containers.tar.compress import unpack
from penstock.errors import ChangedObjectError, FormatError, RemoteError, UnsafeDataError
from penstock.files.mapping import map_file, read_mapped
from penstock.files.remote import file_state, filled, open_file, range_of, read_bytes, remote_file, whole_file
from penstock.files.sparse import room_of
from penstock.locations import fetching
from penstock.locations.blocks import BLOCK
from penstock.locations.fetching import GAPS, REQUEST, blocks_of, requests_of
from penstock.locations.mirror import MIRRORS, mirror
from penstock.locations.objects import ObjectInfo
from penstock.locations.retry import Retry
from tests.locations.server import Request, Site, serving

SIZE = 20 * BLOCK + 77
DATA = np.random.default_rng(0).integers(0, 256, SIZE, np.uint8)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving({"set/a.bin": DATA.tobytes(), "set/b.bin": b"small"}) as site:
        yield site


def in_another_process(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    """A process that has a mirror, `path`, and what tests import."""
    head = (
        "import sys, numpy as np\nfrom penstock.locations.mirror import mirror\n"
        "from penstock.files.remote import read_bytes\npath = mirror(sys.argv[1])\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", head + code, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_bytes_are_fetched_once_and_only_where_they_are_read(site: Site) -> None:
    path = mirror(site.url + "/set")
    assert sorted(p.name for p in path.iterdir()) == ["a.bin", "b.bin"]
    assert (path / "a.bin").stat().st_size == SIZE
    assert site.gets() == []
    shown = map_file(path / "a.bin", lazy=True)
    for _ in range(2):
        assert read_mapped(shown[5 : BLOCK + 5]).tolist() == DATA[5 : BLOCK + 5].tolist()
    assert [(r.begin, r.end) for r in site.gets()] == [(0, 2 * BLOCK - 1)]
    assert map_file(path / "a.bin").tobytes() == DATA.tobytes()
    fetched = sum((r.end or 0) + 1 - (r.begin or 0) for r in site.gets())
    assert fetched == SIZE


def test_files_are_read_like_local_ones(site: Site) -> None:
    path = mirror(site.url + "/set")
    assert read_bytes(path / "b.bin") == b"small"
    with open_file(path / "a.bin") as file:
        file.seek(SIZE - 3)
        assert file.read() == DATA[-3:].tobytes()
    assert file_state(path / "a.bin").size == SIZE
    assert file_state(path / "a.bin") == file_state(path / "a.bin")
    assert whole_file(path / "a.bin").read_bytes() == DATA.tobytes()
    assert remote_file(path) is None


def test_a_url_of_one_object_is_a_file(site: Site) -> None:
    path = mirror(site.url + "/set/b.bin")
    assert path.name == "b.bin"
    assert read_bytes(path) == b"small"


def test_a_large_fetch_shows_its_progress_on_a_terminal(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    terminal = functools.partial(rich.console.Console, file=shown, force_terminal=True, width=200)
    monkeypatch.setattr(rich.console, "Console", lambda stderr: terminal())
    monkeypatch.setattr(fetching, "SHOWN", 3 * BLOCK)
    path = mirror(f"{site.url}/set/a.bin")
    with filled([range_of(remote_file(path), 0, 2 * BLOCK)]):
        assert shown.getvalue() == ""
    whole_file(path)
    assert f"fetching {site.url}/set/a.bin" in shown.getvalue()


def test_a_file_that_is_unpacked_in_order_shows_one_bar(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests are small at first, and grow; the bar is that of the file, and ends with it."""
    advanced: list[int] = []

    @contextmanager
    def noted(names: set[str], nbytes: int) -> Iterator[Callable[[int], None]]:
        if nbytes == 0 or names != {f"{site.url}/set/big.tar.gz"} or nbytes < len(packed):
            yield lambda _: None
        else:
            yield advanced.append

    packed = gzip.compress(DATA.tobytes(), 0)
    site.objects["set/big.tar.gz"] = packed
    monkeypatch.setattr("penstock.locations.fetching.fetch_progress", noted)
    with (tmp_path / "out").open("wb") as out:
        unpack(mirror(f"{site.url}/set/big.tar.gz"), out, 1 << 30)
    assert (tmp_path / "out").read_bytes() == DATA.tobytes()
    assert sum(advanced) == len(packed)
    assert len(advanced) > 1


def test_failing_requests_are_repeated(site: Site) -> None:
    faults: dict[tuple[int | None, int | None], list[int | str]] = {}

    def fault(request: Request) -> int | str | None:
        left = faults.setdefault((request.begin, request.end), [503, "cut", 500])
        return left.pop() if left and request.begin is not None else None

    site.fault = fault
    assert read_bytes(mirror(site.url + "/set") / "a.bin") == DATA.tobytes()
    assert len(site.gets()) == 4 * len(faults) - sum(1 for key in faults if key[0] is None) * 4


def test_a_server_that_never_answers_is_an_error(site: Site) -> None:
    path = mirror(site.url + "/set")
    site.fault = lambda request: 500
    with pytest.raises(RemoteError, match=r"/set/b\.bin answers with status 500"):
        read_bytes(path / "b.bin")
    assert len(site.gets()) == 1 + Retry().max_retries
    site.fault = lambda request: None
    assert read_bytes(path / "b.bin") == b"small"


def test_a_server_that_ignores_ranges_sends_all_at_once(site: Site) -> None:
    site.ranges = False
    path = mirror(site.url + "/set")
    assert read_mapped(map_file(path / "a.bin", lazy=True)[SIZE - 9 :]).tolist() == DATA[-9:].tolist()
    before = len(site.gets())
    assert read_bytes(path / "a.bin") == DATA.tobytes()
    assert len(site.gets()) == before


def test_a_changed_object_says_reopen_and_then_is_read(site: Site) -> None:
    path = mirror(site.url + "/set")
    read_bytes(path / "b.bin")
    read_mapped(map_file(path / "a.bin", lazy=True)[:9])
    site.change("set/a.bin", DATA[::-1].tobytes())
    with pytest.raises(ChangedObjectError, match="changed since it was opened; open the dataset again"):
        read_bytes(path / "a.bin")
    again = mirror(site.url + "/set")
    assert again != path
    before = len(site.gets("set/b.bin"))
    assert read_bytes(again / "a.bin") == DATA[::-1].tobytes()
    assert read_bytes(again / "b.bin") == b"small"
    assert len(site.gets("set/b.bin")) == before


def test_a_removed_object_is_a_changed_one(site: Site) -> None:
    path = mirror(site.url + "/set")
    del site.objects["set/b.bin"]
    with pytest.raises(ChangedObjectError):
        read_bytes(path / "b.bin")


def test_processes_share_blocks(site: Site) -> None:
    read_bytes(mirror(site.url + "/set") / "a.bin")
    before = len(site.gets())
    other = in_another_process("sys.stdout.buffer.write(read_bytes(path / 'a.bin'))", site.url + "/set")
    assert other.communicate()[0] == DATA.tobytes()
    assert len(site.gets()) == before


def test_paths_travel_to_processes_that_were_not_told(site: Site) -> None:
    path = mirror(site.url + "/set")
    code = "import sys; from penstock.files.remote import read_bytes; import penstock.formats.base.format\n"
    code += "sys.stdout.buffer.write(read_bytes(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(path / "a.bin")], stdout=subprocess.PIPE, check=True)
    assert done.stdout == DATA.tobytes()


def test_forked_processes_read_on(site: Site) -> None:
    path = mirror(site.url + "/set")
    shown = map_file(path / "a.bin", lazy=True)
    read_mapped(shown[:10])
    child = os.fork()
    if child == 0:
        same = bytes(read_mapped(shown)) == DATA.tobytes()
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def ends(function: Callable[[], object]) -> bool:
    """Whether a function ends; it is called in a thread, which may be stuck."""
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(60)
    return not thread.is_alive()


def test_maps_are_collected_while_their_cache_is_locked(site: Site) -> None:
    """The garbage collector may run in a thread that is pinning, and unpins what maps in a cycle held."""
    path = mirror(site.url + "/set") / "a.bin"
    cycle: list[object] = [map_file(path)]
    cycle.append(cycle)
    del cycle

    def collect() -> None:
        with MIRRORS.cache().sharing():
            gc.collect()

    assert ends(collect)
    MIRRORS.cache().evict(0)
    assert room_of(path) == 0


def test_a_process_forked_during_eviction_keeps_no_lock(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    path = mirror(site.url + "/set")
    read_bytes(path / "a.bin")
    wait, go_on = os.pipe()
    children: list[int] = []

    def fork(*_: object) -> None:
        children.append(os.fork())
        if not children[0]:
            os.close(go_on)
            os.read(wait, 1)
            os._exit(0)

    monkeypatch.setattr(MIRRORS.cache(), "_evict", fork)
    MIRRORS.cache().evict(0)
    ended = ends(lambda: read_bytes(path / "b.bin"))
    os.close(go_on)
    os.waitpid(children[0], 0)
    os.close(wait)
    assert ended


def test_a_killed_process_leaves_whole_blocks(site: Site) -> None:
    """It is killed while it waits for the last of its requests; the blocks before are there."""
    waiting, go_on = threading.Event(), threading.Event()

    def fault(request: Request) -> None:
        if request.end is not None and request.end >= 10 * BLOCK:
            waiting.set()
            go_on.wait(120)

    site.fault = fault
    code = "from penstock.files.mapping import map_file, read_mapped\nmap_ = map_file(path / 'a.bin', lazy=True)\n"
    code += "read_mapped(map_[: 4 * 65536])\nread_mapped(map_)"
    killed = in_another_process(code, site.url + "/set")
    assert waiting.wait(120)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    go_on.set()
    site.fault = lambda request: None
    before = len(site.gets())
    assert read_bytes(mirror(site.url + "/set") / "a.bin") == DATA.tobytes()
    assert min(r.begin or 0 for r in site.gets()[before:]) >= 4 * BLOCK


def test_a_damaged_block_is_fetched_again(site: Site) -> None:
    writer = in_another_process("read_bytes(path / 'a.bin')", site.url + "/set")
    writer.communicate()
    path = mirror(site.url + "/set")
    with (path / "a.bin").open("r+b") as file:
        file.seek(3 * BLOCK + 5)
        file.write(bytes([DATA[3 * BLOCK + 5] ^ 1]))
    before = len(site.gets())
    assert read_bytes(path / "a.bin") == DATA.tobytes()
    assert [(r.begin, r.end) for r in site.gets()[before:]] == [(3 * BLOCK, 4 * BLOCK - 1)]


def test_a_full_disk_says_what_to_do(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    path = mirror(site.url + "/set")
    shown = map_file(path / "a.bin", lazy=True)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match=r"no room for remote data: .*PENSTOCK_CACHE"):
            read_mapped(shown)
    assert bytes(read_mapped(shown)) == DATA.tobytes()


def test_a_cache_smaller_than_the_data(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four threads read random ranges while others are evicted: nobody reads zeros, and the disk stays bounded."""
    monkeypatch.setattr("penstock.locations.blocks._LEAST_CHECK", BLOCK)
    monkeypatch.setenv("PENSTOCK_CACHE_BYTES", str(6 * BLOCK))
    path = mirror(site.url + "/set")
    shown = map_file(path / "a.bin", lazy=True)
    most: list[int] = []

    def read(seed: int) -> bool:
        rng = random.Random(seed)
        for _ in range(60):
            begin = rng.randrange(SIZE)
            end = min(begin + rng.randrange(2 * BLOCK), SIZE)
            if not np.array_equal(read_mapped(shown[begin:end]), DATA[begin:end]):
                return False
            most.append(room_of(path / "a.bin"))
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(4)))
    assert max(most) <= (6 + 4 * 4) * BLOCK
    assert len(site.gets()) > 40


def test_what_another_process_has_mapped_stays(site: Site) -> None:
    code = "from penstock.files.mapping import map_file\nkept = map_file(path / 'a.bin')\nprint('ready', flush=True)\n"
    other = in_another_process(code + "input()\nsys.stdout.buffer.write(kept.tobytes())", site.url + "/set")
    assert other.stdout is not None
    assert other.stdout.readline() == b"ready\n"
    MIRRORS.cache().evict(0)
    assert other.communicate(b"\n")[0] == DATA.tobytes()
    path = mirror(site.url + "/set") / "a.bin"
    assert room_of(path) >= SIZE
    MIRRORS.cache().evict(0)  # that process is gone
    assert room_of(path) == 0
    whole = map_file(path)
    MIRRORS.cache().evict(0)
    assert whole.tobytes() == DATA.tobytes()


def test_ranges_stay_while_they_are_needed(site: Site) -> None:
    file = remote_file(mirror(site.url + "/set") / "a.bin")
    assert file is not None
    with filled([range_of(file, 0, BLOCK)]):
        MIRRORS.cache().evict(0)
        assert len(site.gets()) == 1
        with filled([range_of(file, 0, BLOCK)]):
            pass
        assert len(site.gets()) == 1
    MIRRORS.cache().evict(0)
    with filled([range_of(file, 0, BLOCK)]):
        assert len(site.gets()) == 2


@pytest.mark.parametrize("name", ["../up", "a//b", "."])
def test_names_outside_of_the_folder_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "penstock.locations.fsspec_store.FsspecStore.list", lambda self, prefix, beginning: [ObjectInfo(name, 1, "v")]
    )
    with pytest.raises(UnsafeDataError, match="below the folder"):
        mirror("memory://hostile")


def test_a_damaged_description_is_an_error(site: Site) -> None:
    path = mirror(site.url + "/set")
    (path.parent / "mirror.json").write_text("{}")
    code = "import sys; import penstock.formats.base.format; from penstock.files.remote import read_bytes\n"
    code += "read_bytes(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path / "a.bin")], capture_output=True, text=True, check=False
    )
    assert "expected the description of a mirror" in done.stderr
    assert FormatError.__name__ in done.stderr


def test_windows_fetch_no_more_than_their_blocks(tmp_path: Path) -> None:
    """Random windows of a store of large rows, from a cache that is empty."""
    rows = np.random.default_rng(1).integers(0, 256, (4000, 3000), np.uint8)
    data = penstock.from_arrays({"observations/x": rows}, lengths=[100] * 40, align={"observations/x": "step"})
    penstock.convert(data, tmp_path / "set")
    files = {
        f"set/{p.relative_to(tmp_path / 'set')}": p.read_bytes() for p in (tmp_path / "set").rglob("*") if p.is_file()
    }
    with serving(files) as site, penstock.open(mirror(site.url + "/set")) as remote:
        plan = remote.windows(4).shuffle(seed=3)
        before = len(site.gets())
        batch = plan[:32]
        got = sum((r.end or 0) + 1 - (r.begin or 0) for r in site.gets()[before:])
        local = data.windows(4).shuffle(seed=3)
        assert np.array_equal(batch["observations/x"], local[:32]["observations/x"])
        starts = [np.flatnonzero((rows == window[0]).all(axis=1))[0] for window in batch["observations/x"]]
        blocks = blocks_of(np.array(starts) * 3000, np.array(starts) * 3000 + 12000, 1 << 40)
        assert got <= (1 + GAPS) * BLOCK * len(blocks) + BLOCK


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60, unique=True))
def test_requests_cover_all_blocks_within_the_budget(numbers: list[int]) -> None:
    blocks = np.sort(np.array(numbers))
    requests = requests_of(blocks, GAPS * len(blocks))
    covered = [b for lo, hi in requests for b in range(lo, hi)]
    assert len(covered) == len(set(covered)) <= (1 + GAPS) * len(blocks)
    assert set(covered) >= set(numbers)
    assert all(0 < hi - lo <= REQUEST for lo, hi in requests)


def test_an_epoch_fetches_each_block_once(tmp_path: Path) -> None:
    """Also blocks in the gaps of requests that other threads make."""
    rows = np.random.default_rng(0).integers(0, 256, (2000, 9000), np.uint8)
    data = penstock.from_arrays({"observations/x": rows}, lengths=[100] * 20, align={"observations/x": "step"})
    penstock.convert(data, tmp_path / "set")
    files = {str(p.relative_to(tmp_path)): p.read_bytes() for p in (tmp_path / "set").rglob("*") if p.is_file()}
    with serving(files) as site, penstock.open(f"{site.url}/set") as remote:
        MIRRORS.cache().evict(0)
        site.seen.clear()
        for _ in remote.steps().shuffle(seed=1).loader(batch_size=16, threads=3):
            pass
        got = sum((r.end or 0) + 1 - (r.begin or 0) for r in site.gets())
        assert rows.nbytes * 0.98 < got < rows.nbytes * 1.01
