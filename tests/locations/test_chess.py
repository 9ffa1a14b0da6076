"""Chess games behind URLs: archives by their table, plain records by ranges, packed chunks whole."""

# pyright: basic

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.containers.tar import END, member
from penstock.core.selection import Selection
from penstock.files.remote import filled
from penstock.formats.lc0 import source
from penstock.formats.lc0.records import FRAME
from penstock.locations.blocks import BLOCK
from penstock.locations.fetching import blocks_of
from penstock.locations.mirror import MIRRORS
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
            loaders = [
                penstock.Loader(each.windows(4).shuffle(seed=1), batch_size=32, threads=0) for each in (remote, local)
            ]
            for found, wanted in zip(*loaders, strict=True):
                for name in wanted:
                    np.testing.assert_array_equal(found[name], wanted[name])
    if layout.startswith("tar"):
        assert opened >= size - BLOCK  # headers and counts are between the members
        assert again < size / 4  # to recognise the format
    else:
        assert max(opened, again) <= size + GAMES * BLOCK
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
