"""Writing games: read again by us, and by nothing but the standard library; kept, locked, refused."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.errors import DataError, FormatError, LockedError, SpecError
from penstock.testing.compare import assert_same_episode
from penstock.testing.examples import random_episode
from penstock.testing.writers import killed_after
from penstock_chess.formats.lc0 import FORMAT, FRAME, SPEC, Lc0Source, open_chunks, packed_chunk, write_chunk


def game(e: int, steps: int | None = None) -> Episode:
    """A random game known by its number."""
    episode = random_episode(np.random.default_rng(e), SPEC, e % 5 + 1 if steps is None else steps, e)
    columns = {**episode.columns, "input_format": np.ones(len(episode), "<u4")}
    return Episode(SPEC, columns, e)


def same(path: Path, games: list[Episode]) -> None:
    with Lc0Source(path) as source:
        assert len(source) == len(games)
        for found, expected in zip(source.episodes(), games, strict=True):
            assert_same_episode(found, expected)


def members_by_others(path: Path) -> list[bytes]:
    """The records of every chunk, by Python's own tar and gzip."""
    if path.is_dir():
        return [gzip.decompress(file.read_bytes()) for file in sorted(path.glob("*.gz"))]
    with tarfile.open(path) as tar:
        found = [tar.extractfile(info) for info in tar.getmembers()]
        return [gzip.decompress(file.read()) for file in found if file is not None]


@pytest.mark.parametrize("name", ["games.tar", "games"])
@pytest.mark.parametrize(("record", "size"), [("v6", 8356), ("v7", 8396)])
def test_what_is_written_is_read_by_others(tmp_path: Path, name: str, record: Any, size: int) -> None:
    games = [game(e) for e in range(4)]
    with FORMAT.create(tmp_path / name, SPEC, record=record) as writer:
        assert writer.write_all(games) == [0, 1, 2, 3]
    for found, expected in zip(members_by_others(tmp_path / name), games, strict=True):
        assert len(found) == len(expected) * size
        columns: Any = expected.columns
        for t in range(len(expected)):
            at = t * size
            assert struct.unpack_from("<II", found, at) == (int(record[1]), 1)
            assert struct.unpack_from("<104Q", found, at + 7440) == tuple(columns["planes"][t])
            assert found[at + 8 : at + 7440] == columns["probabilities"][t].tobytes()
            assert found[at + 8277] == columns["rule50_count"][t]
            assert found[at + 8280 : at + 8284] == columns["root_q"][t].tobytes()
            assert struct.unpack_from("<IHH", found, at + 8340) == tuple(
                columns[n][t] for n in ("visits", "played_idx", "best_idx")
            )
            if record == "v7":
                links = struct.unpack_from("<HH", found, at + 8360)
                assert links == (columns["opp_played_idx"][t], columns["next_played_idx"][t])


def test_version_6_leaves_out_what_it_has_no_place_for(tmp_path: Path) -> None:
    with FORMAT.create(tmp_path / "games.tar", SPEC, record="v6") as writer:
        writer.write(game(3))
    with Lc0Source(tmp_path / "games.tar") as source:
        found: Any = source.episode(0).columns
        expected: Any = game(3).columns
        for name in SPEC:
            if name in ("d_st", "opp_played_idx", "next_played_idx", "reserved"):
                assert not found[name].any()
            else:
                assert found[name].tobytes() == expected[name].tobytes()
        assert source.episode_metadata([0])[0]["version"] == 6


@pytest.mark.parametrize("name", ["games.tar", "games"])
def test_the_same_games_are_the_same_bytes_and_appending_goes_on(tmp_path: Path, name: str) -> None:
    games = [game(e) for e in range(6)]
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        path = tmp_path / place / name
        FORMAT.create(path, SPEC).close()
        for n in (0, 2, 4) if place == "a" else (0, 3):
            with FORMAT.append(path) as writer:
                numbers = [writer.write(g) for g in games[n : n + (2 if place == "a" else 3)]]
                assert numbers[0] == n
        same(path, games)
    assert members_by_others(tmp_path / "a" / name) == members_by_others(tmp_path / "b" / name)
    if name == "games.tar":
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert penstock.open(tmp_path / "a" / name).source.metadata == {}


@pytest.mark.parametrize("folder", ["gz", "v7", "tar", "formats"])
def test_files_of_others_written_again_are_the_same_records(golden: Path, tmp_path: Path, folder: str) -> None:
    with Lc0Source(golden / folder, order="key") as source, FORMAT.create(tmp_path / "a.tar", SPEC) as writer:
        writer.write_all(source.episodes())  # with the metadata that reading gave
        expected = [source.frames(e).tobytes() for e in range(len(source))]
    assert members_by_others(tmp_path / "a.tar") == expected


