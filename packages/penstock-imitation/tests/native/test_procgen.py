"""Procgen demonstrations: next observations and stacks stay within their trajectory."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.spaces import Discrete
from penstock.core.spec import Field
from penstock.errors import DataError, FormatError, UnsafeDataError
from penstock_imitation.formats.native.procgen import ProcgenKind, read_procgen

FILE = Path(__file__).parents[4] / "tests" / "golden" / "ilr" / "native" / "procgen" / "demo_coinrun.pickle"


def demos(lengths: tuple[int, ...] = (4, 2), seed: int = 0, **changed: Any) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "obs": [rng.integers(0, 256, (n, 5, 5, 3), dtype=np.uint8) for n in lengths],
        "acts": [rng.integers(0, 15, n) for n in lengths],
        "rews": [rng.normal(size=n).astype(np.float32) for n in lengths],
        "dones": [np.arange(n) == n - 1 for n in lengths],
    } | changed


def write(path: Path, value: Any) -> Path:
    path.write_bytes(pickle.dumps(value, protocol=4))
    return path


def test_the_originals_file() -> None:
    with FILE.open("rb") as file:
        stored = pickle.load(file)
    source = penstock.open(FILE).source
    assert source.spec["observations"] == Field(np.dtype("u1"), (3, 64, 64), "boundary")
    assert source.spec.action_space == Discrete(15)
    assert np.diff(source.offsets).tolist() == [5, 3]
    for i, episode in enumerate(source.episodes()):
        np.testing.assert_array_equal(episode.observations, stored["obs"][i].transpose(0, 3, 1, 2))
        np.testing.assert_array_equal(episode.actions, stored["acts"][i][:-1])
        np.testing.assert_array_equal(episode.rewards, stored["rews"][i][:-1])
        assert episode.truncations.tolist() == [False] * (len(episode) - 1) + [True]
        assert episode.metadata["final_done"] is True
        assert episode.metadata["final_action"] == stored["acts"][i][-1]
        assert episode.metadata["final_reward"] == pytest.approx(float(stored["rews"][i][-1]))


def test_stacks_do_not_leak_from_one_trajectory_into_the_next(tmp_path: Path) -> None:
    """As they do in the original."""
    value = demos((4, 3, 1), seed=3)
    with read_procgen(write(tmp_path / "a", value), frame_stack=4) as source:
        assert source.spec["observations"].shape == (12, 5, 5)
        found = [episode.observations for episode in source.episodes()]
    for images, stacks in zip(value["obs"], found, strict=True):
        padded = np.concatenate([np.zeros((3, 3, 5, 5), np.uint8), images.transpose(0, 3, 1, 2)])
        for t in range(len(images)):
            np.testing.assert_array_equal(stacks[t], padded[t : t + 4].reshape(12, 5, 5))


def test_without_rewards_and_with_other_entries(tmp_path: Path) -> None:
    value = {name: rows for name, rows in demos().items() if name != "rews"} | {"levels": [1, 2]}
    with read_procgen(write(tmp_path / "a", value)) as source:
        assert "rewards" not in source.spec
        assert [(each.where, each.reason) for each in source.account.left_out] == [("levels", "unused-array")]


def test_it_is_told_by_content(tmp_path: Path) -> None:
    for protocol in range(2, 6):
        path = tmp_path / f"{protocol}"
        path.write_bytes(pickle.dumps(demos(), protocol=protocol))
        assert ProcgenKind().recognises(path)
        assert penstock.open(path).source.steps == 4
    for other in ({"a": [1]}, [1], {"obs": {"a": 1}}, "obs", {}):
        assert not ProcgenKind().recognises(write(tmp_path / "other", other))
    assert not ProcgenKind().recognises(tmp_path)
    assert not ProcgenKind().recognises(tmp_path / "nothing")


@pytest.mark.parametrize(
    "value",
    [
        [1],
        {"obs": [], "acts": [], "rews": []},
        {"obs": [], "acts": [], "rews": [], "dones": []},
        demos(obs=[np.zeros((4, 5, 5, 3), np.uint8)]),
        demos(obs=3),
        demos(obs=[np.zeros((4, 5, 5, 3)), np.zeros((2, 5, 5, 3))]),
        demos(obs=[np.zeros((4, 5, 5, 3), np.uint8), np.zeros((2, 6, 5, 3), np.uint8)]),
        demos(obs=["ab", "cd"]),
        demos(acts=[np.zeros(4, int), np.zeros(3, int)]),
        demos(acts=[np.zeros(4, int), np.zeros(2)]),
        demos(rews=[np.zeros(4), np.zeros((2, 1))]),
        demos(dones=[np.zeros(4), np.zeros(2)]),
        demos(dones=[None, None]),
    ],
)
def test_what_does_not_fit_is_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="a"):
        read_procgen(write(tmp_path / "a", value))


def test_options_are_checked() -> None:
    for k in (0, "4", 1.0):
        with pytest.raises(DataError, match="frame_stack"):
            read_procgen(FILE, frame_stack=k)  # type: ignore[arg-type]
    with pytest.raises(UnsafeDataError, match="max_bytes"):
        read_procgen(FILE, max_bytes=1000)
    with pytest.raises(TypeError):
        penstock.open(FILE, format="native", stack=4)


def test_damaged_bytes_give_a_value_or_a_format_error(tmp_path: Path) -> None:
    raw = pickle.dumps(demos(), protocol=4)
    rng, path, refused = np.random.default_rng(14), tmp_path / "a", 0
    for i in range(400):
        data = bytearray(raw)
        if i % 3 == 0:
            data = data[: rng.integers(len(data))]
        else:
            data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(bytes(data))
        assert ProcgenKind().recognises(path) in (True, False)
        try:
            with read_procgen(path, frame_stack=i % 4 or None) as source:
                list(source.episodes())
        except FormatError:
            refused += 1
    assert 134 < refused < 400
