"""Chess games behind URLs: archives by their table, plain records by ranges, packed chunks whole."""

# pyright: basic

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.containers.tar import END, member
from penstock.core.damage import collected_damage
from penstock.core.selection import Selection
from penstock.files import remote
from penstock.files.remote import filled
from penstock.locations.blocks import BLOCK
from penstock.locations.fetching import blocks_of
from penstock.locations.mirror import MIRRORS
from penstock_chess.formats.lc0 import source
from penstock_chess.formats.lc0.chunks import ChunkFile
from penstock_chess.formats.lc0.records import FRAME
from tests.locations.conftest import cache, clock  # noqa: F401 - fixtures
from tests.locations.server import Site, serving

GAMES, MOVES = 12, 40


def game(number: int) -> bytes:
    """Records that differ in every game and move, and do not compress."""
    rng = np.random.default_rng(number)
    records = np.frombuffer(rng.integers(0, 256, MOVES * FRAME.itemsize, np.uint8).tobytes(), FRAME).copy()
    records["version"], records["input_format"], records["rule50_count"] = 7, 1, np.arange(MOVES)
    records["visits"] = number
    return records.tobytes()


LAYOUTS = {
    "tar of packed chunks": {
        "games.tar": b"".join(member(f"training.{i}.gz", gzip.compress(game(i), 1)) for i in range(GAMES)) + END
    },
    "tar of plain chunks": {
        "games.tar": b"".join(member(f"training.{i}", game(i)) for i in range(GAMES)) + END,
    },
    "folder of packed chunks": {f"games/training.{i}.gz": gzip.compress(game(i), 1) for i in range(GAMES)},
    "folder of plain chunks": {f"games/training.{i}.gz": game(i) for i in range(GAMES)},
}
STEPS = np.array([3, 4, 7 * MOVES + 1, 11 * MOVES])


def fetched(site: Site) -> int:
    return sum((request.end or 0) + 1 - (request.begin or 0) for request in site.gets())


def read(data: penstock.EpisodeDataset, column: str, rows: np.ndarray) -> np.ndarray:
    field = data.spec[column]
    out = np.empty((len(rows), *field.shape), field.dtype)
    data.source.read_array(column, selection(rows), out)
    return out


def selection(rows: np.ndarray) -> Selection:
    one = np.ones(len(rows), np.int64)
    return Selection(one * 0, rows, one, np.arange(len(rows)), (len(rows), 1))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_games_are_read_by_ranges_where_the_layout_allows(layout: str, tmp_path: Path) -> None:
    files = LAYOUTS[layout]
    for name, raw in files.items():
        (tmp_path / "local" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "local" / name).write_bytes(raw)
    place = next(iter(files)).partition("/")[0]
    size = sum(map(len, files.values()))
    with serving(dict(files)) as site:
        with penstock.open(f"{site.url}/{place}"):
            opened = fetched(site)
        MIRRORS.cache().evict(0)
        site.seen.clear()
        with penstock.open(f"{site.url}/{place}") as remote, penstock.open(tmp_path / "local" / place) as local:
            again = fetched(site)
            MIRRORS.cache().evict(0)
            site.seen.clear()
            assert remote.spec.fields == local.spec.fields
            for column in ("probabilities", "visits", "rule50_count"):
                if column in remote.spec:
                    np.testing.assert_array_equal(read(remote, column, STEPS), read(local, column, STEPS))
            some = fetched(site)
            column = "rule50_count"
            ranges = remote.source.remote_ranges(column, selection(STEPS))
            MIRRORS.cache().evict(0)
            with filled(ranges):
                site.seen.clear()
                read(remote, column, STEPS)
                assert site.gets() == []
            loaders = [each.windows(4).shuffle(seed=1).loader(batch_size=32, threads=0) for each in (remote, local)]
            for found, wanted in zip(*loaders, strict=True):
                for name in wanted:
                    np.testing.assert_array_equal(found[name], wanted[name])
    if layout.startswith("tar"):
        assert opened >= size - BLOCK  # headers and counts are between the members
    else:
        assert opened <= size + GAMES * BLOCK
    assert again < size / 4  # to recognise the format
    if "plain" in layout:
        first = STEPS * FRAME.itemsize
        assert some <= 2 * BLOCK * len(blocks_of(first, first + FRAME.itemsize, 1 << 40))
    else:
        assert some <= size / 3  # three of twelve games


