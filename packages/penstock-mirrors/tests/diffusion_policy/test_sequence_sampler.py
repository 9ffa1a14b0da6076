"""The sampler of Diffusion Policy: windows by their definition, and digests of what its own class returned."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.errors import PlanError, SpecError
from penstock_mirrors.diffusion_policy import SequenceSampler, downsample_mask, get_val_mask
from tests.formats.demos.test_robomimic import EXAMPLE
from tests.formats.demos.test_robomimic import write as write_robomimic

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "zarr"
PUSHT = np.load(GOLDEN / "pusht.npz")
ARRAYS = {name.removeprefix("data__"): PUSHT[name] for name in PUSHT.files if name.startswith("data__")}
ENDS = PUSHT["meta__episode_ends"]


class Buffer:
    """What the sampler takes of Diffusion Policy's replay buffer."""

    def __init__(self, arrays: dict[str, Any], episode_ends: Any) -> None:
        self.arrays, self.episode_ends = arrays, episode_ends

    def keys(self) -> Any:
        return self.arrays.keys()

    def __getitem__(self, key: str) -> Any:
        return self.arrays[key]


def pusht() -> penstock.EpisodeDataset:
    return penstock.open(GOLDEN / "pusht.zarr.zip")


def by_definition(episodes: list[Any], length: int, before: int, after: int, k: int | None) -> list[Any]:
    """Every window of one array: rows outside of the episode are its nearest row, rows after the first `k` are NaN."""
    windows = []
    for rows in episodes:
        for begin in range(-before, len(rows) - length + after + 1):
            inside = [step for step in range(begin, begin + length) if 0 <= step < len(rows)]
            known = [rows[step] for step in inside]
            if k is not None:
                known[k:] = [np.full_like(rows[0], np.nan)] * len(known[k:])
            front = [known[0]] * (inside[0] - begin)
            windows.append(np.stack([*front, *known, *[known[-1]] * (length - len(front) - len(known))]))
    return windows


def robomimic(folder: Path) -> tuple[penstock.EpisodeDataset, dict[str, list[Any]]]:
    """A file of robomimic, and the rows of its arrays by episode."""
    episodes = EXAMPLE.episodes(seed=2)
    data = penstock.open(write_robomimic(folder / "low_dim.hdf5", episodes))
    keys = ("observations/eef", "actions")
    return data, {key: [episode.columns[key][: len(episode)] for episode in episodes] for key in keys}


def cut(array: Any) -> list[Any]:
    return np.split(array, ENDS[:-1])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["pusht", "buffer", "robomimic"])
