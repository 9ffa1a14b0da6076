"""LeRobot datasets that penstock and LeRobot 0.4.4 write, read and continue: `--peer PYTHON` has LeRobot.

    python benchmarks/cross_read_lerobot.py --peer .build/lerobot/bin/python

For each kind of camera (PNG, AV1, H.264): penstock records episodes in two sessions, whose videos are joined into files
of 1 MiB; LeRobot records the same frames; penstock converts LeRobot's dataset in parts of about two episodes; LeRobot
continues penstock's datasets and penstock LeRobot's. Both libraries read each of the datasets, with `delta_timestamps`
before and after each frame. Compared is the digest of every value of every item (name, dtype, shape, bytes), between
the libraries.

Compared as well are all statistics of episodes and of the dataset that the two recordings have. LeRobot squares bytes
and other small integers in their own dtype, which overflows, so their deviations are wrong there: for those, penstock
is compared with LeRobot's own function on the same numbers as floats.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import figures
import numpy as np
from video import lerobot

FPS, EPISODES, MORE = 10, (20, 2, 25, 15, 9, 30), (4, 9)
SHAPES = {"observation.images.top": (160, 192, 3), "observation.images.wrist": (64, 64, 3)}
KINDS = {"image": "libsvtav1", "av1": "libsvtav1", "h264": "h264"}
STEPS = {"observation.images.top": (-2, -1, 0), "observation.state": (-1, 0), "action": (0, 1, 2, 3)}
TIMES = {name: [step / FPS for step in steps] for name, steps in STEPS.items()}
INTEGERS = ("observation.gripper",)
Deviations = dict[str, list[list[float]]]  # of each episode, by feature


def features(kind: str) -> dict[str, dict[str, Any]]:
    names = ["height", "width", "channels"]
    dtype = "image" if kind == "image" else "video"
    cameras = {name: {"dtype": dtype, "shape": shape, "names": names} for name, shape in SHAPES.items()}
    return {
        **cameras,
        "observation.state": {"dtype": "float32", "shape": (6,), "names": [f"j{i}" for i in range(6)]},
        "observation.grid": {"dtype": "float64", "shape": (2, 3), "names": None},
        "observation.gripper": {"dtype": "int32", "shape": (2,), "names": None},
        "action": {"dtype": "float32", "shape": (6,), "names": None},
        "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
        "next.done": {"dtype": "bool", "shape": (1,), "names": None},
    }


def frames(episode: int, steps: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(episode)
    pictures = {name: rng.integers(0, 256, (steps, *shape), np.uint8) for name, shape in SHAPES.items()}
    for t in range(steps):
        yield {
            **{name: each[t] for name, each in pictures.items()},
            "observation.state": rng.normal(size=6).astype(np.float32),
            "observation.grid": rng.normal(size=(2, 3)),
            "observation.gripper": rng.integers(-(2**30), 2**30, 2, np.int32),
            "action": rng.normal(size=6).astype(np.float32),
            "next.reward": np.array([t], np.float32),
            "next.done": np.array([t == steps - 1]),
            "task": ("pick", "place it")[(episode + t // 7) % 2],
        }


def record(cls: Any, root: Path, kind: str, lengths: tuple[int, ...], first: int, **options: Any) -> None:
    """Record episodes with either library, into a new dataset or behind the last episode."""
    if root.exists():
        data = cls("me/set", root=root, **options)
    else:
        videos = kind != "image"
        data = cls.create("me/set", FPS, features(kind), root=root, use_videos=videos, vcodec=KINDS[kind], **options)
        data.meta.update_chunk_settings(video_files_size_in_mb=1)
    for number, steps in enumerate(lengths, first):
        for frame in frames(number, steps):
            data.add_frame(frame)
        data.save_episode()
    data.finalize()


def digests(cls: Any, root: Path) -> list[dict[str, str]]:
    """The digest of every value of every item."""
    data = cls("me/set", root=root, delta_timestamps=TIMES, video_backend="pyav")
    items: list[dict[str, str]] = []
    for i in range(len(data)):
        item: dict[str, str] = {}
        for name, value in data[i].items():
            array = np.ascontiguousarray(value)
            head = f"{array.dtype.str}{array.shape}".encode()
            item[name] = value if isinstance(value, str) else hashlib.sha256(head + array.tobytes()).hexdigest()[:16]
        items.append(item)
    return items


def peer_statistics() -> Deviations:
    """LeRobot's deviations of each episode, by its own function on floats."""
    lerobot()
    from lerobot.datasets import compute_stats  # pyright: ignore[reportMissingImports]

    deviations: Deviations = {name: [] for name in (*SHAPES, *INTEGERS)}
    for number, steps in enumerate(EPISODES):
        rows = list(frames(number, steps))
        for name in SHAPES:
            chosen = compute_stats.sample_indices(steps)
            pictures = np.stack([rows[i][name] for i in chosen]).transpose(0, 3, 1, 2).astype(np.float64)
            figures = compute_stats.get_feature_stats(pictures, axis=(0, 2, 3), keepdims=True)
            deviations[name].append((figures["std"] / 255.0).ravel().tolist())
        for name in INTEGERS:
            values = np.stack([row[name] for row in rows]).astype(np.float64)
            deviations[name].append(compute_stats.get_feature_stats(values, axis=0, keepdims=False)["std"].tolist())
    return deviations


