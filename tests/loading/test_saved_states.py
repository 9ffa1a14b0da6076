"""States as an earlier release saved them: they are loaded, and the samples that follow are the same.

Other tests compare two runs of the same code. A change of the order, of a fingerprint or of the layout of states would
be in both. Who changes one of them on purpose says so in the changelog, and writes the new state here.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.data.dataset import EpisodeDataset
from penstock.data.map_dataset import MapDataset, planned_samples


def steps(n: int, first: int = 0, episode: int = 10) -> EpisodeDataset:
    return penstock.from_arrays({"x": np.arange(first, first + n)}, lengths=[episode] * (n // episode))


def mixed() -> MapDataset:
    parts = {"a": steps(40).steps().shuffle(seed=1), "b": steps(20, first=100).steps().shuffle(seed=2)}
    return penstock.mix(parts, {"a": 0.7, "b": 0.3}, stop="never")


SAVED: dict[str, tuple[Callable[[], MapDataset], dict[str, Any], list[Any]]] = {
    "shuffle": (
        lambda: steps(40).steps().shuffle(seed=5),
        {
            "version": 2,
            "fingerprint": "6752eec7486bc7e248b36d7b4c247d146f9d55814b4e52849f73f4e56c5c551d",
            "skipped": [],
            "episodes": [4],
            "position": 1,
        },
        [8, 21, 15],
    ),
    "shuffled in pools": (
        lambda: steps(40).windows(3, pad="zero").shuffle(seed=5, block=6, pool=2),
        {
            "version": 2,
            "fingerprint": "65d7e3d03a63f6a07baa4b6938f3716845a89fbbd868c01bf20b70ffd44ce56e",
            "skipped": [],
            "episodes": [4],
            "position": 1,
        },
        [[39, 0, 0], [36, 37, 38], [38, 39, 0]],
    ),
    "shard": (
        lambda: steps(40).steps().shuffle(seed=4).shard(1, 3),
        {
            "version": 2,
            "fingerprint": "f0c290580eefe94f2df9801e2614bd76f5979b2590ea6d6bc85f728704c9773f",
            "skipped": [],
            "episodes": [4],
            "position": 1,
        },
        [0, 17, 21],
    ),
    "drawn by weight": (
        lambda: steps(40).steps().weighted(np.arange(40.0), seed=7),
        {
            "version": 2,
            "fingerprint": "7257ca52d4835ac5af98e70c300e23bdeaf89c1762a02b00f53c72933461d4f4",
            "skipped": [],
            "episodes": [4],
            "position": 1,
        },
        [18, 36, 27],
    ),
    "mix": (
        mixed,
        {
            "version": 2,
            "fingerprint": "17db37de1e2fe642fcdaabd4aa6af8896b78909f8241f61f43e1cfd9af007017",
            "skipped": [],
            "episodes": [4, 2],
            "mix": {
                "position": 1,
                "parts": {"a": ["81a7255e", 0, 1], "b": ["df614163", 0, 0]},
                "course": [[[0, ["7/10", "3/10"]]], "never", "source", False],
            },
            "position": 1,
        },
        [114, 10, 14],
    ),
    "packs of other sequences every epoch": (
        lambda: steps(40, episode=5).sequences().shuffle(seed=3).pack(12, repack=True),
        {
            "version": 2,
            "fingerprint": "153f0507e41cf5d7a00e3f7ac79ebba616c017e8838d0516d2809c82a638ce7a",
            "skipped": [],
            "episodes": [8],
            "epoch": [0, 0],
            "position": 1,
        },
        [
            [0, 1, 2, 3, 4, 25, 26, 27, 28, 29, 0, 0],
            [35, 36, 37, 38, 39, 10, 11, 12, 13, 14, 0, 0],
            [5, 6, 7, 8, 9, 30, 31, 32, 33, 34, 0, 0],
        ],
    ),
}


@pytest.mark.parametrize("name", SAVED)
def test_a_saved_state_goes_on_with_the_same_samples(name: str) -> None:
    make, state, expected = SAVED[name]
    loader = make().loader(1, threads=0)
    iterator = iter(loader)
    next(iterator)
    saved = loader.state_dict()
    assert saved.pop("plan") == list(planned_samples(make()).chain)  # states of earlier releases have no words
    assert saved == state
    resumed = make().loader(1, threads=0)
    resumed.load_state_dict(state)
    assert [batch["x"][0].tolist() for batch in islice(resumed, len(expected))] == expected


def test_fields_that_transforms_got_later_leave_fingerprints_as_they_were() -> None:
    """Of windows and row numbers, by their text, which fingerprints are made of."""
    windows = penstock.transforms.Windows(3, columns={"a": (0, 2)})
    assert repr(windows) == "Windows(length=3, past=0, stride=1, pad='drop', columns=(('a', 'a', 0, 2),))"
    assert repr(penstock.transforms.RowNumbers("t")).endswith("source=None, of=None)")
    changed = [penstock.transforms.Windows(3, pad="zero", **{name: 1}) for name in ("pad_before", "pad_after")]
    changed += [penstock.transforms.Windows(3, pad="zero", frame_skip=2), penstock.transforms.Windows(3, pad="zero")]
    assert len({repr(each) for each in changed}) == 4
    assert repr(penstock.transforms.RowNumbers(padding=0)).endswith("padding=0)")
