"""Archives of games: every frame as it was, read alone; written by conversions and by others, damaged, growing."""

# pyright: basic

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import penstock
from lc0.test_writing import game
from penstock.core.episode import Episode
from penstock.errors import DataError, FormatError, SpecError
from penstock.formats.base.format import recognise
from penstock.formats.base.source import Source
from penstock.testing.compare import assert_same_episode
from penstock.testing.examples import Example
from penstock.testing.sources import SourceContract
from penstock_chess.compact import encode
from penstock_chess.formats.archive import FORMAT, ArchiveSource, ArchiveWriter
from penstock_chess.formats.lc0 import FRAME, SPEC, Lc0Source, open_chunks, packed_chunk
from penstock_chess.kernels.rows import decode_field
from penstock_chess.tensors import ChessTensors

CHUNKS = ("gz/training.700001.gz", "v7/training.700027.gz", "old/v3.gz", "old/v4.gz", "old/v5.gz")


class TestContract(SourceContract):
    examples: ClassVar[Sequence[Example]] = (Example("archive", SPEC, (3, 1, 7, 2)), Example("empty", SPEC, (0, 2, 0)))

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        with FORMAT.create(path / "games", SPEC) as writer:
            writer.write_all(episodes)
        return FORMAT.open(path / "games")


def loaded(path: Path) -> Any:
    source = open_chunks(path)
    assert source is not None
    return source.load(0)


def random_frames(seed: int, n: int) -> Any:
    """Frames of any bytes: each value of a field is NaN or zero at times, and all moves may be legal."""
    random = np.random.default_rng(seed)
    frames = random.integers(0, 256, (n, FRAME.itemsize), np.uint8)
    frames[random.random(n) < 0.3] = 0
    policy = frames.view(FRAME)["probabilities"][:, 0]
    policy[::2] = np.where(random.random(policy[::2].shape) < 0.02, 0.25, -1)
    policy[1::4] = np.nan
    return frames


@pytest.mark.parametrize("name", CHUNKS)
def test_frames_of_every_version_come_back_and_a_conversion_keeps_them(golden: Path, tmp_path: Path, name: str) -> None:
    frames = loaded(golden / name)
    report = penstock.convert(golden / name, tmp_path / "games", format="lc0-archive", require="lossless")
    assert report.notes == ()
    with penstock.open(tmp_path / "games") as found, penstock.open(golden / name) as games:
        assert isinstance(found.source, ArchiveSource)
        assert found.source.frames(0).tobytes() == frames.tobytes()
        assert_same_episode(found[0], Episode(SPEC, games[0].columns, 0, dict(games[0].metadata)))
        version = games[0].metadata["version"]
    if version < 6:
        return
    penstock.convert(tmp_path / "games", tmp_path / "back", format="lc0")
    with Lc0Source(tmp_path / "back") as back:
        packed = packed_chunk(back.frames(0), "v6" if version == 6 else "v7")
    assert gzip.decompress(packed) == gzip.decompress((golden / name).read_bytes())


def test_all_games_of_all_formats_come_back_in_any_order(golden: Path, tmp_path: Path) -> None:
    penstock.convert(golden / "formats", tmp_path / "games", format="lc0-archive")
    with Lc0Source(golden / "formats") as games, penstock.open(tmp_path / "games") as archive:
        picks = np.random.default_rng(7).integers(0, games.steps, 300)
        loaders = [dataset.windows(1)[picks] for dataset in (penstock.EpisodeDataset(games), archive)]
        for column in SPEC:
            assert loaders[0][column].tobytes() == loaders[1][column].tobytes(), column


@pytest.mark.parametrize("seed", range(4))
def test_odd_frames_come_back_bit_for_bit(tmp_path: Path, seed: int) -> None:
    games = [random_frames(seed, n) for n in (5, 0, 1, 17)]
    writer = ArchiveWriter.create(tmp_path / "games", SPEC)
    with writer:
        assert [writer.write_frames(frames) for frames in games] == [0, 1, 2, 3]
    with ArchiveSource(tmp_path / "games") as source:
        for e, frames in enumerate(games):
            assert source.frames(e).tobytes() == frames.tobytes()
            episode = source.episode(e)
            for name in SPEC:
                expected = np.ascontiguousarray(frames.view(FRAME)[name][:, 0])
                assert np.asarray(episode.columns[name]).tobytes() == expected.tobytes()
        assert source.frame_rows(np.array([22, 8, 8])).tobytes() == games[3][[16, 2, 2]].tobytes()
        assert source.compact_rows(np.arange(23)).blobs() == [blob for each in games for blob in encode(each).blobs()]
        with pytest.raises(IndexError):
            source.episode(4)


