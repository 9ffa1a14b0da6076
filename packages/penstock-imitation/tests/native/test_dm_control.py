"""dm_control's demonstrations: against what the original loads of its own file, and against a plain definition."""

from __future__ import annotations

import gzip
import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.spaces import Box
from penstock.core.spec import Field
from penstock.errors import DataError, FormatError, UnsafeDataError
from penstock_imitation.formats.native.dm_control import DmControlKind, read_dm_control

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "ilr" / "native"
FILE = GOLDEN / "dm_control" / "reacher-easy-synth.pkl.gz"


class TrajectoryWithRew:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def pickled(value: Any) -> bytes:
    """With imitation's name in place of that of our class."""
    return pickle.dumps(value, protocol=3).replace(
        f"c{__name__}\nTrajectoryWithRew\n".encode(), b"cimitation.data.types\nTrajectoryWithRew\n"
    )


def demo(steps: int, seed: int = 0, **changed: Any) -> TrajectoryWithRew:
    rng = np.random.default_rng(seed)
    infos = [{"internal_state": rng.normal(size=3), "discount": 1.0} for _ in range(steps)]
    obs = rng.integers(0, 256, (steps + 1, 3, 4, 4), dtype=np.uint8)
    acts = rng.uniform(-1, 1, (steps, 2)).astype(np.float32)
    return TrajectoryWithRew(**({"obs": obs, "acts": acts, "rews": np.ones(steps), "infos": infos} | changed))


def write(path: Path, value: Any) -> Path:
    path.write_bytes(gzip.compress(pickled(value), 1))
    return path


