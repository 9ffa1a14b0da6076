"""LeRobot datasets that penstock and LeRobot 0.6.1 write, read and continue: `--peer PYTHON` has LeRobot.

    python benchmarks/cross_read_lerobot.py --peer .build/lerobot/bin/python

For each kind of camera (PNG, AV1, H.264): penstock records episodes in two sessions, whose videos are joined into files
of 1 MiB; LeRobot records the same frames; penstock converts LeRobot's dataset in parts of about two episodes; LeRobot
continues penstock's datasets and penstock LeRobot's. LeRobot's own tools delete an episode, split, merge, and remove a
feature of penstock's datasets. Annotations of LeRobot are converted. Both libraries read each of the datasets, with
`delta_timestamps` before and after each frame. Compared is the digest of every value of every item (name, dtype, shape,
bytes), between the libraries.

Compared as well are all statistics of episodes and of the dataset that the two recordings have.
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
DEPTH = "observation.images.depth"
KINDS = {"image": "libsvtav1", "av1": "libsvtav1", "h264": "h264"}
STEPS = {"observation.images.top": (-2, -1, 0), "observation.state": (-1, 0), "action": (0, 1, 2, 3)}
BYTES = (*SHAPES, DEPTH, "next.done")  # which LeRobot sums as float32
TIMES = {name: [step / FPS for step in steps] for name, steps in STEPS.items()}
GOLDEN = Path(__file__).parents[1] / "tests/golden/lerobot"


def features(kind: str) -> dict[str, dict[str, Any]]:
    names = ["height", "width", "channels"]
    dtype = "image" if kind == "image" else "video"
    cameras = {name: {"dtype": dtype, "shape": shape, "names": names} for name, shape in SHAPES.items()}
    return {
        **cameras,
        DEPTH: {"dtype": dtype, "shape": (48, 64, 1), "names": names, "info": {"is_depth_map": True}},
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
            DEPTH: rng.integers(0, 12_000, (48, 64, 1), np.uint16),
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
        data = cls.resume("me/set", root=root, **options)
    else:
        encoders = {} if kind == "image" else {"rgb_encoder": encoder(cls)(vcodec=KINDS[kind])}
        data = cls.create("me/set", FPS, features(kind), root=root, use_videos=bool(encoders), **encoders, **options)
        data.meta.update_chunk_settings(video_files_size_in_mb=1)
    for number, steps in enumerate(lengths, first):
        for frame in frames(number, steps):
            data.add_frame(frame)
        data.save_episode()
    data.finalize()


def encoder(cls: Any) -> Any:
    """The class for settings of encoders of the same library."""
    if not cls.__module__.startswith("lerobot"):
        from penstock_mirrors.lerobot import RGBEncoderConfig
    else:
        from lerobot.configs import RGBEncoderConfig  # pyright: ignore[reportMissingImports]
    return RGBEncoderConfig


def edit(root: Path) -> None:
    """Edit a dataset with LeRobot's tools, into folders next to it."""
    data = lerobot()("me/set", root=root, video_backend="pyav")
    from lerobot.datasets import dataset_tools  # pyright: ignore[reportMissingImports]

    def folder(name: str) -> dict[str, Any]:
        return {"repo_id": "me/set", "output_dir": root.with_name(f"{root.name}-{name}")}

    dataset_tools.delete_episodes(data, [1, 3], **folder("deleted"))
    halves = dataset_tools.split_dataset(data, {"one": [0, 2], "two": [4]}, root.with_name(f"{root.name}-split"))
    one, two = folder("merged").values()
    dataset_tools.merge_datasets([halves["two"], halves["one"]], one, two)
    dataset_tools.remove_feature(data, "observation.grid", **folder("removed"))


def digests(cls: Any, root: Path) -> list[dict[str, str]]:
    """The digest of every value of every item."""
    names = json.loads((root / "meta/info.json").read_text())["features"]
    times = {name: each for name, each in TIMES.items() if name in names}
    data = cls("me/set", root=root, delta_timestamps=times, video_backend="pyav")
    items: list[dict[str, str]] = []
    for i in range(len(data)):
        item: dict[str, str] = {}
        for name, value in data[i].items():
            if isinstance(value, list):  # annotations
                item[name] = json.dumps(value)
                continue
            array = np.ascontiguousarray(value)
            head = f"{array.dtype.str}{array.shape}".encode()
            item[name] = value if isinstance(value, str) else hashlib.sha256(head + array.tobytes()).hexdigest()[:16]
        items.append(item)
    return items