@pytest.mark.parametrize("level", [0, 1, 9])
def test_one_chunk_is_written_to_any_file(golden: Path, level: int) -> None:
    file = open_chunks(golden / "gz" / "training.700001.gz")
    assert file is not None
    frames, out = file.load(0), io.BytesIO()
    assert write_chunk(frames, out, level=level) == len(out.getvalue())
    assert out.getvalue() == packed_chunk(frames, level=level)
    assert out.getvalue()[4:8] == bytes(4)  # no time
    assert gzip.decompress(out.getvalue()) == frames.tobytes()
    assert frames.view(FRAME)["version"].max() == 7  # and what was handed in stays as it was


def test_games_are_converted_to_another_format(golden: Path, tmp_path: Path) -> None:
    with Lc0Source(golden / "gz") as source:
        penstock.convert(source, tmp_path / "store", format="columns")
        with penstock.open(tmp_path / "store") as store:
            for found, expected in zip(store, source.episodes(), strict=True):
                assert_same_episode(found, expected)


@pytest.mark.parametrize("name", ["games.tar", "games"])
def test_a_game_lasts_when_write_returns(tmp_path: Path, name: str) -> None:
    games = [game(e) for e in range(3)]
    with FORMAT.create(tmp_path / name, SPEC) as writer:
        for n, one in enumerate(games):
            writer.write(one)
            same(tmp_path / name, games[: n + 1])


@pytest.mark.parametrize("name", ["games.tar", "games"])
def test_a_kill_loses_no_game_that_was_written(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    FORMAT.create(path, SPEC).close()
    count = 0
    for kills in range(1, 4):
        count += len(killed_after(3 * kills, partial(endless, path, count)))
        with Lc0Source(path) as source:
            assert len(source) in (count, count + 1)  # the last may be whole, but not yet reported
            count = len(source)
            assert source.metadata == {}
            for e, found in enumerate(source.episodes()):
                assert_same_episode(found, game(e))
    with FORMAT.append(path) as writer:
        assert writer.write(game(count)) == count


def endless(path: Path, first: int) -> Iterator[int]:
    writer, e = FORMAT.append(path), first
    while True:
        yield writer.write(game(e))
        e += 1


@pytest.mark.parametrize("name", ["games.tar", "games"])
def test_one_writer_at_a_time_over_nothing_and_closed_twice(tmp_path: Path, name: str) -> None:
    writer = FORMAT.create(tmp_path / name, SPEC)
    with pytest.raises(LockedError):
        FORMAT.append(tmp_path / name)
    with pytest.raises(FileExistsError):
        FORMAT.create(tmp_path / name, SPEC)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write(game(0))
    FORMAT.append(tmp_path / name).close()


def test_other_columns_metadata_and_empty_games_are_refused(tmp_path: Path) -> None:
    few = Spec({name: SPEC[name] for name in ("planes", "probabilities")})
    with pytest.raises(SpecError, match="rule50_count"):
        FORMAT.create(tmp_path / "a.tar", few)
    with pytest.raises(DataError, match="author"):
        FORMAT.create(tmp_path / "a.tar", SPEC, {"author": "me"})
    with pytest.raises(DataError, match="v8"):
        FORMAT.create(tmp_path / "b.tar", SPEC, record="v8")
    assert not (tmp_path / "a.tar").exists()
    with FORMAT.create(tmp_path / "games.tar", SPEC) as writer:
        for wrong in (Episode(SPEC, game(0).columns, 0, {"seed": 3}), game(0, 0)):
            with pytest.raises(DataError):
                writer.write(wrong)
        with pytest.raises(SpecError):
            writer.write(random_episode(np.random.default_rng(0), few, 2))
        with pytest.raises(DataError):
            writer.update_metadata({"author": "me"})
        writer.write(game(1))
    same(tmp_path / "games.tar", [game(1)])


@pytest.mark.parametrize(
    "frames", [np.zeros((0, 8396), "u1"), np.zeros((2, 8356), "u1"), np.zeros(8396, "u1"), np.zeros((1, 8396), "i1")]
)
def test_what_are_no_frames_are_refused(frames: Any) -> None:
    with pytest.raises(DataError, match="8396"):
        packed_chunk(frames)
    with pytest.raises(DataError, match="v5"):
        packed_chunk(np.zeros((1, 8396), "u1"), "v5")  # pyright: ignore[reportArgumentType]


def test_a_folder_of_others_is_not_appended_to(golden: Path, tmp_path: Path) -> None:
    with FORMAT.create(tmp_path / "games", SPEC) as writer:
        writer.write(game(0))
    (tmp_path / "games" / "other.tar").write_bytes(next((golden / "tar").iterdir()).read_bytes())
    with pytest.raises(FormatError, match=r"other\.tar"):
        FORMAT.append(tmp_path / "games")
    (tmp_path / "games" / "other.tar").unlink()
    (tmp_path / "games" / "training.7.gz").write_bytes(packed_chunk(np.full((1, FRAME.itemsize), 1, "u1")))
    with FORMAT.append(tmp_path / "games") as writer:
        assert writer.write(game(1)) == 2
    assert (tmp_path / "games" / "training.000000008.gz").exists()