def sha(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def test_stacked_it_differs_where_the_original_breaks() -> None:
    """Equal: observations, actions, rewards, ends. Different: the original stacks next observations by themselves, so
    that those of the first two steps of a trajectory of stacks of 3 lack the frames before."""
    with np.load(GOLDEN / "expected" / "dmc.npz") as stored:
        expected = dict(stored)
    with read_dm_control(FILE, frame_stack=3) as source:
        episodes = list(source.episodes())
    obs = [sha(o) for e in episodes for o in e.observations[:-1]]
    after = [sha(o) for e in episodes for o in e.observations[1:]]
    assert obs == expected["obs_sha"].tolist()
    for column, name in (("actions", "acts"), ("rewards", "rews")):
        np.testing.assert_array_equal(np.concatenate([e.columns[column] for e in episodes]), expected[name])
    ends = [d for e in episodes for d in (e.terminations | e.truncations).tolist()]
    assert ends == expected["dones"].tolist()
    theirs = expected["next_obs_sha"].tolist()
    differ = [t for t, (a, b) in enumerate(zip(after, theirs, strict=True)) if a != b]
    assert differ == [0, 1, 9, 10]
    assert [after[t] for t in differ] == [obs[t + 1] for t in differ]


def test_unstacked_it_is_as_stored() -> None:
    source = penstock.open(FILE).source
    assert source.spec["observations"] == Field(np.dtype("u1"), (3, 20, 20), "boundary")
    assert list(source.spec) == [
        "observations", "actions", "rewards", "terminations", "truncations", "infos/internal_state", "infos/discount",
    ]  # fmt: skip
    assert np.diff(source.offsets).tolist() == [9, 4]
    assert isinstance(source.spec.action_space, Box)
    assert source.metadata == {"kind": "dm_control", "color_space": "RGB"}
    assert source.episode_metadata([1]) == [{"file": FILE.name, "trajectory": 1}]


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_stacks_are_black_before_the_beginning(k: int, tmp_path: Path) -> None:
    demos = [demo(5, seed=1), demo(1, seed=2), demo(3, seed=3)]
    with read_dm_control(write(tmp_path / "a.pkl.gz", demos), frame_stack=k) as source:
        found = [episode.observations for episode in source.episodes()]
        rows = source.rows("boundary")
        some = penstock.EpisodeDataset(source).windows(2)[:]["observations"]
    for value, observations in zip(demos, found, strict=True):
        padded = np.concatenate([np.zeros((k - 1, 3, 4, 4), np.uint8), value.obs])  # type: ignore[attr-defined]
        expected = np.stack([padded[t : t + k].reshape(3 * k, 4, 4) for t in range(len(value.obs))])  # type: ignore[attr-defined]
        np.testing.assert_array_equal(observations, expected)
    assert rows[-1] == sum(map(len, found))
    np.testing.assert_array_equal(some[0], found[0][:2])


def test_an_end_in_time_is_no_termination(tmp_path: Path) -> None:
    """As dm_control defines it by the last discount; as imitation stores it in `terminal`."""
    last: list[dict[str, Any]] = [{"discount": 1.0}, {"discount": 0.0}]
    demos = [demo(1, infos=[last[0]]), demo(1, infos=[last[1]]), demo(1, terminal=False, infos=[last[1]])]
    with read_dm_control(write(tmp_path / "a.pkl.gz", [*demos, demo(1, terminal=True)])) as source:
        assert [bool(e.terminations[-1]) for e in source.episodes()] == [False, True, False, True]
        assert [bool(e.truncations[-1]) for e in source.episodes()] == [True, False, True, False]


def test_folders_and_patterns(tmp_path: Path) -> None:
    for number, steps in ((2, 2), (10, 1), (1, 3)):
        write(tmp_path / f"reacher-{number}.pkl.gz", [demo(steps)])
    assert np.diff(penstock.open(tmp_path).source.offsets).tolist() == [3, 2, 1]
    found = penstock.open(str(tmp_path / "reacher-[12]*.pkl.gz"), frame_stack=2)
    assert found.source.spec["observations"].shape == (6, 4, 4)
    assert found.source.episode_metadata([1])[0]["file"] == "reacher-2.pkl.gz"


def test_actions_beyond_their_scale_have_no_space(tmp_path: Path) -> None:
    acts = np.full((2, 2), 1.5, np.float32)
    assert read_dm_control(write(tmp_path / "a.pkl.gz", [demo(2, acts=acts)])).spec.action_space is None


def test_large_observations_are_not_copied(tmp_path: Path) -> None:
    """They stay slices of what the pickle was read to."""
    obs = np.zeros((11, 3, 64, 64), np.uint8)
    with read_dm_control(write(tmp_path / "a.pkl.gz", [demo(10, obs=obs)]), frame_stack=4) as source:
        frames: Any = source.state.arrays["observations"]  # type: ignore[attr-defined]
        assert frames.runs[0].base is not None
        assert not frames.runs[0].flags.writeable
        assert source.spec["observations"].shape == (12, 64, 64)


def test_options_are_checked(tmp_path: Path) -> None:
    for k in (0, -1, 2.5, True):
        with pytest.raises(DataError, match="frame_stack"):
            read_dm_control(FILE, frame_stack=k)  # type: ignore[arg-type]
    with pytest.raises(UnsafeDataError, match="max_bytes"):
        read_dm_control(FILE, max_bytes=100)
    with pytest.raises(FormatError, match="found none"):
        read_dm_control(tmp_path)
    flat = write(tmp_path / "a.pkl.gz", [demo(1, obs=np.zeros((2, 5)))])
    assert read_dm_control(flat).spec["observations"].shape == (5,)
    with pytest.raises(FormatError, match="to stack"):
        read_dm_control(flat, frame_stack=2)


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1},
        [3],
        [],
        [demo(2, obs=np.zeros((2, 3, 4, 4), np.uint8))],
        [demo(2), demo(2, obs=np.zeros((3, 3, 5, 4), np.uint8))],
        [demo(2), demo(2, obs=np.zeros((3, 3, 4, 4)))],
        [demo(2), demo(2, acts=np.zeros((2, 3), np.float32))],
        [demo(2, acts=np.float32(1))],
        [demo(2, rews=np.zeros((2, 1)))],
        [demo(2, infos=3)],
        [demo(2, obs=np.array([None, 1, "x"], object))],
    ],
)
def test_what_does_not_fit_is_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"a\.pkl\.gz"):
        read_dm_control(write(tmp_path / "a.pkl.gz", value))


def test_damaged_bytes_give_a_value_or_a_format_error(tmp_path: Path) -> None:
    raw = pickled([demo(3), demo(1)])
    rng, path, refused = np.random.default_rng(12), tmp_path / "a.pkl.gz", 0
    for i in range(300):
        data = bytearray(raw)
        if i % 3 == 0:
            data = data[: rng.integers(len(data))]
        else:
            data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(gzip.compress(bytes(data), 1))
        assert DmControlKind().recognises(path) in (True, False)
        try:
            with read_dm_control(path, frame_stack=i % 4 or None) as source:
                list(source.episodes())
        except FormatError:
            refused += 1
    assert 100 < refused < 300