def test_windows_are_those_of_the_definition(tmp_path: Path, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    if kind == "robomimic":
        data, rows = robomimic(tmp_path)
    else:
        data, rows = pusht() if kind == "pusht" else Buffer(ARRAYS, ENDS), {key: cut(ARRAYS[key]) for key in ARRAYS}
        del rows["img"]
    keys = [str(key) for key in rng.permutation(list(rows))[: rng.integers(1, 4)]]
    length = int(rng.integers(1, 12))
    pads = [int(pad) for pad in rng.integers(-1, length + 3, 2)]
    first = {key: int(rng.integers(0, length + 2)) for key in keys if rng.random() < 0.5}
    mask = rng.random(len(rows[keys[0]])) < 0.7
    sampler = SequenceSampler(data, length, *pads, keys=keys, key_first_k=first, episode_mask=mask)
    before, after = (min(max(pad, 0), length - 1) for pad in pads)
    wanted = {}
    for key in keys:
        chosen = [episode for episode, use in zip(rows[key], mask, strict=True) if use]
        wanted[key] = by_definition(chosen, length, before, after, first.get(key))
    assert len(sampler) == len(wanted[keys[0]])
    for i in range(len(sampler)):
        sample = sampler.sample_sequence(i)
        assert list(sample) == keys
        for key in keys:
            assert sample[key].dtype == rows[key][0].dtype
            np.testing.assert_array_equal(sample[key], wanted[key][i], err_msg=key)
    batches = list(sampler.samples.loader(5)) if len(sampler) else []
    for key in keys if batches else []:
        np.testing.assert_array_equal(np.concatenate([batch[key] for batch in batches]), wanted[key], err_msg=key)


DIGESTS = {  # of all samples of the class in Diffusion Policy 5ba07ac over the same arrays
    "bb9e3e8f2337be6c": (16, 1, 7, ["action", "img", "keypoint", "n_contacts", "state"], {}, None),
    "97b00f46ba6f0557": (4, 3, 3, ["state", "action"], {"state": 2}, [True, False, True, True]),
    "d6be18d4c312496e": (2, 0, 0, ["action"], {}, None),
    "d3b4ff521c3f7608": (9, 8, 0, ["action", "state"], {"action": 1}, None),
}


@pytest.mark.parametrize("digest", DIGESTS)
def test_samples_are_what_diffusion_policy_returned(digest: str) -> None:
    length, before, after, keys, first, mask = DIGESTS[digest]
    for data in (pusht(), Buffer(ARRAYS, ENDS)):
        sampler = SequenceSampler(data, length, before, after, keys, first, None if mask is None else np.array(mask))
        found = hashlib.sha256()
        for i in range(len(sampler)):
            for key, rows in sampler.sample_sequence(i).items():
                found.update(key.encode() + np.ascontiguousarray(rows).tobytes())
        assert found.hexdigest()[:16] == digest


@pytest.mark.parametrize("mask", [None, [True, False, False, True], [False] * 4])
def test_indices_say_which_rows_a_window_has(mask: Any) -> None:
    sampler = SequenceSampler(pusht(), 6, 4, 2, ["state"], episode_mask=mask)
    assert sampler.indices.shape == (len(sampler), 4)
    for i, (begin, end, first, last) in enumerate(sampler.indices.tolist()):
        np.testing.assert_array_equal(sampler.sample_sequence(i)["state"][first:last], ARRAYS["state"][begin:end])
        assert end - begin == last - first > 0


@pytest.mark.parametrize(
    ("arguments", "chosen", "fewer"),
    [
        ((4, 0.25, 0), [3], [0, 1, 2]),
        ((10, 0.02, 42), [0], [1, 6, 7]),
        ((90, 0.02, 42), [7, 69], [8, 58, 68]),
        ((5, 0.9, 7), [1, 2, 3, 4], [0]),
        ((1, 0.5, 0), [], [0]),
        ((6, 0, 1), [], [1, 2, 4]),
    ],
)
def test_masks_are_what_diffusion_policy_drew(arguments: Any, chosen: list[int], fewer: list[int]) -> None:
    mask = get_val_mask(*arguments)
    assert np.flatnonzero(mask).tolist() == chosen
    assert np.flatnonzero(downsample_mask(~mask, 3, arguments[2])).tolist() == fewer
    assert downsample_mask(mask, None) is mask


def test_a_sampler_has_the_attributes_of_the_original() -> None:
    data = pusht()
    sampler = SequenceSampler(data, 4, keys=["action"], key_first_k={"action": 2})
    assert (sampler.keys, sampler.sequence_length, sampler.key_first_k) == (["action"], 4, {"action": 2})
    assert sampler.replay_buffer is data
    last = sampler.sample_sequence(len(sampler) - 1)["action"]
    np.testing.assert_array_equal(sampler.sample_sequence(-1)["action"], last)
    images = SequenceSampler(data, 3, key_first_k={"img": 1}).sample_sequence(0)["img"]
    assert images[0].any()
    assert not images[1:].any()  # bytes have no NaN


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(SpecError, match=r"among \['action', .* got \['actions'\]"):
        SequenceSampler(pusht(), 4, keys=["actions"])
    with pytest.raises(SpecError, match=r"got \['agent'\]"):
        SequenceSampler(pusht(), 4, key_first_k={"agent": 1})
    with pytest.raises(PlanError, match="length"):
        SequenceSampler(pusht(), 0)
    for number in (18, -19):
        with pytest.raises(IndexError, match="within -18:18"):
            SequenceSampler(pusht(), 2).sample_sequence(number)
