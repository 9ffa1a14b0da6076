"""Atari demonstrations: against what the original loads of its own file, whose trajectories it glues together."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.spaces import Box
from penstock.core.spec import Field, Spec
from penstock.errors import DataError, FormatError, UnsafeDataError
from penstock.formats.base.source import Source
from penstock.testing.examples import Example
from penstock.testing.sources import SourceContract
from penstock_imitation.formats.native import FORMAT
from penstock_imitation.formats.native.atari import AtariKind, read_atari

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "ilr" / "native"
FILE = GOLDEN / "atari" / "pong_synth.npz"


def run(states: int, seed: int = 0, side: int = 6, **changed: Any) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    frames = [rng.integers(0, 256, (side, side, 4), dtype=np.uint8) for _ in range(states)]
    actions = list(rng.integers(0, 6, states))
    return {"states": frames, "actions": actions, "dones": [np.bool_(False)] * states} | changed


def objects(runs: Sequence[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(runs), object)
    array[:] = runs
    return array


def write(path: Path, runs: Sequence[Any]) -> Path:
    with path.open("wb") as file:
        np.savez_compressed(file, objects(runs))
    return path


def sha(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def test_it_differs_where_the_original_glues_trajectories_together() -> None:
    """Equal: observations, next observations, actions. Different: the original has no done at all, for it cuts off the
    last one of each trajectory; here every trajectory ends."""
    with np.load(GOLDEN / "expected" / "atari.npz") as stored:
        expected = dict(stored)
    with penstock.open(FILE).source as source:
        episodes = list(source.episodes())
        told = source.episode_metadata(range(3))
        assert source.metadata == {"kind": "atari", "color_space": "GRAY"}
    assert [sha(o) for e in episodes for o in e.observations[:-1]] == expected["obs_sha"].tolist()
    assert [sha(o) for e in episodes for o in e.observations[1:]] == expected["next_obs_sha"].tolist()
    np.testing.assert_array_equal(np.concatenate([e.actions for e in episodes]), expected["acts"])
    assert not expected["dones"].any()
    assert [len(e) for e in episodes] == [19, 11, 14]
    for episode in episodes:
        assert episode.truncations.tolist() == [False] * (len(episode) - 1) + [True]
        assert not episode.terminations.any()
    assert [one["final_done"] for one in told] == [False, True, True]
    assert [one["final_action"] for one in told] == [2, 2, 2]
    assert [one["trajectory"] for one in told] == [0, 1, 2]


def test_the_newest_frame_alone() -> None:
    with read_atari(FILE) as stacks, read_atari(FILE, frames="newest") as newest:
        assert newest.spec["observations"] == Field(np.dtype("u1"), (1, 84, 84), "boundary")
        for a, b in zip(stacks.episodes(), newest.episodes(), strict=True):
            np.testing.assert_array_equal(a.observations[:, 3:], b.observations)
    with pytest.raises(DataError, match="newest"):
        read_atari(FILE, frames="oldest")


def test_a_file_of_one_array(tmp_path: Path) -> None:
    """The form that the original cannot load."""
    path = tmp_path / "runs.npy"
    runs = [run(4, 1), run(3, 2)]
    np.save(path, objects(runs), allow_pickle=True)
    assert AtariKind().recognises(path)
    with penstock.open(path).source as source:
        assert np.diff(source.offsets).tolist() == [3, 2]
        for value, episode in zip(runs, source.episodes(), strict=True):
            np.testing.assert_array_equal(episode.observations, np.stack(value["states"]).transpose(0, 3, 1, 2))


def test_a_done_within_a_list_ends_an_episode(tmp_path: Path) -> None:
    dones = [False, False, True, False, False, True]
    rewards = [float(i) for i in range(6)]
    value = run(6, dones=dones, rewards=rewards, level="easy", seed_of=3)
    with read_atari(write(tmp_path / "a.npz", [value])) as source:
        assert np.diff(source.offsets).tolist() == [3, 2]
        first, second = source.episodes()
    assert (first.terminations.tolist(), first.truncations.any()) == ([False, False, True], False)
    assert (second.terminations.any(), second.truncations.tolist()) == (False, [False, True])
    assert np.concatenate([first.rewards, second.rewards]).tolist() == rewards[:5]
    assert "final_done" not in first.metadata
    assert second.metadata["final_reward"] == 5.0
    assert (second.metadata["level"], first.metadata["seed_of"]) == ("easy", 3)
    np.testing.assert_array_equal(first.observations[-1], second.observations[0])


def test_a_done_before_the_last_state(tmp_path: Path) -> None:
    with read_atari(write(tmp_path / "a.npz", [run(3, dones=[False, True, False]), run(1)])) as source:
        assert np.diff(source.offsets).tolist() == [2, 0]
        assert source.episode(0).terminations.tolist() == [False, True]
        assert source.episode_metadata([1])[0]["final_done"] is False


@pytest.mark.parametrize(
    "value",
    [
        {"states": []},
        {"dones": [False] * 3},
        {"actions": [0] * 5},
        {"rewards": [0.0] * 3},
        {"dones": [2] * 4},
        {"dones": ["no"] * 4},
        {"dones": [[False]] * 4},
        {"actions": ["left"] * 4},
        {"states": [np.zeros((6, 6), np.uint8)] * 4},
        {"states": [np.zeros((6, 6, 4))] * 4},
        {"states": [np.zeros((6, 6, 4), np.uint8)] * 3 + [np.zeros((6, 5, 4), np.uint8)]},
        {"states": None},
        {"states": {"a": 1}},
    ],
)
def test_what_does_not_fit_is_refused(value: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="trajectory 1"):
        read_atari(write(tmp_path / "a.npz", [run(4), run(4) | value]))


def test_other_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    for runs in ([], [3], [{"states": 1}], [run(3), run(3, side=5)]):
        with pytest.raises(FormatError):
            read_atari(write(path, runs))
    np.savez(path, np.zeros(3))
    assert not AtariKind().recognises(path)
    with pytest.raises(FormatError):
        read_atari(path)
    np.savez(path, other=np.zeros(3))
    with pytest.raises(FormatError):
        read_atari(path)


def zipped(path: Path, raw: bytes, name: str = "arr_0.npy") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, raw)
    return path


def npy(runs: Sequence[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, objects(runs), allow_pickle=True)
    return file.getvalue()


def test_nothing_in_a_file_is_run_and_no_header_is_believed(tmp_path: Path) -> None:
    raw = npy([run(3)])
    header, pickled = raw[:128], raw[128:]
    evil = b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR."
    path = tmp_path / "a.npz"
    for bad in (header + evil, header + pickled[:-1] + b"0" + evil):
        with pytest.raises(UnsafeDataError):
            read_atari(zipped(path, bad))
    assert not (tmp_path / "ran").exists()
    for change in (
        (b"(1,)", b"(9,)"),
        (b"(1,)", b"9**9"),
        (b"'|O'", b"'<8'"),
        (b"'|O'", b"[()]"),
        (b"\x93NUMPY", b"\x93NUMBY"),
    ):
        with pytest.raises(FormatError):
            read_atari(zipped(path, raw.replace(*change, 1)))
    with pytest.raises(UnsafeDataError, match="max_bytes"):
        read_atari(zipped(path, raw), max_bytes=100)
    with pytest.raises(FormatError):
        read_atari(zipped(path, raw, "../arr_0.npy"))
    assert not AtariKind().recognises(path)


def test_an_archive_that_lies_about_sizes(tmp_path: Path) -> None:
    """Less than there is is refused; more makes no difference, for nothing is made of the number."""
    path = zipped(tmp_path / "a.npz", npy([run(3)]))
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\1\2") + 24
    data[at : at + 4] = (200).to_bytes(4, "little")
    path.write_bytes(bytes(data))
    with pytest.raises(FormatError):
        read_atari(path)
    data[at : at + 4] = (1 << 30).to_bytes(4, "little")
    path.write_bytes(bytes(data))
    assert read_atari(path).steps == 2


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.npz", npy([run(3)])[:128] + bytes(64 << 20))
    assert path.stat().st_size < 1 << 17
    with pytest.raises(UnsafeDataError, match="max_bytes"):
        read_atari(path, max_bytes=1 << 22)


def test_damaged_bytes_give_a_value_or_a_format_error(tmp_path: Path) -> None:
    raw = npy([run(3), run(2)])
    whole = zipped(tmp_path / "whole.npz", raw).read_bytes()
    rng, path, refused = np.random.default_rng(13), tmp_path / "a.npz", 0
    for i in range(400):
        data = bytearray(raw if i % 2 else whole)
        if i % 4 < 2:
            data = data[: rng.integers(len(data))]
        else:
            data[rng.integers(len(data))] = rng.integers(256)
        if i % 2:
            zipped(path, bytes(data))
        else:
            path.write_bytes(bytes(data))
        assert AtariKind().recognises(path) in (True, False)
        try:
            with read_atari(path) as source:
                list(source.episodes())
        except FormatError:
            refused += 1
    assert 200 < refused < 400


@dataclass(frozen=True, eq=False)
class Runs(Example):
    """Episodes that an Atari file can hold: without a done on their last step, which is not the last there was."""

    def episodes(self, seed: int = 0) -> list[Episode]:
        return [_ended(episode) for episode in super().episodes(seed)]

    def __repr__(self) -> str:
        return self.name


def _ended(episode: Episode) -> Episode:
    last, cut = np.arange(len(episode)) == len(episode) - 1, np.bool_(episode.id % 2 == 0)
    flags = {"terminations": last & ~cut, "truncations": last & cut}
    return Episode(episode.spec, {**episode.columns, **flags}, episode.id, episode.metadata)


IMAGE = Box(np.zeros((4, 40, 40)), np.full((4, 40, 40), 255), np.dtype("u1"))
FLAG = Field(np.dtype("?"))
FIELDS = {
    "observations": Field(np.dtype("u1"), (4, 40, 40), "boundary"),
    "actions": Field(np.dtype("i8")),
    "rewards": Field(np.dtype("f8")),
    "terminations": FLAG,
    "truncations": FLAG,
}


class TestContract(SourceContract):
    examples = (Runs("atari", Spec(FIELDS, IMAGE), (3, 1, 6, 0, 2)),)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        runs = [
            {
                "states": list(episode.observations.transpose(0, 2, 3, 1)),
                "actions": [*episode.actions, 0],
                "rewards": [*episode.rewards, 0.0],
                "dones": [*episode.terminations, False],
                **episode.metadata,
            }
            for episode in episodes
        ]
        return FORMAT.open(write(path / "runs.npz", runs))
