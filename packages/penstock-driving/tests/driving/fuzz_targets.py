"""Driving logs and maps that are fuzzed, and how they are read."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.containers.tfrecord import record_of
from penstock.files.remote import read_bytes
from penstock_driving.formats.l5kit import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE, L5KitWriter, Scene
from penstock_driving.map.api import InterpolationMethod, MapAPI, load_metadata, matrix_of
from tests.fuzz.edits import protobuf
from tests.fuzz.targets import GOLDEN, Random, Target, bytes_of, copy_of, dataset


def scene(seed: int, counts: tuple[int, ...]) -> Scene:
    """A scene of as many agents, and as many faces of lights, in each frame."""
    rng = np.random.default_rng(seed)
    frames: Any = np.zeros(len(counts), FRAME_DTYPE)
    frames["timestamp"], frames["ego_rotation"] = np.arange(len(counts)) * 10**8, np.eye(3)
    ends = np.cumsum(counts)
    for field in ("agent_index_interval", "traffic_light_faces_index_interval"):
        frames[field] = np.stack([ends - counts, ends], 1)
    agents, lights = np.zeros(sum(counts), AGENT_DTYPE), np.zeros(sum(counts), TL_FACE_DTYPE)
    agents["track_id"], agents["label_probabilities"] = np.arange(1, len(agents) + 1), rng.random((len(agents), 17))
    lights["face_id"], lights["traffic_light_id"] = "a1", "light"
    return Scene(
        np.array((np.array([0, len(counts)]), f"host-{seed}", seed, seed + 1), SCENE_DTYPE), frames, agents, lights
    )


def logs(**options: Any) -> Callable[[Path], object]:
    """Driving logs of a few frames."""

    def make(folder: Path) -> None:
        with L5KitWriter.create(folder / "log.zarr", **options) as writer:
            writer.write_scenes([scene(0, (2, 0, 3)), scene(1, (1, 1)), scene(2, (4,))])

    return make


def zipped(folder: Path) -> None:
    """A store in a zip archive."""
    logs()(folder)
    shutil.make_archive(str(folder / "log"), "zip", folder / "log.zarr")
    shutil.rmtree(folder / "log.zarr")


def l5kit() -> Iterator[Target]:
    """Zarr folders, a zip archive, arrays as `.npy`."""
    read = dataset("l5kit")
    yield Target("l5kit", "zarr", logs(), read)
    yield Target("l5kit", "npy", logs(layout="npy"), read)
    yield Target("l5kit", "zip", zipped, read)
    yield Target("l5kit", "golden", copy_of("l5kit/version1.zarr"), read)


META = (GOLDEN / "l5kit" / "meta.json").read_bytes()


def read_map(folder: Path, rng: Random) -> tuple[str, bool]:
    """The map, all of its lanes and crosswalks."""
    found = MapAPI(folder / "map.pb", matrix_of(json.loads(META), "world_to_ecef"))
    for element in found:
        if found.is_lane(element):
            found.get_lane_coords(element.id)
            found.get_lane_as_interpolation(element.id, 10, InterpolationMethod.INTER_METER)
        elif found.is_crosswalk(element):
            found.get_crosswalk_coords(element.id)
    return hashlib.sha256(found.boundaries.values.tobytes()).hexdigest(), False


def read_meta(folder: Path, rng: Random) -> tuple[str, bool]:
    """The matrices of the metadata."""
    meta = load_metadata(folder / "meta.json")
    return repr([matrix_of(meta, name).tolist() for name in ("world_to_ecef", "ecef_to_aerial")]), False


def maps() -> Iterator[Target]:
    """The semantic map and the metadata beside it."""
    raw = (GOLDEN / "l5kit" / "semantic_map.pb").read_bytes()
    yield Target("map", "map", bytes_of("map.pb", raw), read_map, protobuf)
    yield Target("map", "meta", bytes_of("meta.json", META), read_meta)


def sets() -> Iterator[Target]:
    """Scenarios of other data sets, which their own software wrote; records of Waymo with sound checksums too."""
    first = "driving/waymo/uncompressed_scenario_training.tfrecord-00001-of-00002"
    record = (GOLDEN / first).read_bytes()[12:-4]
    for name in ("argoverse2", "waymo", "nuplan", "py123d"):
        yield Target(name, "golden", copy_of(f"driving/{name}"), dataset(name))
    yield Target("waymo", "scenario", bytes_of("scenario.bin", record), read_scenario, protobuf)


def read_scenario(folder: Path, rng: Random) -> tuple[str, bool]:
    """The one scenario of a file of Waymo whose record has these bytes."""
    (folder / "a.tfrecord").write_bytes(record_of(read_bytes(folder / "scenario.bin")))
    with penstock.open(folder / "a.tfrecord", format="waymo") as data:
        found: Any = data.source
        return hashlib.sha256(found.agents[:].tobytes() + repr(found.episode_metadata([0])).encode()).hexdigest(), False


def targets() -> Iterator[Target]:
    """Logs and maps."""
    yield from l5kit()
    yield from maps()
    yield from sets()
