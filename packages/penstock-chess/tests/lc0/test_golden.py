"""Files that the originals wrote, against what their own programs read from them."""

from __future__ import annotations

import gzip
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import penstock
from penstock.core.selection import Selection
from penstock.formats.base.format import recognise
from penstock_chess.formats.lc0 import FRAME, RECORDS, SPEC, ChunkError, ChunkFile, Lc0Source, open_chunks
from penstock_chess.formats.lc0 import source as source_module

Rows = npt.NDArray[np.void]


def opened(path: Path, **options: Any) -> ChunkFile:
    found = open_chunks(path, **options)
    assert found is not None
    return found


def rows(paths: list[Path], **options: Any) -> Rows:
    """Every frame of the files, in order."""
    files = [opened(path, **options) for path in paths]
    return np.concatenate([file.load(i) for file in files for i in range(len(file))]).view(FRAME)[:, 0]


def planes(frames: Rows) -> npt.NDArray[np.float32]:
    """`[n, 104, 8, 8]` the masks as the networks see them: rank by rank, file a first."""
    words = np.ascontiguousarray(frames["planes"])
    return np.unpackbits(words.view(np.uint8).reshape(len(frames), 104, 8)[..., None], -1).astype("f4")


def values(frames: Rows) -> npt.NDArray[np.float32]:
    """`[n, 6, 3]` result, best, played, orig, root and short-term: q, d, moves left."""
    names = [("result_q", "result_d", "plies_left"), *((f"{n}_q", f"{n}_d", f"{n}_m") for n in _FOUR)]
    table = [[frames[name] for name in row] for row in names]
    table.append([frames["q_st"], frames["d_st"], np.full(len(frames), np.nan, "f4")])
    return np.array(table, "f4").transpose(2, 0, 1)


_FOUR = ("best", "played", "orig", "root")


def same(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    """Equal in every bit, but that any NaN equals any other."""
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), nan)
    assert np.where(nan, 0, found).tobytes() == np.where(nan, 0, expected).astype(found.dtype).tobytes()


@pytest.mark.parametrize("folder", ["gz", "tar", "v7"])
def test_frames_hold_what_the_cpp_loader_gives(golden: Path, folder: str) -> None:
    found = rows(sorted((golden / folder).iterdir()))
    with np.load(golden / "expected" / f"{folder}_raw.npz") as expected:
        same(found["probabilities"], expected["loader_probs"])
        same(values(found), expected["loader_values"])
        if "loader_planes" in expected:
            same(planes(found), expected["loader_planes"][:, :104])


@pytest.mark.parametrize("name", ["old_v3", "old_v4", "old_v5", "gz_raw", "tar_raw"])
def test_frames_hold_what_the_python_parser_gives(golden: Path, name: str) -> None:
    folder, version = name.split("_")
    paths = [golden / "old" / f"{version}.gz"] if folder == "old" else sorted((golden / folder).iterdir())
    found = rows(paths)
    with np.load(golden / "expected" / f"{name}.npz") as expected:
        same(planes(found), expected["parser_planes"][:, :104])
        same(found["probabilities"], expected["parser_probs"])
        same(found["plies_left"], expected["parser_plies_left"])
        for q, d, column in (("result_q", "result_d", "parser_winner"), ("best_q", "best_d", "parser_best_q")):
            win, draw = found[q].astype("f8"), found[d].astype("f8")
            wdl = np.stack([0.5 * (1 - draw + win), draw, 0.5 * (1 - draw - win)], 1)
            same(wdl.astype("f4"), expected[column])
    assert set(found["version"].tolist()) == {7}


@pytest.mark.parametrize("input_format", [2, 3, 4, 5, 132, 133])
def test_all_input_formats_are_read(golden: Path, input_format: int) -> None:
    with np.load(golden / "expected" / f"format_{input_format}.npz") as expected:
        found = rows([golden / "formats" / name for name in expected["chunk_file"].tolist()])
        assert set(found["input_format"].tolist()) == {input_format}
        same(planes(found), expected["parser_planes"][:, :104])
        same(found["probabilities"], expected["parser_probs"])


def test_version_6_is_copied_and_the_rest_is_zero_or_missing(golden: Path) -> None:
    path = golden / "gz" / "training.700001.gz"
    raw = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8).reshape(-1, 8356)
    zero, nan = opened(path).load(0), opened(path, missing_st="nan").load(0)
    np.testing.assert_array_equal(zero[:, 4:8356], raw[:, 4:])
    assert not zero[:, 8356:].any()
    np.testing.assert_array_equal(nan[:, 4:8352], raw[:, 4:8352])
    missing = nan.view(FRAME)[:, 0]
    assert np.isnan(missing["q_st"]).all()
    assert np.isnan(missing["d_st"]).all()
    assert (missing["opp_played_idx"] == 65535).all()
    assert (missing["next_played_idx"] == 65535).all()
    assert not missing["reserved"].any()


@pytest.mark.parametrize("missing", ["zero", "nan"])
def test_version_7_is_the_file_itself(golden: Path, missing: Any) -> None:
    path = golden / "v7" / "training.700001.gz"
    assert opened(path, missing_st=missing).load(0).tobytes() == gzip.decompress(path.read_bytes())