def test_compact_rows_are_the_column_of_the_store(golden: Path, tmp_path: Path) -> None:
    frames = loaded(golden / CHUNKS[0])
    writer = ArchiveWriter.create(tmp_path / "games", SPEC)
    with writer:
        writer.write_frames(frames)
    with penstock.open(tmp_path / "games", format="columns") as store:
        tensors = ChessTensors("bits")
        rows = store.windows(1).loader(batch_size=len(frames), drop_last=False)
        (batch,) = [tensors.decode(batch["compact_row"].reshape(len(frames))) for batch in rows]
    for name, array in tensors.decode(frames).items():
        np.testing.assert_array_equal(batch[name], array)


def test_a_reader_sees_games_that_are_appended(tmp_path: Path) -> None:
    writer = ArchiveWriter.create(tmp_path / "games", SPEC)
    games = penstock.open(tmp_path / "games")
    with games, writer:
        for e in range(3):
            assert len(games) == e
            writer.write(game(e))
            games = games.refresh()
            assert np.array_equal(games[e]["planes"], np.asarray(game(e).columns["planes"]))


def test_what_was_cut_off_is_no_game_and_the_next_writer_removes_it(tmp_path: Path) -> None:
    with ArchiveWriter.create(tmp_path / "games", SPEC) as writer:
        writer.write_all([game(0), game(1)])
    (values,) = (tmp_path / "games").rglob("*.values")
    whole = values.read_bytes()
    values.write_bytes(whole + b"half of a game")
    assert [finding.name for finding in penstock.check(tmp_path / "games").findings] == ["torn-tail"]
    with FORMAT.append(tmp_path / "games") as writer:
        assert writer.write(game(2)) == 2
    assert values.read_bytes().startswith(whole)
    assert not penstock.check(tmp_path / "games", deep=True).findings


def test_damage_is_told(tmp_path: Path) -> None:
    with ArchiveWriter.create(tmp_path / "games", SPEC) as writer:
        writer.write_all([game(0), game(1)])
    (values,) = (tmp_path / "games").rglob("*.values")
    raw = bytearray(values.read_bytes())
    second = int(np.fromfile(values.with_suffix(".offsets"), "<i8")[len(game(0)) + 1])
    raw[second + 117] ^= 2  # the layout of the second row of the second game
    values.write_bytes(raw)
    found = penstock.check(tmp_path / "games", deep=False).findings
    assert [(one.name, one.where) for one in found] == [("checksum", "episode 1"), ("unreadable", "episode 1")]
    with ArchiveSource(tmp_path / "games") as source:
        assert_same_episode(source.episode(0), game(0))
        damaged = np.array([len(game(0)), len(game(0)) + 1])
        for read in (lambda: source.episode(1), lambda: source.frames(1), lambda: source.compact_rows(damaged)):
            with pytest.raises(FormatError, match=r"penstock check.*frame 1 of episode 1"):
                read()


def test_other_columns_and_options_are_refused(tmp_path: Path) -> None:
    other = penstock.from_arrays({"rewards": np.zeros(2)}, lengths=[2])
    with pytest.raises(SpecError, match="rewards"):
        FORMAT.create(tmp_path / "games", other.spec)
    with pytest.raises(DataError, match="sync"):
        FORMAT.create(tmp_path / "games", SPEC, sync="never")
    with FORMAT.create(tmp_path / "good", SPEC) as writer:
        writer.write(game(0))
    assert recognise(tmp_path / "good")[0] is FORMAT
    with FORMAT.open(tmp_path / "good", episodes=0) as source:
        assert len(source) == 0


def test_fields_of_checked_rows_are_copied_and_stay_within_the_rows() -> None:
    frames = random_frames(5, 9)
    rows, places = encode(frames), np.array([0, 3, 8, 5])
    for name in SPEC:
        byte, wanted = int((FRAME.fields or {})[name][1]), frames.view(FRAME)[name][places, 0]
        for is_checked in (False, True):
            out = np.zeros((9, SPEC[name].row_bytes), np.uint8)
            assert decode_field(rows.values, rows.offsets, places, byte, out, is_checked=is_checked) == -1
            assert out[places].tobytes() == wanted.tobytes()
            assert not out[[1, 2, 4, 6, 7]].any()
    one, out = np.array([1]), np.zeros((2, 4), np.uint8)
    for begin, end in ((-8, 200), (0, 119), (0, 1 << 40), (50, 10)):
        offsets = np.array([0, begin, end])
        assert decode_field(rows.values, offsets, one, 0, out, is_checked=True) == 1
