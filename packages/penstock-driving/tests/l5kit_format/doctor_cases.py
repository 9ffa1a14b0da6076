"""Driving logs, clean and damaged, for the tests of `check` and `repair`."""

# pyright: basic

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE
from penstock_driving.formats.l5kit.writer import L5KitWriter
from tests.doctor.damage import GOLDEN, odd_array, put
from tests.doctor.repairs import Damage, Plant, grown, grown_zip, shorten, zipped


def l5kit(path: Path, **options: Any) -> Path:
    """Three scenes of two frames."""
    with L5KitWriter.create(path, **{"compressor": None, **options}) as writer:
        for _ in range(3):
            frames = np.zeros(2, FRAME_DTYPE)
            frames["agent_index_interval"] = [[0, 1], [1, 1]]
            frames["timestamp"] = [1, 2]
            frames["ego_rotation"] = np.eye(3)
            writer.write_scene(np.zeros((), SCENE_DTYPE), frames, np.zeros(1, AGENT_DTYPE), np.zeros(0, TL_FACE_DTYPE))
    return path


def more_rows(name: str) -> Plant:
    """Rows behind those of the scenes, in a file of NumPy."""

    def planted(path: Path) -> None:
        rows = np.load(path / name)
        np.save(path / name, np.concatenate([rows, rows[-1:]]))

    return planted


MAKE: dict[str, Callable[[Path], Path]] = {
    "l5kit": l5kit,
    "log.zip": lambda path: zipped(path, l5kit(path.with_name("log"))),
    "npy": lambda path: l5kit(path, layout="npy"),
}
DAMAGE: list[Damage] = [
    ("l5kit", "unused-rows", grown("frames", 1), 0),
    ("log.zip", "unused-rows", grown_zip("agents", 2), 0),
    ("l5kit", "unused-rows", grown("agents", 2), 0),
    ("npy", "unused-rows", more_rows("agents.npy"), 0),
]
WRITERS = ["l5kit"]


def drive(path: Path, tracks: tuple[int, ...] = (1, 2), *, speed: float = 0.0, **frame: Any) -> Path:
    """Two frames with an agent for each track."""
    frames = np.zeros(2, FRAME_DTYPE)
    frames["agent_index_interval"] = [[0, len(tracks)], [len(tracks), len(tracks)]]
    frames["timestamp"] = [0, 100_000_000]
    frames["ego_rotation"] = np.eye(3)
    for name, value in frame.items():
        frames[name] = value
    agents = np.zeros(len(tracks), AGENT_DTYPE)
    agents["track_id"] = tracks
    agents["velocity"] = speed
    with L5KitWriter.create(path, compressor=None) as writer:
        writer.write_scene(np.zeros((), SCENE_DTYPE), frames, agents, np.zeros(0, TL_FACE_DTYPE))
    return path


def driven(*arguments: Any, **options: Any) -> Plant:
    """The same drive with other values."""

    def planted(path: Path) -> None:
        shutil.rmtree(path)
        drive(path, *arguments, **options)

    return planted


def lit(path: Path) -> Path:
    """A real drive with traffic lights, next to its map."""
    shutil.copy(GOLDEN / "l5kit/semantic_map.pb", path.parent)
    return Path(shutil.copytree(GOLDEN / "l5kit/single.zarr", path))


def map_of_elsewhere(path: Path) -> None:
    """The names of two lights are others in the map."""
    file = path.parent / "semantic_map.pb"
    file.write_bytes(file.read_bytes().replace(b"63+P", b"????").replace(b"bjps", b"!!!!"))


def with_labels(path: Path) -> None:
    (path / ".zattrs").write_text(json.dumps({**json.loads((path / ".zattrs").read_text()), "labels": ["UFO"]}))


def swapped_scenes(path: Path) -> None:
    raw = (path / "scenes/0").read_bytes()
    half = SCENE_DTYPE.itemsize
    (path / "scenes/0").write_bytes(raw[half : 2 * half] + raw[:half] + raw[2 * half :])


def drives(path: Path, episodes: list[dict[str, np.ndarray]]) -> None:
    """Driving scenes without agents: the state is where the car is."""
    with L5KitWriter.create(path, compressor=None) as writer:
        for episode in episodes:
            frames = np.zeros(len(episode["rewards"]), FRAME_DTYPE)
            frames["timestamp"] = np.round(np.clip(episode["timestamps"], 0, 1e9) * 1e6) * 1e3  # nanoseconds
            frames["ego_rotation"] = np.eye(3)
            frames["ego_translation"] = episode["observations/state"][:-1]
            nothing = np.zeros(0, AGENT_DTYPE), np.zeros(0, TL_FACE_DTYPE)
            writer.write_scene(np.zeros((), SCENE_DTYPE), frames, *nothing)


NAMES = {"l5kit": "data"}
SPECIAL = {"l5kit": drives}
FOLLOWS = {
    ("l5kit", "nan"): {"invalid-value"},
    ("l5kit", "time-precision"): {"time-backward", "time-rate", "time-repeats"},
    ("l5kit", "near-duplicate"): {"duplicate-episode"},  # the difference is in a column that it does not have
}
FILES: dict[str, list[tuple[Callable[[Path], Path], str, Plant]]] = {
    "l5kit": [
        *((MAKE[make], name, plant) for make, name, plant, _ in DAMAGE if make == "l5kit"),
        (drive, "unreadable", shorten("agents/0", 3)),
        (MAKE["l5kit"], "numbering", swapped_scenes),
        (drive, "unknown-layout", with_labels),
        (drive, "duplicate-key", driven((2, 2))),
        (drive, "invalid-value", driven(ego_rotation=2.0)),
        (drive, "invalid-value", driven(ego_translation=np.nan)),
        (lit, "missing-light", map_of_elsewhere),
        (drive, "impossible-speed", driven(speed=71.0)),
        (drive, "time-rate", driven(timestamp=[0, 500_000_000])),
        (drive, "unused-array", odd_array("lanes")),
        (drive, "other-file", put("gt.csv")),
        (drive, "document", put("README.md")),
        (drive, "hidden", put(".DS_Store")),
    ],
}
