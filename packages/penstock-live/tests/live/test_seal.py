"""A saved state has a checksum of its values, whatever form they have."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from penstock.errors import StateError
from penstock_live.restoring import check_seal, sealed
from tests.fuzz.edits import odd_tree

STATE: dict[str, Any] = {
    "seed": 1 << 70,
    "rate": 0.25,
    "name": "g\u00e9",
    "nothing": None,
    "done": np.bool_(True),
    "at": np.int64(7),
    "chunk": np.arange(5),
    "place": np.arange(5, dtype=np.int32),
    "large": np.array([(1 << 64) - 1, 3], np.uint64),
    "weights": np.array([0.5, 2]),
    "grid": np.arange(6).reshape(2, 3),
    "empty": np.zeros(0, np.int64),
    "log": [[np.int64(3), np.arange(2), [1, 2], 0]],
}


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(state, default=lambda value: value.tolist()))


def test_a_state_that_went_through_json_has_its_checksum() -> None:
    state = sealed(STATE)
    check_seal(state)
    check_seal(through_json(state))
    check_seal(dict(reversed(through_json(state).items())))
    assert sealed(state) == state


def test_whatever_is_changed_is_refused() -> None:
    whole, refused = through_json(sealed(STATE)), 0
    for seed in range(300):
        changed = odd_tree(through_json(whole), random.Random(seed))
        if isinstance(changed, dict) and changed != whole:
            with pytest.raises(StateError, match="expected a state with the checksum"):
                check_seal(changed)
            refused += 1
    assert refused > 200
