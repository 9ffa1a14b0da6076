"""MAGICAL's demonstrations: against what the original loads of its own files, and against a plain definition."""

from __future__ import annotations

import gzip
import hashlib
import pickle
from collections import namedtuple
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.spaces import Box, Dict, Discrete
from penstock.core.spec import Field, Spec
from penstock.errors import DataError, FormatError, UnsafeDataError
from penstock.formats.base.source import Source
from penstock.testing.examples import Example
from penstock.testing.sources import SourceContract
from penstock_imitation.formats.native import FORMAT
from penstock_imitation.formats.native.magical import MagicalKind, read_magical
from penstock_imitation.formats.native.magical_preproc import PREPROCESSORS, shrunken

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "ilr" / "native"
FOLDER = GOLDEN / "magical" / "move-to-region"
CLASSES = (
    "magical.saved_trajectories\nMAGICALTrajectory",
    "milbench.baselines.saved_trajectories\nMILBenchTrajectory",
    "imitation.util.rollout\nTrajectory",
)
Stored = namedtuple("Stored", ("acts", "obs", "rews", "infos"))


def pickled(value: dict[str, Any], name: str = CLASSES[0]) -> bytes:
    """With the name of a class that is not here in place of ours."""
    raw = pickle.dumps(value, protocol=3)
    assert f"c{__name__}\nStored\n".encode() in raw
    return raw.replace(f"c{__name__}\nStored\n".encode(), f"c{name}\n".encode())


def demo(steps: int, seed: int = 0, side: int = 384, **changed: Any) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    obs = [
        {view: rng.integers(0, 256, (side, side, 3), dtype=np.uint8) for view in ("allo", "ego")}
        for _ in range(steps + 1)
    ]
    infos: list[dict[str, Any]] = [{"eval_score": float(t)} for t in range(steps)]
    infos[-1]["TimeLimit.truncated"] = False
    parts = {"acts": rng.integers(1, 18, steps), "obs": obs, "rews": [0.5] * steps, "infos": infos} | changed
    return {"trajectory": Stored(**parts), "score": 0.25, "env_name": "MoveToCorner-Demo-v0"}


def write(path: Path, value: dict[str, Any], name: str = CLASSES[0]) -> Path:
    path.write_bytes(gzip.compress(pickled(value, name), 1))
    return path