def statistics(root: Path) -> list[dict[str, Any]]:
    """All stored statistics: of each episode, then of the dataset."""
    import pyarrow.parquet as pq

    rows = [row for file in sorted(root.glob("meta/episodes/*/*")) for row in pq.read_table(file).to_pylist()]
    episodes = [{name: value for name, value in row.items() if name.startswith("stats/")} for row in rows]
    stored = json.loads((root / "meta/stats.json").read_text())
    whole = {f"stats/{name}/{figure}": value for name, each in stored.items() for figure, value in each.items()}
    return [*episodes, whole]


def compare_statistics(ours: Path, theirs: Path) -> tuple[int, int, list[str]]:
    """Returns how many figures were compared and how many are equal, and the names of others."""
    compared, other = 0, []
    found, wanted = statistics(ours), statistics(theirs)
    for number, (one, two) in enumerate(zip(found, wanted, strict=True)):
        if set(one) != set(two):
            other.append(f"names {sorted(set(one) ^ set(two))}")
        for name in one.keys() & two.keys():
            value, right = np.asarray(one[name], np.float64), np.asarray(two[name], np.float64)
            compared += 1
            near = 1e-6 if number == len(found) - 1 else 0  # sums of the dataset are in another order
            if name.split("/")[1] in BYTES:
                near = 5e-3
            close = np.allclose(value, right, rtol=near, atol=1e-12) if near else np.array_equal(value, right)
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


def compare_items(peer: str, roots: list[Path]) -> tuple[int, int]:
    """How many items of datasets are equal, of how many."""
    from penstock_mirrors.lerobot import LeRobotDataset

    pairs = [
        pair
        for root in roots
        for pair in zip(digests(LeRobotDataset, root), in_peer(peer, "--digests", str(root)), strict=True)
    ]
    return sum(one == two for one, two in pairs), len(pairs)


def compare(peer: str, folder: Path) -> int:
    import penstock
    from penstock_mirrors.lerobot import LeRobotDataset

    equal = compared = 0
    for kind in KINDS:
        ours, theirs = folder / kind / "ours", folder / kind / "theirs"
        ours.parent.mkdir()
        record(LeRobotDataset, ours, kind, EPISODES[:4], 0)
        record(LeRobotDataset, ours, kind, EPISODES[4:], 4)
        in_peer(peer, "--record", str(theirs), kind)
        total, same, other = compare_statistics(ours, theirs)
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
        in_peer(peer, "--edit", str(ours))
        edited = sorted(path.parent.parent for path in ours.parent.glob("ours-*/**/meta/info.json"))
        one, all_items = compare_items(peer, edited)
        print(f"{kind:6} edited by the tools of LeRobot: {one} of {all_items} items equal in {len(edited)} datasets")
        equal, compared = equal + one, compared + all_items
    annotated = folder / "annotated"
    penstock.convert(penstock.open(GOLDEN / "language"), annotated, format="lerobot")
    one, all_items = compare_items(peer, [GOLDEN / "language", annotated])
    print(f"annotations: {one} of {all_items} items equal")
    equal, compared = equal + one, compared + all_items
    figures.record("equal", equal, "count")
    figures.record("compared", compared, "count")
    return 0 if equal == compared else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="interpreter with lerobot")
    for name, count in (("record", 2), ("append", 2), ("digests", 1), ("edit", 1)):
        parser.add_argument(f"--{name}", nargs=count, help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    answer: Any = None
    if given.record:
        record(lerobot(), Path(given.record[0]), given.record[1], EPISODES, 0)
    elif given.append:
        record(lerobot(), Path(given.append[0]), given.append[1], MORE, len(EPISODES))
    elif given.digests:
        answer = digests(lerobot(), Path(given.digests[0]))
    elif given.edit:
        edit(Path(given.edit[0]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["PENSTOCK_CACHE"] = str(Path(folder) / "cache")
            return compare(given.peer, Path(folder))
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
