"""Ranges that a loader asks for ahead: they are those that batches read, and change nothing but the time."""

# pyright: basic

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.core.selection import Selection
from penstock.errors import RemoteError, WorkerError
from penstock.files.remote import filled
from penstock.formats.joined import JoinedSource
from penstock.locations import fetching
from penstock.locations.blocks import BLOCK
from penstock.locations.fetching import GAPS, SOON, blocks_of
from penstock.locations.mirror import MIRRORS
from tests.fuzz.targets import targets, the_one
from tests.locations.server import Request, Site, serving
from tests.packages import of_installed

ROW = 9000


def stored(folder: Path, episodes: int = 20) -> tuple[penstock.EpisodeDataset, dict[str, bytes]]:
    """A column store whose rows begin with their numbers, and its files."""
    rows = np.random.default_rng(0).integers(0, 256, (100 * episodes, ROW), np.uint8)
    rows[:, :8] = np.arange(len(rows)).view(np.uint8).reshape(-1, 8)
    data = penstock.from_arrays({"observations/x": rows}, [100] * episodes, align={"observations/x": "step"})
    penstock.convert(data, folder / "set")
    return data, {str(p.relative_to(folder)): p.read_bytes() for p in (folder / "set").rglob("*") if p.is_file()}


def fetched(site: Site) -> int:
    """Bytes that were asked for."""
    return sum((request.end or 0) + 1 - (request.begin or 0) for request in site.gets())


@pytest.mark.parametrize("threads", [0, 2])
def test_an_epoch_is_fetched_ahead_in_long_requests(threads: int, tmp_path: Path) -> None:
    data, files = stored(tmp_path)
    with serving(files) as site, penstock.open(f"{site.url}/set") as remote:
        MIRRORS.cache().evict(0)
        site.seen.clear()
        loaders = [each.steps().shuffle(seed=1).loader(batch_size=16, threads=threads) for each in (remote, data)]
        for found, wanted in zip(*loaders, strict=True):
            assert np.array_equal(found["observations/x"], wanted["observations/x"])
        assert 0.98 < fetched(site) / (2000 * ROW) < 1.01
        assert len(site.gets()) < 1.3 * 2000 * ROW / (SOON * BLOCK)


def test_a_few_episodes_fetch_no_more_than_their_blocks(tmp_path: Path) -> None:
    _, files = stored(tmp_path)
    with serving(files) as site, penstock.open(f"{site.url}/set") as remote:
        MIRRORS.cache().evict(0)
        site.seen.clear()
        some = remote[[3, 17]].steps().shuffle(seed=2)
        rows = np.concatenate([batch["observations/x"][:, :8] for batch in some.loader(batch_size=16)])
        first = rows.copy().view(np.int64).ravel() * ROW
        assert fetched(site) <= (1 + GAPS) * BLOCK * (len(blocks_of(first, first + ROW, 1 << 40)) + 2)


NAMED = of_installed(
    [
        *("columns/ragged", "webdataset/npy", "minari/0.5.4 hdf5-nested-v0", "minari/0.5.4 arrow-nested-v0"),
        *("minari/0.5.4 parquet-nested-v0", "tables/parquet", "tables/arrow", "lerobot/new", "lerobot/images"),
        *("lerobot/video", "zarr/folder", "zarr/zip", "demos/robomimic", "demos/d4rl", "l5kit/zarr"),
    ]
)
IN_MEMORY = {
    "demos/robomimic": {"terminations", "truncations", "dones"},
    "demos/d4rl": {"terminations", "truncations"},
    "minari/0.5.4 hdf5-nested-v0": {"observations/b/t"},  # text of variable length: its places are in the file
}


@pytest.mark.parametrize("name", NAMED)
def test_formats_name_the_ranges_that_they_read(name: str, tmp_path: Path) -> None:
    target = targets()[name]
    for place, content in target.files().items():
        (tmp_path / "local" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "local" / place).write_bytes(content)
    place = the_one(tmp_path / "local").relative_to(tmp_path).as_posix()
    files = {f"local/{place}": content for place, content in target.files().items()}
    with serving(files) as site, penstock.open(f"{site.url}/{place}", format=target.format) as data:
        source = JoinedSource([data.source, data.source], names=["a", "b"])
        for path, field in data.spec.fields.items():
            rows = np.random.default_rng(0).permutation(int(source.rows(field.align)[-1]))
            one = np.ones(len(rows), np.int64)
            selection = Selection(one * 0, rows, one, np.arange(len(rows)), (len(rows), 1))
            ranges = source.remote_ranges(path, selection)
            assert ranges or path in IN_MEMORY.get(name, ()), path
            with filled(ranges):
                site.seen.clear()
                if field.ragged:
                    source.read_ragged(path, selection)
                else:
                    source.read_array(path, selection, np.empty((len(rows), *field.shape), field.dtype))
                assert site.gets() == [], path


def test_requests_that_fail_ahead_are_repeated_by_the_read(tmp_path: Path) -> None:
    data, files = stored(tmp_path, episodes=4)
    with serving(files) as site, penstock.open(f"{site.url}/set") as remote:
        MIRRORS.cache().evict(0)
        asked: dict[tuple[int | None, int | None], int] = {}

        def fault(request: Request) -> int | None:
            place = request.begin, request.end
            asked[place] = asked.get(place, 0) + 1
            return 403 if asked[place] == 1 else None  # not repeated by the request itself

        site.fault = fault
        loaders = [each.steps().shuffle(seed=1).loader(batch_size=8, threads=0) for each in (remote, data)]
        batches = iter(loaders[0])
        with pytest.raises(WorkerError) as caught:
            next(batches)
        assert isinstance(caught.value.__cause__, RemoteError)
        site.fault = lambda _: None
        for found, wanted in zip(*loaders, strict=True):
            assert np.array_equal(found["observations/x"], wanted["observations/x"])