def test_small_files_are_asked_for_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    begin = source.begin_fetch

    def noted(ranges: list, *, most: bool) -> None:
        asked.append(len(ranges))
        begin(ranges, most=most)

    monkeypatch.setattr(source, "begin_fetch", noted)
    with serving(dict(LAYOUTS["folder of packed chunks"])) as site, penstock.open(f"{site.url}/games") as data:
        assert len(data) == GAMES
    assert asked == [GAMES]


def written(folder: Path, numbers: list[int]) -> None:
    """Packed games of an hour ago."""
    folder.mkdir(exist_ok=True)
    for number in numbers:
        path = folder / f"training.{number}.gz"
        path.write_bytes(gzip.compress(game(number), 1))
        os.utime(path, (1_700_000_000, 1_700_000_000 + number))


def test_frames_of_a_folder_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New, changed and damaged files are read again, and all values are those of a folder that was never opened."""
    read: list[str] = []
    stored = ChunkFile.stored

    def noted(self: ChunkFile, i: int) -> bytes:
        read.append(self.key)
        return stored(self, i)

    monkeypatch.setattr(ChunkFile, "stored", noted)
    monkeypatch.setattr("penstock_chess.formats.lc0.frame_counts.LEAST", 1)
    folder = tmp_path / "games"

    def opened(**options: Any) -> list[str]:
        read.clear()
        with collected_damage() as messages, penstock.open(folder, **options) as data:
            names = sorted(set(read))
            another = shutil.copytree(folder, tmp_path / f"copy{len(list(tmp_path.iterdir()))}")
            with penstock.open(another, **options) as copy:
                assert len(data) == len(copy)
                lost = [[entry.where for entry in each.source.account.left_out] for each in (data, copy)]
                assert lost[0] == lost[1]
                assert len(messages) == 2 * bool(lost[0])
                assert data.source.fingerprint == copy.source.fingerprint
                for e in range(0, len(data), 3):
                    np.testing.assert_array_equal(data[e].columns["visits"], copy[e].columns["visits"])
            return names

    def files(*numbers: int) -> list[str]:
        return sorted(f"training.{number}.gz" for number in numbers)

    written(folder, list(range(GAMES)))
    (folder / "training.3.gz").write_bytes(gzip.compress(game(3), 1)[:-9])  # cut
    assert opened() == files(*range(GAMES))
    always = set(opened())  # also what has the mark of another gzip somewhere in it, by chance
    assert "training.3.gz" in always
    assert len(always) <= 3
    assert opened() == sorted(always)
    written(folder, [4, 12])
    os.utime(folder / "training.4.gz", (1_700_009_999, 1_700_009_999))
    assert set(opened()) - always == set(files(4, 12)) - always
    always = set(opened())
    os.replace(folder / "training.5.gz", folder / "training.6.gz")
    assert set(opened()) - always == set(files(6)) - always
    monkeypatch.setattr(remote, "SETTLED", 10**15)
    (folder / "training.7.gz").write_bytes(gzip.compress(game(8)[: 20 * FRAME.itemsize], 1))  # now, so it is not kept
    for _ in range(2):
        assert set(opened()) - always == set(files(7)) - always
    place = next((tmp_path / "cache" / "frame-counts").iterdir())
    for damaged in (tmp_path / "cache" / "frame-counts").iterdir():
        damaged.write_bytes(place.read_bytes()[:-5])
    assert opened() == sorted(p.name for p in folder.iterdir())


def test_counts_of_a_folder_that_grows_behind_a_url_are_kept() -> None:
    objects = dict(LAYOUTS["folder of packed chunks"])
    with serving(objects) as site:
        with penstock.open(f"{site.url}/games"):
            pass
        objects["games/training.99.gz"] = gzip.compress(game(99), 1)
        MIRRORS.cache().evict(0)
        site.seen.clear()
        with penstock.open(f"{site.url}/games") as data:
            assert len(data) == GAMES + 1
            assert fetched(site) < sum(map(len, objects.values())) / 3  # the new game, and what is always unpacked
