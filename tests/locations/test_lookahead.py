"""Ranges that a loader asks for ahead: they are those that batches read, and change nothing but the time."""

# pyright: basic

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.core.selection import Selection
from penstock.errors import RemoteError, WorkerError
from penstock.files.remote import filled
from penstock.formats.joined import JoinedSource
from penstock.locations.blocks import BLOCK
from penstock.locations.fetching import GAPS, SOON, blocks_of
from penstock.locations.mirror import MIRRORS
from tests.fuzz.targets import targets, the_one
from tests.locations.server import Request, Site, serving

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
        loaders = [
            penstock.Loader(each.samples().shuffle(seed=1), batch_size=16, threads=threads) for each in (remote, data)
        ]
        for found, wanted in zip(*loaders, strict=True):
            assert np.array_equal(found["observations/x"], wanted["observations/x"])
        assert 0.98 < fetched(site) / (2000 * ROW) < 1.01
        assert len(site.gets()) < 1.3 * 2000 * ROW / (SOON * BLOCK)


def test_a_few_episodes_fetch_no_more_than_their_blocks(tmp_path: Path) -> None:
    _, files = stored(tmp_path)
    with serving(files) as site, penstock.open(f"{site.url}/set") as remote:
        MIRRORS.cache().evict(0)
        site.seen.clear()
        some = remote.take([3, 17]).samples().shuffle(seed=2)
        rows = np.concatenate([batch["observations/x"][:, :8] for batch in penstock.Loader(some, batch_size=16)])
        first = rows.copy().view(np.int64).ravel() * ROW
        assert fetched(site) <= (1 + GAPS) * BLOCK * (len(blocks_of(first, first + ROW, 1 << 40)) + 2)


NAMED = ["columns/ragged", "webdataset/npy", "minari/0.5.4 hdf5-nested-v0"]


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
            if field.ragged:
                continue
            rows = np.random.default_rng(0).permutation(int(source.rows(field.align)[-1]))
            one = np.ones(len(rows), np.int64)
            selection = Selection(one * 0, rows, one, np.arange(len(rows)), (len(rows), 1))
            ranges = source.remote_ranges(path, selection)
            assert ranges
            with filled(ranges):
                site.seen.clear()
                source.read_array(path, selection, np.empty((len(rows), *field.shape), field.dtype))
                assert site.gets() == []


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
        loaders = [penstock.Loader(each.samples().shuffle(seed=1), batch_size=8, threads=0) for each in (remote, data)]
        batches = iter(loaders[0])
        with pytest.raises(WorkerError) as caught:
            next(batches)
        assert isinstance(caught.value.__cause__, RemoteError)
        site.fault = lambda _: None
        for found, wanted in zip(*loaders, strict=True):
            assert np.array_equal(found["observations/x"], wanted["observations/x"])