def test_a_q_st_that_version_6_has_is_kept(raw: Any, tmp_path: Path) -> None:
    records = np.frombuffer(raw(3, 6), RECORDS[6]).copy()
    records["q_st"] = [0.5, 0, -0.25]
    (tmp_path / "training.1.gz").write_bytes(records.tobytes())
    found = rows([tmp_path / "training.1.gz"], missing_st="nan")
    np.testing.assert_array_equal(found["q_st"], np.array([0.5, np.nan, -0.25], "f4"))
    assert rows([tmp_path / "training.1.gz"])["q_st"].tolist() == [0.5, 0, -0.25]


@pytest.mark.parametrize(("version", "unknown"), [(3, True), (4, True), (5, True), (6, False)])
def test_what_old_versions_do_not_have_is_said_to_be_missing(
    raw: Any, tmp_path: Path, version: int, unknown: bool
) -> None:
    records = np.frombuffer(raw(3, version), RECORDS[version]).copy()
    if unknown:
        records["dummy"] = [1, 0, 255]
        records["invariance_info"] = [9, 8, 7]
    (tmp_path / "a.gz").write_bytes(gzip.compress(records.tobytes()))
    found = rows([tmp_path / "a.gz"])
    assert np.isnan(found["orig_q"]).all() == np.isnan(found["played_d"]).all() == unknown
    assert found["input_format"].tolist() == [1, 1, 1]
    assert (found["best_idx"] == 65535).all() == unknown
    if unknown:
        assert found["result_q"].tolist() == [1, 0, -1]
        assert found["result_d"].tolist() == [0, 1, 0]
        assert found["plies_left"].tolist() == ([9, 8, 7] if version < 5 else [0, 0, 0])
        assert found["invariance_info"].tolist() == ([0, 0, 0] if version < 5 else [9, 8, 7])


@pytest.mark.parametrize("folder", ["gz", "tar", "v7", "old", "formats"])
def test_games_are_episodes(golden: Path, folder: str) -> None:
    files = sorted((golden / folder).iterdir())
    expected = rows(files)
    for path in (golden / folder, *files):
        assert recognise(path)[0].name == "lc0"
    with Lc0Source(golden / folder, order="key") as source:
        assert source.steps == len(expected)
        for name in SPEC:
            found = np.concatenate([np.asarray(episode.columns[name]) for episode in source.episodes()])
            assert found.tobytes() == np.ascontiguousarray(expected[name]).tobytes(), name


def test_episodes_say_where_they_are_from(golden: Path) -> None:
    (path,) = (golden / "tar").iterdir()
    games = penstock.open(path)
    with np.load(golden / "expected" / "tar_raw.npz") as expected:
        assert [len(game) for game in games] == expected["chunk_frames"].tolist()
    assert dict(games[1].metadata) == {
        "file": "training-run1-test80-20240101-0042.tar",
        "member": "training-run1-test80-20240101-0042/training.700026.gz",
        "frames": 73,
        "version": 6,
    }
    old = penstock.open(golden / "old")
    assert [game.metadata["version"] for game in old] == [3, 4, 5]
    assert [game.metadata["member"] for game in old] == [None] * 3
    assert len(old.filter("version >= 4")) == 2


def test_shuffled_positions_inflate_each_game_once_an_epoch(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    load = ChunkFile.load
    monkeypatch.setattr(ChunkFile, "load", lambda self, i: loads.append(i) or load(self, i))
    (path,) = (golden / "tar").iterdir()
    samples = penstock.open(path).steps().select_columns("rule50_count", "plies_left").shuffle(seed=3, block=64, pool=2)
    loader = samples.loader(batch_size=16, threads=1)
    seen = np.concatenate([batch["plies_left"] for batch in loader])
    assert sorted(loads) == [0, 1, 2]
    assert sorted(seen.tolist()) == sorted(rows([path])["plies_left"].tolist())


def test_threads_that_want_one_game_inflate_it_once(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    load, together = ChunkFile.load, threading.Barrier(4)
    monkeypatch.setattr(ChunkFile, "load", lambda self, i: loads.append(i) or load(self, i))
    source = Lc0Source(golden / "gz")

    def read() -> None:
        together.wait(60)
        source.episode(1)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == [0]  # the only chunk of the second file


@pytest.mark.parametrize("most", [1 << 13, 3])
def test_columns_that_are_read_together_unpack_a_game_once(
    golden: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(source_module, "MOST_ROWS", most)
    loads: list[int] = []
    load = ChunkFile.load

    def counted(self: ChunkFile, i: int, *args: Any) -> Any:
        loads.append(i)
        return load(self, i, *args)

    with Lc0Source(golden / "formats") as kept, Lc0Source(golden / "formats", cache_bytes=0) as games:
        picks = np.random.default_rng(1).integers(0, games.steps, 60)
        expected = penstock.EpisodeDataset(kept).windows(1)[picks]
        monkeypatch.setattr(ChunkFile, "load", counted)
        for _ in range(2):
            found = penstock.EpisodeDataset(games).windows(1)[picks]
            for name in SPEC:
                assert found[name].tobytes() == expected[name].tobytes(), name
        unpacked = 2 * len(np.unique(np.searchsorted(games.offsets, picks, "right")))
        assert len(loads) == unpacked * (1 if most > 60 else len(SPEC))


def test_columns_behind_damage_are_refused_each_time(golden: Path, tmp_path: Path) -> None:
    raw = bytearray((golden / "gz/training.700027.gz").read_bytes())
    raw[len(raw) // 2] ^= 255
    (tmp_path / "training.1.gz").write_bytes(raw)
    with Lc0Source(tmp_path / "training.1.gz") as games:
        one = Selection.of_rows(np.arange(2))
        for _ in range(2):
            with pytest.raises(ChunkError):
                games.read(["planes"], one)