def statistics(root: Path) -> list[dict[str, Any]]:
    """All stored statistics: of each episode, then of the dataset."""
    import pyarrow.parquet as pq

    rows = [row for file in sorted(root.glob("meta/episodes/*/*")) for row in pq.read_table(file).to_pylist()]
    episodes = [{name: value for name, value in row.items() if name.startswith("stats/")} for row in rows]
    stored = json.loads((root / "meta/stats.json").read_text())
    whole = {f"stats/{name}/{figure}": value for name, each in stored.items() for figure, value in each.items()}
    return [*episodes, whole]


def compare_statistics(
    ours: Path, theirs: Path, deviations: dict[str, list[list[float]]]
) -> tuple[int, int, list[str]]:
    """Returns how many figures were compared and how many are equal, and the names of others."""
    overflow = {f"stats/{name}/std" for name in (*SHAPES, *INTEGERS)}
    compared, other = 0, []
    found, wanted = statistics(ours), statistics(theirs)
    for number, (one, two) in enumerate(zip(found, wanted, strict=True)):
        if set(one) != set(two):
            other.append(f"names {sorted(set(one) ^ set(two))}")
        for name in one.keys() & two.keys():
            value, right = np.asarray(one[name], np.float64), np.asarray(two[name], np.float64)
            if name in overflow:
                if number >= len(EPISODES):  # merged from the deviations of episodes
                    continue
                right = np.asarray(deviations[name.split("/")[1]][number]).reshape(value.shape)
            compared += 1
            whole = number == len(found) - 1  # its sums are in another order
            close = np.allclose(value, right, rtol=1e-6, atol=1e-12) if whole else np.array_equal(value, right)
            if not close:
                other.append(f"{number} {name}: {value.ravel()[:3]} and {right.ravel()[:3]}")
    return compared, compared - len(other), other


def in_peer(python: str, *words: str) -> Any:
    """What this script prints last in a process with LeRobot."""
    done = subprocess.run([python, __file__, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def convert_in_parts(source: Path, out: Path, kind: str) -> Path:
    """Convert a dataset in parts; returns its folder."""
    from penstock.jobs import WorkPlan, finish_work, run_work

    writer = {"cameras": "image"} if kind == "image" else {"cameras": "video", "codec": KINDS[kind]}
    arguments = {"location": str(source), "out": str(out), "to": "lerobot", "writer": writer}
    work = WorkPlan.make("convert", arguments, range_bytes=4 << 20)
    results = out.with_name("results")
    report = run_work(work, results)
    assert report.done > 2
    finish_work(work, results)
    return out


def compare(peer: str, folder: Path) -> int:
    from penstock_mirrors.lerobot import LeRobotDataset

    equal = compared = 0
    for kind in KINDS:
        ours, theirs = folder / kind / "ours", folder / kind / "theirs"
        ours.parent.mkdir()
        record(LeRobotDataset, ours, kind, EPISODES[:4], 0)
        record(LeRobotDataset, ours, kind, EPISODES[4:], 4)
        in_peer(peer, "--record", str(theirs), kind)
        total, same, other = compare_statistics(ours, theirs, in_peer(peer, "--deviations"))
        print(f"{kind:6} statistics: {same} of {total} equal {other[:5]}")
        equal, compared = equal + same, compared + total
        parts = convert_in_parts(theirs, ours.with_name("parts"), kind)
        for root in (ours, parts):
            in_peer(peer, "--append", str(root), kind)
        record(LeRobotDataset, theirs, kind, MORE, len(EPISODES))
        roots = {"written by penstock": ours, "written by penstock in parts": parts, "written by LeRobot": theirs}
        for name, root in roots.items():
            files = len(list(root.glob("videos/*/*/*")))
            found, wanted = digests(LeRobotDataset, root), in_peer(peer, "--digests", str(root))
            same = sum(one == two for one, two in zip(found, wanted, strict=True))
            print(f"{kind:6} {name}, continued by the other: {same} of {len(wanted)} items equal, {files} video files")
            equal, compared = equal + same, compared + len(wanted)
    figures.record("equal", equal, "count")
    figures.record("compared", compared, "count")
    return 0 if equal == compared else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="interpreter with lerobot")
    for name, count in (("record", 2), ("append", 2), ("digests", 1)):
        parser.add_argument(f"--{name}", nargs=count, help=argparse.SUPPRESS)
    parser.add_argument("--deviations", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    answer: Any = None
    if given.record:
        record(lerobot(), Path(given.record[0]), given.record[1], EPISODES, 0)
    elif given.append:
        record(lerobot(), Path(given.append[0]), given.append[1], MORE, len(EPISODES))
    elif given.digests:
        answer = digests(lerobot(), Path(given.digests[0]))
    elif given.deviations:
        answer = peer_statistics()
    else:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["PENSTOCK_CACHE"] = str(Path(folder) / "cache")
            return compare(given.peer, Path(folder))
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