def frames_and_actions() -> penstock.EpisodeDataset:
    rng = np.random.default_rng(0)
    columns = {
        "observations/image": rng.integers(0, 256, (1200, 24, 24, 3), np.uint8),
        "actions": rng.normal(size=(1200, 3)).astype(np.float32),
    }
    return penstock.from_arrays(columns, [60] * 20, align={"observations/image": "step"})


def write_robomimic(data: penstock.EpisodeDataset, folder: Path) -> None:
    with h5py.File(folder / "set", "w") as file:
        for e, episode in enumerate(data):
            group = file.create_group(f"data/demo_{e}")
            group.attrs["num_samples"] = len(episode)
            image = np.asarray(episode.columns["observations/image"])
            group.create_dataset("obs/image", data=image, chunks=(10, 24, 24, 3), compression="gzip")
            group.create_dataset("actions", data=episode.actions, chunks=(60, 3), compression="gzip")


def write_table(data: penstock.EpisodeDataset, folder: Path, kind: str) -> None:
    whole = [np.concatenate([np.asarray(e.columns[c]) for e in data]) for c in ("observations/image", "actions")]
    lists = [pa.FixedSizeListArray.from_arrays(pa.array(a.reshape(-1)), a[0].size) for a in whole]
    table = pa.table({"episode_index": np.arange(1200) // 60, "image": lists[0], "actions": lists[1]})
    if kind == "parquet":
        pq.write_table(table, folder / "set", row_group_size=30)
    else:
        with pa.ipc.new_file(pa.OSFile(str(folder / "set"), "wb"), table.schema) as out:
            out.write_table(table, max_chunksize=30)


WRITERS: dict[str, Callable[[penstock.EpisodeDataset, Path], object]] = {
    "columns": lambda data, out: penstock.convert(data, out / "set"),
    "webdataset": lambda data, out: penstock.convert(data, out / "set", format="webdataset"),
    "minari hdf5": lambda data, out: penstock.convert(data, out / "set", format="minari", fill_missing=True),
    "minari parquet": lambda data, out: penstock.convert(
        data, out / "set", format="minari", options={"data_format": "parquet"}, fill_missing=True
    ),
    "minari arrow": lambda data, out: penstock.convert(
        data, out / "set", format="minari", options={"data_format": "arrow"}, fill_missing=True
    ),
    "zarr": lambda data, out: penstock.convert(data, out / "set", format="zarr", options={"chunk_rows": 30}),
    "rlds": lambda data, out: penstock.convert(data, out / "set", format="rlds"),
    "robomimic": write_robomimic,
    "parquet": lambda data, out: write_table(data, out, "parquet"),
    "arrow": lambda data, out: write_table(data, out, "arrow"),
    "lerobot images": lambda data, out: penstock.convert(data, out / "set", format="lerobot", options={"fps": 10}),
    "lerobot video": lambda data, out: penstock.convert(
        data, out / "set", format="lerobot", options={"fps": 10, "cameras": "video", "codec": "libx264"}
    ),
}


@pytest.mark.parametrize("name", WRITERS)
def test_batches_are_asked_for_ahead_and_at_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All requests of an epoch are made by the threads that look ahead, several at a time, and batches are equal.

    The server answers no range before four of them wait. A loader without threads that read one batch after the other
    would wait for ever; here it would be an error after a minute.
    """
    WRITERS[name](frames_and_actions(), tmp_path)
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    asked: list[bool] = []

    def noted(*arguments: object, ahead: bool = False) -> ThreadPoolExecutor:
        asked.append(ahead)
        return fetching_pool(ahead=ahead)

    fetching_pool = fetching.pool
    monkeypatch.setattr(fetching, "pool", noted)
    monkeypatch.setattr(fetching, "REQUEST", 1)
    with (
        serving({p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in files}) as site,
        penstock.open(f"{site.url}/set") as remote,
        penstock.open(tmp_path / "set") as local,
    ):
        remote.steps()[:2]  # reads indexes, which stay
        MIRRORS.cache().evict(0)
        site.seen.clear()
        asked.clear()
        waiting = threading.Semaphore(0)
        four = threading.Event()
        videos = any(name.endswith(".mp4") for name in site.objects)  # timestamps are read before their packets
        site.fault = lambda request: (
            together(request, waiting, four) if not videos or request.name.endswith(".mp4") else None
        )
        loaders = [data.steps().shuffle(seed=1).loader(batch_size=100, threads=0) for data in (remote, local)]
        batches = 0
        for found, wanted in zip(*loaders, strict=True):
            batches += 1
            for column in wanted:
                np.testing.assert_array_equal(found[column], wanted[column])
        assert batches == 12
        assert four.is_set()
        assert sum(asked) >= 4
        assert asked.count(False) <= 1 + len(asked) // 10
        ranges = [(request.name, request.begin, request.end) for request in site.gets()]
        assert len(ranges) == len(set(ranges))


def together(request: Request, waiting: threading.Semaphore, four: threading.Event) -> None:
    """Let the first ranges go when four of them wait."""
    if request.begin is None or four.is_set():
        return
    waiting.release()
    if waiting._value >= 4:
        four.set()
    assert four.wait(60), "expected four requests at once"
