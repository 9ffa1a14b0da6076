"""What rows and samples of driving logs cost without rasters, beside a plain loop and copies of the same bytes.

Claims, one process, random order, batches of 128: 10 k samples/s of the ego and of agents, less than a tenth of what a
plain loop over NumPy rows takes, and 5 k samples/s of vectors. The mask of agents passes over 10 M observations/s. From
a zarr store, 900 rows whose blocks are kept take about as long as copying them. Memory stays flat over an epoch.
What two threads make of one, and rows whose blocks must be decoded, stand in the table without a claim.

    python benchmarks/driving.py PATH [--scenes 100] [--batch 128] [--map semantic_map.pb --meta meta.json]

PATH is a dataset of l5kit; its first scene is repeated, in memory and in a store. Calls that are compared run in turn,
for other work on the machine comes and goes; the fastest round counts, in CPU time but for threads.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import figures
import numpy as np

from penstock_driving.agent import AgentDataset
from penstock_driving.ego import EgoDataset
from penstock_driving.formats.l5kit.source import L5KitSource
from penstock_driving.formats.l5kit.tools import concat
from penstock_driving.geometry import rotation33_as_yaw
from penstock_driving.logs import Arrays, scene_logs
from penstock_driving.map import MapAPI
from penstock_driving.mask import agents_mask
from penstock_driving.multi_agent import MultiAgentDataset
from penstock_driving.vectorize import Vectorizer
from penstock_driving.vectorized import EgoDatasetVectorized

HISTORY, FUTURE = 10, 50
CONFIG: dict[str, Any] = {
    "model_params": {
        "history_num_frames": HISTORY,
        "history_num_frames_ego": 1,
        "history_num_frames_agents": 3,
        "future_num_frames": FUTURE,
        "step_time": 0.1,
    },
    "raster_params": {
        "raster_size": [224, 224],
        "pixel_size": [0.5, 0.5],
        "ego_center": [0.25, 0.5],
        "filter_agents_threshold": 0.5,
        "set_origin_to_bottom": True,
    },
    "data_generation_params": {
        "other_agents_num": 30,
        "max_agents_distance": 35,
        "lane_params": {
            "max_num_lanes": 30,
            "max_points_per_lane": 20,
            "max_points_per_crosswalk": 20,
            "max_num_crosswalks": 20,
            "max_retrieval_distance_m": 35,
        },
    },
}


def repeated(path: Path, scenes: int) -> Arrays:
    """The first scene of a dataset, many times over, in memory."""
    with L5KitSource(path) as source:
        one = scene_logs(source, 0)
    number = np.arange(scenes)

    def tiled(rows: Any, fields: dict[str, int]) -> Any:
        many = np.tile(rows, scenes)
        for field, size in fields.items():
            many[field] += np.repeat(number * size, len(rows))[:, None]
        return many

    intervals = {"agent_index_interval": len(one.agents), "traffic_light_faces_index_interval": len(one.tl_faces)}
    return Arrays(
        tiled(one.scenes, {"frame_index_interval": len(one.frames)}),
        tiled(one.frames, intervals),
        tiled(one.agents, {}),
        tiled(one.tl_faces, {}),
    )


def plainly(logs: Arrays, frame: int, edges: tuple[int, int], row: int | None) -> list[Any]:
    """Poses of one sample, looked up frame by frame: what a dataset does that thinks of one sample at a time."""

    def seen(f: int) -> tuple[Any, float] | None:
        if row is None:
            return logs.frames[f]["ego_translation"][:2], float(rotation33_as_yaw(logs.frames[f]["ego_rotation"]))
        agents = logs.agents[slice(*logs.frames[f]["agent_index_interval"])]
        found = agents[agents["track_id"] == logs.agents[row]["track_id"]]
        return (found[0]["centroid"], float(found[0]["yaw"])) if len(found) else None

    here = seen(frame)
    assert here is not None
    centre, turn = here
    matrix = np.linalg.inv(
        [[np.cos(turn), -np.sin(turn), centre[0]], [np.sin(turn), np.cos(turn), centre[1]], [0, 0, 1]]
    )
    told: list[Any] = []
    for steps in (range(0, -HISTORY - 1, -1), range(1, FUTURE + 1)):
        positions, there = np.zeros((len(steps), 2)), np.zeros(len(steps), np.float32)
        yaws = np.zeros((len(steps), 1), np.float32)
        for j, step in enumerate(steps):
            if edges[0] <= frame + step < edges[1] and (pose := seen(frame + step)) is not None:
                positions[j], yaws[j], there[j] = pose[0], pose[1] - turn, 1
        moved = (positions @ matrix[:2, :2].T + matrix[:2, 2]) * there[:, None]
        told += [moved.astype(np.float32), yaws, there]
    return told


def fastest(
    calls: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Seconds of the fastest of some calls of each, in turn."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            begin = clock()
            call()
            best[name] = min(best[name], clock() - begin)
    return best


def masked(logs: Arrays) -> None:
    """Observations a second of the mask of agents, beside a copy of the rows."""
    spare = np.empty_like(logs.agents)
    times = fastest({"mask": lambda: agents_mask(logs), "copy": lambda: np.copyto(spare, logs.agents)}, 3)
    rate = len(logs.agents) / times["mask"]
    figures.record("mask", rate, "/s")
    print(f"{'mask':>8} {rate / 1e6:10.1f} M observations/s, {times['mask'] / times['copy']:.1f} x the time of a copy")


def sampled(name: str, data: Any, rows: np.ndarray, loop: Callable[[], object] | None, loops: int, rounds: int) -> None:
    """Samples a second of a dataset, beside the loop and a copy."""
    first = data[rows[0]].flat.values()
    places = [np.empty_like(values) for values in first]

    def batches() -> None:
        for positions in rows:
            data[positions]

    def copied() -> None:
        for place, values in zip(places, first, strict=True):
            np.copyto(place, values)

    calls: dict[str, Callable[[], object]] = {"batches": batches, "copied": copied}
    if loop is not None:
        calls["loop"] = loop
    times = fastest(calls, rounds)
    rate, copy = rows.size / times["batches"], rows.shape[1] / times["copied"]
    nbytes = sum(values.nbytes for values in first) // rows.shape[1]
    beside = "" if loop is None else f", {rate * times['loop'] / loops:8.1f} x a plain loop"
    figures.record(name, rate, "/s")
    if loop is not None:
        figures.record(f"{name}.loop", rate * times["loop"] / loops, "x")
    print(f"{name:>8} {rate:10,.0f} samples/s of {nbytes:,} B, {copy / rate:6.1f} x the time of a copy{beside}")


def threaded(name: str, data: Any, batch: int, samples: int, rounds: int) -> None:
    """How many more samples a loader's two threads make than one, beside what two threads of NumPy make of theirs."""
    some, numbers = data.shuffle(seed=0).with_epoch_length(samples), np.linspace(0, 1, 1 << 15)

    def loaded(threads: int) -> None:
        for _ in some.loader(batch, threads=threads):
            pass

    def computed(threads: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda _: np.sin(numbers), range(400)))

    calls: dict[str, Callable[[], object]] = {}
    for threads in (1, 2):
        calls[f"loaded {threads}"] = lambda threads=threads: loaded(threads)
        calls[f"computed {threads}"] = lambda threads=threads: computed(threads)
    times = fastest(calls, rounds, time.perf_counter)
    gains = (times[f"{kind} 1"] / times[f"{kind} 2"] for kind in ("loaded", "computed"))
    told = "two threads {:.2f} x one, where NumPy's are {:.2f} x".format(*gains)
    print(f"{name:>8} {samples / times['loaded 1']:10,.0f} samples/s from a loader of one thread, {told}")