def sha(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def pairs(source: Source) -> dict[str, list[Any]]:
    """What a loader of pairs would give: hashes of obs and next_obs, acts and dones."""
    episodes = list(source.episodes())
    return {
        "obs_sha": [sha(o) for e in episodes for o in e.observations[:-1]],
        "next_obs_sha": [sha(o) for e in episodes for o in e.observations[1:]],
        "acts": [a for e in episodes for a in e.actions.tolist()],
        "dones": [d for e in episodes for d in (e.terminations | e.truncations).tolist()],
    }


@pytest.mark.parametrize("name", ["LoRes4E", "LoRes4A", "LoRes3EA", "LoResCHW4E"])
def test_preprocessed_it_is_what_the_original_loads(name: str) -> None:
    with np.load(GOLDEN / "expected" / f"magical_{name}.npz") as stored:
        expected = dict(stored)
    with read_magical(FOLDER, preprocessor=name) as source:
        found = pairs(source)
        assert found == {key: expected[key].tolist() for key in found}
        assert source.spec["observations"].shape == ((12, 96, 96) if name == "LoResCHW4E" else (96, 96, 12))
        assert source.spec.observation_space == Box(
            np.zeros(source.spec["observations"].shape), np.full(source.spec["observations"].shape, 255), np.dtype("u1")
        )


def test_without_null_actions_it_differs_where_the_original_breaks() -> None:
    """Equal: observations, actions, ends. Different: the original keeps the observation of a dropped step as the next
    one of the step before, so that next_obs[t] is not obs[t + 1]."""
    with np.load(GOLDEN / "expected" / "magical_nonull.npz") as stored:
        expected = dict(stored)
    with read_magical(FOLDER, preprocessor="LoResCHW4E", remove_null_actions=True) as source:
        found = pairs(source)
    for key in ("obs_sha", "acts", "dones"):
        assert found[key] == expected[key].tolist()
    theirs = expected["next_obs_sha"].tolist()
    differ = [t for t, (ours, other) in enumerate(zip(found["next_obs_sha"], theirs, strict=True)) if ours != other]
    assert differ == [0, 6, 10]  # the steps before the null actions
    assert [found["next_obs_sha"][t] for t in differ] == [found["obs_sha"][t + 1] for t in differ]


def test_unprocessed_views_are_as_stored() -> None:
    with penstock.open(FOLDER).source as source:
        assert source.spec["observations/ego"] == Field(np.dtype("u1"), (384, 384, 3), "boundary")
        assert list(source.spec) == [
            "observations/allo", "observations/ego", "actions", "rewards", "terminations", "truncations",
            "infos/eval_score",
        ]  # fmt: skip
        assert np.diff(source.offsets).tolist() == [7, 5, 6]
        assert source.metadata == {"kind": "magical", "env_name": "MoveToRegion-Demo-v0", "color_space": "RGB"}
        assert source.spec.action_space == Discrete(18)
        (told,) = source.episode_metadata([2])
        assert told == {
            "file": "demo-MoveToRegion-Demo-v0-002.pkl.gz",
            "score": 1.0,
            "infos/TimeLimit.truncated": False,
        }
        for episode in source.episodes():
            assert episode.terminations.tolist() == [False] * (len(episode) - 1) + [True]
            assert not episode.truncations.any()
            assert episode.columns["infos/eval_score"].tolist() == [0.0] * (len(episode) - 1) + [1.0]


def by_definition(frames: np.ndarray[Any, Any], k: int) -> np.ndarray[Any, Any]:
    """`[T + 1, 96, 96, 3 k]`: stacked at full size, the first frame again before the beginning, and then shrunk."""
    out = []
    for t in range(len(frames)):
        stack = np.concatenate([frames[max(t - k + 1 + i, 0)] for i in range(k)], axis=-1)
        boxes = stack.reshape(96, 4, 96, 4, -1).astype(np.float64).mean(axis=(1, 3))
        out.append(np.rint(boxes).astype(np.uint8))  # rint takes halves to the even number
    return np.stack(out)


@pytest.mark.parametrize("name", list(PREPROCESSORS))
def test_shrinking_first_and_stacking_when_read_is_the_same(name: str, tmp_path: Path) -> None:
    demos = [demo(3, seed=5), demo(1, seed=6)]
    for i, value in enumerate(demos):
        write(tmp_path / f"{i}.pkl.gz", value)
    with read_magical(tmp_path, preprocessor=name) as source:
        found = [episode.observations for episode in source.episodes()]
    for value, episode in zip(demos, found, strict=True):
        views = {v: np.stack([o[v] for o in value["trajectory"].obs]) for v in ("allo", "ego")}
        full = {v: by_definition(frames, 4) for v, frames in views.items()}
        if name == "LoResStack":
            for view in views:
                np.testing.assert_array_equal(episode[view], full[view])
            continue
        mixed = np.concatenate([by_definition(views["allo"], 1), by_definition(views["ego"], 3)], axis=-1)
        expected = {"LoRes4A": full["allo"], "LoRes3EA": mixed}.get(name, full["ego"])
        np.testing.assert_array_equal(episode, expected.transpose(0, 3, 1, 2) if "CHW" in name else expected)


def test_halves_go_to_the_even_number() -> None:
    """Every sum of a box that there is."""
    sums = np.arange(16 * 255 + 1)
    boxes = np.zeros((len(sums), 16), np.uint8)
    boxes += (sums // 16).astype(np.uint8)[:, None]
    boxes += (np.arange(16) < (sums % 16)[:, None]).astype(np.uint8)
    frame = boxes.reshape(-1, 4, 4).transpose(1, 0, 2).reshape(4, -1, 1)
    np.testing.assert_array_equal(shrunken(frame)[0, :, 0], np.rint(sums / 16))


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_of_trajectories(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "demo.pkl.gz", demo(2, side=4), name)
    assert MagicalKind().recognises(path)
    assert penstock.open(path).source.metadata["kind"] == "magical"


def test_patterns_and_natural_order(tmp_path: Path) -> None:
    for number, steps in ((10, 3), (9, 2), (1, 1)):
        write(tmp_path / f"demo-{number}.pkl.gz", demo(steps, side=2))
    (tmp_path / "README").write_text("not one of them")
    assert np.diff(penstock.open(tmp_path).source.offsets).tolist() == [1, 2, 3]
    some = penstock.open(str(tmp_path / "demo-1*.pkl.gz"))
    assert np.diff(some.source.offsets).tolist() == [1, 3]
    with pytest.raises(FileNotFoundError):
        penstock.open(str(tmp_path / "other-*.pkl.gz"))


def test_a_null_action_at_the_end_keeps_the_end(tmp_path: Path) -> None:
    value = demo(4, side=2, acts=np.array([3, 0, 5, 0]))
    path = write(tmp_path / "demo.pkl.gz", value)
    with read_magical(path, remove_null_actions=True) as source:
        episode = source.episode(0)
    assert episode.actions.tolist() == [3, 5]
    assert episode.terminations.tolist() == [False, True]
    assert episode.columns["infos/eval_score"].tolist() == [0.0, 2.0]
    assert episode.metadata["infos/TimeLimit.truncated"] is False
    obs = value["trajectory"].obs
    np.testing.assert_array_equal(episode.observations["ego"], np.stack([obs[i]["ego"] for i in (0, 2, 4)]))


def test_nothing_but_null_actions(tmp_path: Path) -> None:
    path = write(tmp_path / "demo.pkl.gz", demo(2, acts=np.zeros(2, np.int64)))
    with read_magical(path, remove_null_actions=True, preprocessor="LoRes4E") as source:
        assert (len(source), source.steps, len(source.episode(0).observations)) == (1, 0, 1)


def test_truncated_if_it_says_so(tmp_path: Path) -> None:
    infos = [{"eval_score": 0.0}, {"eval_score": 1.0, "TimeLimit.truncated": True}]
    with read_magical(write(tmp_path / "demo.pkl.gz", demo(2, side=2, infos=infos))) as source:
        assert source.episode(0).truncations.tolist() == [False, True]
        assert not source.episode(0).terminations.any()


def test_an_observation_in_the_last_infos_is_not_lost(tmp_path: Path) -> None:
    last = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    infos = [{"eval_score": 0.0}, {"eval_score": 1.0, "terminal_observation": last}]
    path = write(tmp_path / "a.pkl.gz", demo(2, side=2, infos=infos))
    with read_magical(path) as source:
        assert source.spec["infos/terminal_observation"].align == "episode"
        np.testing.assert_array_equal(source.episode(0).columns["infos/terminal_observation"][0], last)
    write(tmp_path / "b.pkl.gz", demo(2, side=2))
    with read_magical(tmp_path) as source:
        # It is in one of two.
        assert [each.where for each in source.account.left_out] == ["infos/terminal_observation"]


def test_several_environments_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.pkl.gz", demo(1, side=2))
    write(tmp_path / "b.pkl.gz", demo(1, side=2) | {"env_name": "MakeLine-Demo-v0"})
    with pytest.raises(FormatError, match="expected one environment"):
        read_magical(tmp_path)


def test_options_are_checked() -> None:
    with pytest.raises(DataError, match="LoRes4E"):
        read_magical(FOLDER, preprocessor="LoRes5E")
    with pytest.raises(TypeError):
        penstock.open(FOLDER, format="native", kind="magical", n_traj=3)
    with pytest.raises(UnsafeDataError, match="max_bytes"):
        read_magical(FOLDER, max_bytes=1 << 20)


BAD: dict[str, dict[str, Any]] = {
    "an observation too few": {"obs": demo(2, side=2)["trajectory"].obs[:-1]},
    "an observation of one view": {"obs": [{"ego": np.zeros((2, 2, 3), "u1")}, *demo(2, side=2)["trajectory"].obs[1:]]},
    "observations of two sizes": {
        "obs": [*demo(2, side=2)["trajectory"].obs[1:], demo(1, side=4)["trajectory"].obs[0]]
    },
    "observations of text": {"obs": [{"ego": "x", "allo": "y"}] * 3},
    "observations as numbers": {"obs": 3},
    "a name with a slash": {"obs": [{"../ego": np.zeros(2)}] * 3},
    "no observations": {"obs": []},
    "actions of floats": {"acts": np.zeros(2)},
    "actions that do not exist": {"acts": np.array([1, 18])},
    "actions of two dimensions": {"acts": np.ones((2, 1), int)},
    "actions as objects": {"acts": [None, "x"]},
    "a reward too many": {"rews": [0.0] * 3},
    "rewards of text": {"rews": ["a", "b"]},
    "an info too few": {"infos": [{}]},
    "infos of text": {"infos": ["a", "b"]},
}


@pytest.mark.parametrize("what", list(BAD))
def test_what_does_not_fit_is_refused(what: str, tmp_path: Path) -> None:
    good, path = demo(2, side=2), tmp_path / "demo.pkl.gz"
    write(path, good | {"trajectory": good["trajectory"]._replace(**BAD[what])})
    with pytest.raises(FormatError, match=r"demo\.pkl\.gz"):
        read_magical(path)
    with pytest.raises(FormatError):
        list(FORMAT.check(path))


def test_frames_of_another_size_have_no_preprocessor(tmp_path: Path) -> None:
    path = write(tmp_path / "demo.pkl.gz", demo(2, side=100))
    with pytest.raises(FormatError, match="384"):
        read_magical(path, preprocessor="LoRes4E")


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    bomb = b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR."
    raw = pickled(demo(1, side=2))
    for evil in (bomb, raw[:-1] + b"0" + bomb, raw.replace(b"MAGICALTrajectory", b"Exploit")):
        path = tmp_path / "demo.pkl.gz"
        path.write_bytes(gzip.compress(evil))
        with pytest.raises(UnsafeDataError):
            read_magical(path)
    assert not (tmp_path / "ran").exists()


def test_damaged_bytes_give_a_value_or_a_format_error(tmp_path: Path) -> None:
    """Truncated and changed at random, in the gzip and in the pickle."""
    raw = pickled(demo(2, side=2))
    packed = gzip.compress(raw, mtime=0)
    rng, path, refused = np.random.default_rng(11), tmp_path / "demo.pkl.gz", 0
    for i in range(400):
        data = bytearray(raw if i % 2 else packed)
        if i % 4 < 2:
            data = data[: rng.integers(1, len(data))]
        else:
            data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(gzip.compress(bytes(data), 1) if i % 2 else bytes(data))
        assert MagicalKind().recognises(path) in (True, False)
        try:
            with read_magical(path) as source:
                list(source.episodes())
        except FormatError:
            refused += 1
    assert 200 < refused < 400


@dataclass(frozen=True, eq=False)
class Demos(Example):
    """Episodes that a MAGICAL file can hold: actions in range, ended by their last step."""

    def episodes(self, seed: int = 0) -> list[Episode]:
        return [_ended(episode) for episode in super().episodes(seed)]

    def __repr__(self) -> str:
        return self.name


def _ended(episode: Episode) -> Episode:
    last, cut = np.arange(len(episode)) == len(episode) - 1, np.bool_(episode.id % 2 == 0)
    flags = {"terminations": last & ~cut, "truncations": last & cut, "actions": episode.actions % 18}
    return Episode(episode.spec, {**episode.columns, **flags}, episode.id, episode.metadata)


VIEW = Box(np.zeros((6, 6, 3)), np.full((6, 6, 3), 255), np.dtype("u1"))
FLAG = Field(np.dtype("?"))
EXAMPLE = Demos(
    "magical",
    Spec(
        {
            "observations/allo": Field(np.dtype("u1"), (6, 6, 3), "boundary"),
            "observations/ego": Field(np.dtype("u1"), (6, 6, 3), "boundary"),
            "actions": Field(np.dtype("i8")),
            "rewards": Field(np.dtype("f8")),
            "terminations": FLAG,
            "truncations": FLAG,
            "infos/eval_score": Field(np.dtype("f8")),
            "infos/where": Field(np.dtype("f4"), (2,)),
            "infos/word": Field(np.dtype("u1"), (), "step", "text"),
        },
        Dict({"allo": VIEW, "ego": VIEW}),
        Discrete(18),
    ),
    (3, 1, 6, 2),
)


class TestContract(SourceContract):
    examples = (EXAMPLE,)

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        for episode in episodes:
            columns: Any = episode.columns
            words = columns["infos/word"].strings()
            infos = [
                {"eval_score": columns["infos/eval_score"][t], "where": columns["infos/where"][t], "word": words[t]}
                for t in range(len(episode))
            ]
            infos[-1]["TimeLimit.truncated"] = bool(episode.truncations[-1])
            obs = [{v: episode.observations[v][t] for v in ("allo", "ego")} for t in range(len(episode) + 1)]
            trajectory = Stored(episode.actions, obs, episode.rewards, infos)
            value = {"trajectory": trajectory, "env_name": "X-v0", **episode.metadata}
            write(path / f"demo-{episode.id}.pkl.gz", value)
        return FORMAT.open(path)
