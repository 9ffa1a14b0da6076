"""Scenarios of Argoverse 2 against av2's own reader: `python benchmarks/scenarios.py --peer PYTHON`.

Claim: penstock reads more scenarios, and gives more samples, for a second of CPU time than `av2`. Wall times are shown
too; on a machine that is busy, they say little.

`PYTHON` is an interpreter with `av2`, whose writer makes the files (`--scenarios` of 110 steps and `--tracks` tracks)
and whose `load_argoverse_scenario_parquet` reads them. "scenarios" is all rows of a scenario: objects there, arrays of
frames and agents here. "samples" is the past (50 steps) and the future (60) of the focal track, one scenario after the
other in random order: there the file is loaded and the track looked up, here `AgentDataset` gives batches of 16: with
no memory for scenes and tracks (`cache_bytes=0`, `track_bytes=1`), so that each sample reads its file, as of data that
is larger than memory; with the defaults, which keep what was read; and from a store of L5Kit that `penstock.convert`
made. What opening learns once is not counted; the line "first opening" is its time. All runs alternate, and the best
counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PEER = """
import json, sys, time
from pathlib import Path
import numpy as np
from av2.datasets.motion_forecasting import scenario_serialization as files
from av2.datasets.motion_forecasting.data_schema import *

folder, scenarios, tracks, order = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])

def made(number):
    rng = np.random.default_rng(number)
    found = []
    for i in range(tracks):
        first = 0 if i < 2 else int(rng.integers(0, 60))
        last = 110 if i < 2 else int(rng.integers(first + 1, 111))
        place, speed = rng.uniform(-60, 60, 2), rng.uniform(0, 12)
        states = [
            ObjectState(t < 50, t, (float(place[0] + speed * 0.1 * t), float(place[1])), 0.0, (float(speed), 0.0))
            for t in range(first, last)
        ]
        category = TrackCategory.FOCAL_TRACK if i == 1 else TrackCategory.TRACK_FRAGMENT
        found.append(Track("AV" if i == 0 else str(9000 + i), states, ObjectType.VEHICLE, category))
    times = np.linspace(0, 10_900_000_000, 110).astype(np.int64)
    return ArgoverseScenario(f"{number:08d}", times, found, "9001", "austin", None, None)

places = [folder / f"{number:08d}" / f"scenario_{number:08d}.parquet" for number in range(scenarios)]
for number, place in enumerate(places):
    if not place.exists():
        place.parent.mkdir(parents=True)
        files.serialize_argoverse_scenario_parquet(place, made(number))

def sample(number):
    scenario = files.load_argoverse_scenario_parquet(places[number])
    track = next(track for track in scenario.tracks if track.track_id == scenario.focal_track_id)
    return np.array([state.position for state in track.object_states])

results = {}
for name, read in (("scenarios", lambda n: files.load_argoverse_scenario_parquet(places[n])), ("samples", sample)):
    wall, cpu = time.perf_counter(), time.process_time()
    for number in order:
        read(number)
    results[name] = [len(order) / (time.perf_counter() - wall), len(order) / (time.process_time() - cpu)]
print(json.dumps(results))
"""
MODEL = {"history_num_frames": 49, "future_num_frames": 60, "step_time": 0.1}
RASTER = {"raster_size": [9, 9], "pixel_size": [1, 1], "ego_center": [0.5, 0.5]}
RASTER |= {"set_origin_to_bottom": True, "filter_agents_threshold": 0.5}
NOW, BATCH = 49, 16


def rate(count: int, run: Callable[[], object]) -> list[float]:
    """How many a second, and for a second of CPU time."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return [count / (time.perf_counter() - wall), count / (time.process_time() - cpu)]


def focal(source: Any, track_bytes: int) -> Any:
    """A dataset of the focal track of each scenario, at the last observed step."""
    from penstock_driving.agent import AgentDataset

    mask = np.zeros(len(source.agents), np.bool_)
    frames = source.frames[source.offsets[:-1] + NOW]["agent_index_interval"]
    for low, high in frames.tolist():
        mask[low + int(np.flatnonzero(source.agents[low:high]["track_id"] == 1)[0])] = True
    config = {"model_params": MODEL, "raster_params": RASTER}
    return AgentDataset(config, source, None, agents_mask=mask, track_bytes=track_bytes)


def ours(source: Any, data: Any, order: list[int]) -> dict[str, list[float]]:
    """Scenarios, if they are read in place, and samples."""

    def samples() -> None:
        for first in range(0, len(order), BATCH):
            data[order[first : first + BATCH]]

    found = {"samples": rate(len(order), samples)}
    if hasattr(source, "track_ids"):
        found["scenarios"] = rate(len(order), lambda: [source.scene(number) for number in order])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="a Python with av2")
    parser.add_argument("--scenarios", type=int, default=32)
    parser.add_argument("--tracks", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    import penstock

    best: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train"
        order = np.random.default_rng(0).permutation(options.scenarios).tolist()
        arguments = [str(path), str(options.scenarios), str(options.tracks), json.dumps(order)]

        def peer() -> dict[str, list[float]]:
            command = [options.peer, "-c", PEER, *arguments]
            return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

        peer()  # writes the files
        opening = time.perf_counter()
        opened = {"in place, nothing kept": penstock.open(path, cache_bytes=0).source}
        opening = time.perf_counter() - opening
        opened["in place"] = penstock.open(path).source
        penstock.convert(path, Path(folder) / "train.zarr", format="l5kit")
        opened["converted to l5kit"] = penstock.open(Path(folder) / "train.zarr").source
        runs: dict[str, Callable[[], dict[str, list[float]]]] = {"av2": peer}
        for name, source in opened.items():
            data = focal(source, 1 if "nothing" in name else 512 << 20)
            ours(source, data, order)  # warm: kernels are compiled
            runs[name] = lambda source=source, data=data: ours(source, data, order)
        for _ in range(options.rounds):
            for name, run in runs.items():
                for what, found in run().items():
                    known = best.setdefault((what, name), found)
                    best[what, name] = [max(pair) for pair in zip(known, found, strict=True)]
    print(f"{options.scenarios} scenarios of {options.tracks} tracks; first opening {opening:.2f} s")
    print("| what | reader | a second | a CPU second | of av2 |\n|---|---|---|---|---|")
    for (what, name), (wall, cpu) in sorted(best.items()):
        print(f"| {what} | {name} | {wall:,.0f} | {cpu:,.0f} | {cpu / best[what, 'av2'][1]:.1f} x |")
    if any(best[what, "in place, nothing kept"][1] <= best[what, "av2"][1] for what in ("scenarios", "samples")):
        sys.exit("expected penstock to read more than av2")


if __name__ == "__main__":
    main()