def stored(path: Path, rounds: int) -> None:
    """Rows of a zarr store, kept and (with a cache of little) decoded, beside a copy of rows in memory."""
    rng, calls = np.random.default_rng(1), 300
    with L5KitSource(path) as kept, L5KitSource(path, cache_bytes=8 << 20) as decoded:
        rows = kept.agents[:]
        starts = rng.integers(0, len(rows) - 900, calls).tolist()
        for start in range(0, len(rows), 4096):
            kept.agents[start : start + 4096]

        def each(read: Callable[[int], object]) -> Callable[[], object]:
            return lambda: [read(start) for start in starts]

        times = fastest(
            {
                "a row, kept": each(lambda i: kept.agents[i]),
                "900 rows, kept": each(lambda i: kept.agents[i : i + 900]),
                "900 rows, decoded": each(lambda i: decoded.agents[i : i + 900]),
                "900 rows, copied": each(lambda i: rows[i : i + 900].copy()),
            },
            rounds,
        )
    told = ", ".join(f"{name} {seconds / calls * 1e6:.1f} us" for name, seconds in times.items())
    print(f"{'rows':>8} {told}")


def resident() -> float:
    """Megabytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def steady(path: Path, batch: int) -> None:
    """How memory grows from a tenth of an epoch to its end, samples of agents out of a store."""
    with L5KitSource(path) as source:
        data = AgentDataset(CONFIG, source).shuffle(seed=0)
        least, begin = len(data) // batch // 10, 0.0
        for number, _ in enumerate(data.loader(batch, threads=2)):
            if number == least:
                begin = resident()
        grown = resident() - begin
        print(f"{'memory':>8} {begin:,.0f} MB, {grown:+.0f} MB to the end of an epoch of {len(data):,} samples")


def looped(logs: Arrays, data: Any, rows: np.ndarray, loops: int) -> Callable[[], object]:
    """Some of the samples, by the plain loop."""
    timeline, alone = data.timeline, isinstance(data, EgoDataset)

    def loop() -> None:
        for k in rows.reshape(-1)[:loops].tolist():
            row = None if alone else int(data.rows[k])
            frame = k if row is None else int(timeline.frame_of(np.array([row]))[0])
            scene = int(timeline.scene_of(np.array([frame]))[0])
            plainly(logs, frame, (int(timeline.offsets[scene]), int(timeline.offsets[scene + 1])), row)

    return loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--map", type=Path)
    parser.add_argument("--meta", type=Path)
    given = parser.parse_args()
    logs, rounds = repeated(given.path, given.scenes), given.rounds
    rng = np.random.default_rng(0)
    print(f"{given.scenes} scenes, {len(logs.frames):,} frames, {len(logs.agents):,} agents, batches of {given.batch}")

    masked(logs)
    mask = agents_mask(logs)
    made: dict[str, Any] = {
        "ego": EgoDataset(CONFIG, logs),
        "agent": AgentDataset(CONFIG, logs, agents_mask=mask),
        "agents": MultiAgentDataset(CONFIG, logs, agents_mask=mask, agents=8, min_agents=1),
    }
    if given.map and given.meta:
        road = MapAPI(given.map, json.loads(given.meta.read_text())["world_to_ecef"])
        made["vectors"] = EgoDatasetVectorized(CONFIG, logs, Vectorizer(CONFIG, road))
    for name, data in made.items():
        alone = name in ("ego", "agent")
        rows = rng.integers(0, len(data), (given.batches if alone else max(given.batches // 8, 2), given.batch))
        sampled(name, data, rows, looped(logs, data, rows, 40) if alone else None, 40, rounds)
        threaded(name, data, given.batch, 5 * rows.size, rounds)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "many.zarr"
        concat([given.path] * given.scenes, path)
        stored(path, rounds)
        steady(path, given.batch)


if __name__ == "__main__":
    main()
