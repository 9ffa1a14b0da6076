"""Samples of the scenes of other data sets: the same as of L5Kit's store that they are converted to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.damage import collected_damage
from penstock_driving.agent import AgentDataset
from penstock_driving.ego import EgoDataset
from penstock_driving.formats.l5kit import wire
from penstock_driving.formats.scenarios import ScenarioSource
from penstock_driving.kernels.scenarios import FIELDS, find_states
from sets.writing import NAMES, message

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "driving"
CONFIG = {
    "model_params": {"history_num_frames": 2, "future_num_frames": 3, "step_time": 0.1, "render_ego_history": True},
    "raster_params": {
        "map_type": "box_debug",
        "raster_size": [48, 48],
        "pixel_size": [2, 2],
        "ego_center": [0.25, 0.5],
        "set_origin_to_bottom": True,
        "filter_agents_threshold": 0.5,
        "disable_traffic_light_faces": False,
    },
}


@pytest.mark.filterwarnings("ignore:expected a step_time")
@pytest.mark.parametrize("name", NAMES)
def test_samples_in_place_and_converted_are_equal(name: str, tmp_path: Path) -> None:
    with collected_damage():
        done = penstock.convert(GOLDEN / name, tmp_path / "log.zarr", format="l5kit")
        opened: list[Any] = [penstock.open(path).source for path in (GOLDEN / name, tmp_path / "log.zarr")]
    assert done.status == "converted"
    step = {"nuplan": 0.05}.get(name, 0.1)
    config = {**CONFIG, "model_params": {**CONFIG["model_params"], "step_time": step}}
    assert isinstance(opened[0], ScenarioSource)
    mask = opened[1].agents[:]["label_probabilities"][:, 3:16].sum(axis=1) > 0  # boxes of some move as none does
    for dataset in (
        lambda logs: AgentDataset(config, logs, agents_mask=mask),
        lambda logs: EgoDataset(config, logs),
    ):
        ours, theirs = dataset(opened[0]), dataset(opened[1])
        assert len(ours) == len(theirs) > 0
        rows = np.random.default_rng(len(ours)).integers(len(ours), size=8)
        mine, other = ours[rows], theirs[rows]
        assert mine.keys() == other.keys()
        for key in mine:
            assert np.array_equal(mine[key], other[key], equal_nan=True), key
        assert mine["image"].any()
    for table in ("scenes", "frames", "agents", "tl_faces"):
        left, right = (getattr(source, table)[:] for source in opened)
        assert left.tobytes() == right.tobytes(), table
    assert isinstance(opened[0].scene(0).frames["timestamp"][0], np.int64)


def test_windows_read_only_the_scenes_that_they_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    with collected_damage(), penstock.open(GOLDEN / "argoverse2", cache_bytes=0) as data:
        source: Any = data.source
        windows = data.windows(4)
        read: list[int] = []
        was = source._index.read
        monkeypatch.setattr(type(source._index), "read", lambda self, scene: read.append(scene) or was(scene))
        assert windows[-1]["agents"]["yaw"] is not None
        assert set(read) == {1}


def states_of(raw: bytes) -> tuple[np.ndarray, list[int]] | None:
    """What the kernel finds, by the reader of the wire format that loops over bytes."""
    places, head = [], [0, 0]
    try:
        for number, kind, low, high in wire.fields(raw, (0, len(raw))):
            if number in (1, 2) and kind == wire.VARINT:
                head[number - 1] = wire.varint(raw, low, high)[0]
            elif (number, kind) == (3, wire.BYTES):
                place = [-1] * (FIELDS - 1) + [0]
                for inner, wired, first, last in wire.fields(raw, (low, high)):
                    if (wired == wire.FIXED64 and 2 <= inner <= 4) or (wired == wire.FIXED32 and 5 <= inner <= 10):
                        place[inner - 2] = first
                    elif (inner, wired) == (11, wire.VARINT):
                        place[-1] = int(wire.varint(raw, first, last)[0] != 0)
                places.append(place)
    except ValueError:
        return None
    return np.array(places).reshape(-1, FIELDS), head


@pytest.mark.parametrize("seed", range(4))
def test_states_are_found_as_by_a_loop_over_fields(seed: int) -> None:
    """Fields in any order, missing, repeated, unknown, of another wire type; tracks that are cut or edited."""
    rng = np.random.default_rng(seed)
    for _ in range(60):
        parts: list[bytes] = [message((int(n), int(rng.integers(300)))) for n in rng.permutation([1, 2, 9])]
        for _ in range(int(rng.integers(6))):
            numbers = rng.choice(range(1, 14), int(rng.integers(11))).tolist()
            values: list[Any] = [int(rng.integers(3)) if n in (1, 11) else float(rng.normal()) for n in numbers]
            parts.append(message((3, message(*zip(numbers, values, strict=True), single=range(5, 11)))))
        rng.shuffle(parts)
        whole = b"".join(parts)
        track = bytearray(whole[: len(whole) - int(rng.integers(3)) * (rng.random() < 0.3)])
        if rng.random() < 0.5:
            track[int(rng.integers(len(track)))] = int(rng.integers(256))
        places, head = np.full((9, FIELDS), -7), np.zeros(2, np.int64)
        data = np.frombuffer(bytes(track), np.uint8)
        found, expected = find_states(data, 0, len(track), places, head), states_of(bytes(track))
        if found >= 0 and expected is not None:
            assert found == len(expected[0])
            assert places[:found].tolist() == expected[0][:9].tolist()
            assert head.tolist() == expected[1]
        else:
            assert track != whole
