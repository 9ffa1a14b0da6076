"""Driving logs that we write, read by the zarr 2 library, and the other way: does every bit come out equal?

Logs of every compressor, chunk length and version; with `--log PATH`, that one too. The peer needs zarr 2, which is the
last to read rows whose fields have shapes. It also measures both on one log, for ratios in one run.

    python benchmarks/cross_read_l5kit.py --peer PYTHON_WITH_ZARR_2 [--log LOG.zarr]
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
import numpy as np

NAMES = ("scenes", "frames", "agents", "traffic_light_faces")
OPTIONS: list[dict[str, Any]] = [
    {},
    {"compressor": None},
    {"compressor": "zstd"},
    {"compressor": "zlib", "chunk_rows": 77},
    {"compressor": "bz2"},
    {"compressor": {"id": "lz4"}, "chunk_rows": {"agents": 501}},
    {"compressor": {"id": "zstd"}},
    {"compressor": {"id": "blosc", "cname": "blosclz", "clevel": 9, "shuffle": 2, "blocksize": 0}},
    {"compressor": {"id": "blosc", "cname": "zlib", "clevel": 1, "shuffle": 0, "blocksize": 4096}},
]


def digest(rows: Any) -> list[Any]:
    """What says whether two arrays are the same, as JSON."""
    content = hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()
    return [str(rows.dtype.descr), list(rows.shape), content[:16]]


def child(task: dict[str, Any]) -> None:
    """In the peer: digest logs, write one again with other settings, or measure reads."""
    numcodecs: Any = importlib.import_module("numcodecs")
    zarr: Any = importlib.import_module("zarr")
    if task["do"] == "digest":
        groups = [zarr.open_group(path, "r") for path in task["paths"]]
        print(json.dumps([{name: digest(group[name][:]) for name in NAMES if name in group} for group in groups]))
    elif task["do"] == "write":
        source = zarr.open_group(task["log"], "r")
        for path, (codec, chunk) in task["out"].items():
            store = zarr.ZipStore(path, mode="w") if path.endswith(".zip") else path
            group = zarr.open_group(store, "w")
            group.attrs.update(dict(source.attrs))
            for name in NAMES:
                rows = source[name][:]
                compressor = None if codec is None else numcodecs.get_codec(codec)
                group.create_dataset(name, data=rows, chunks=(chunk,), compressor=compressor)
            if path.endswith(".zip"):
                store.close()
        print(json.dumps(zarr.__version__))
    else:
        agents = zarr.open_group(task["log"], "r")["agents"]
        print(json.dumps(measured(agents, len(agents))))


def measured(agents: Any, n: int) -> dict[str, float]:
    """Microseconds of a row, of 900 rows, at random, and of all; the best of several rounds."""
    rng = np.random.default_rng(0)
    starts = rng.integers(0, n - 900, 200).tolist()
    return {
        "agents[i]": best(lambda: [agents[i] for i in starts]) / 200,
        "agents[i:i+900]": best(lambda: [agents[i : i + 900] for i in starts]) / 200,
        "agents[:]": best(lambda: agents[:]),
    }


def best(work: Callable[[], Any], rounds: int = 7) -> float:
    """The least microseconds of several rounds, after one."""
    work()
    times: list[float] = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e6


def ask(peer: str, task: dict[str, Any]) -> Any:
    """What the peer prints for a task."""
    done = subprocess.run([peer, __file__, "--child", json.dumps(task)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{peer}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def made(path: Path, scenes: int = 3) -> Path:
    """A log of random scenes."""
    from penstock_driving.formats.l5kit import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE, L5KitWriter

    rng = np.random.default_rng(0)
    with L5KitWriter.create(path) as writer:
        for e in range(scenes):
            counts = rng.integers(0, 40, 100)
            frames, ends = np.zeros(100, FRAME_DTYPE), np.cumsum(counts)
            for name in ("agent_index_interval", "traffic_light_faces_index_interval"):
                frames[name] = np.stack([ends - counts, ends], 1)
            agents, faces = np.zeros(ends[-1], AGENT_DTYPE), np.zeros(ends[-1], TL_FACE_DTYPE)
            agents["centroid"], agents["track_id"] = (
                rng.normal(size=(len(agents), 2)),
                rng.integers(99, size=len(agents)),
            )
            faces["face_id"] = rng.choice(["a", "né"], len(faces))
            writer.write_scene(np.array(((0, 0), f"car {e}", e, e + 1), SCENE_DTYPE), frames, agents, faces)
    return path


def digests(path: Path) -> dict[str, Any]:
    """Of a log as we read it."""
    from penstock_driving.formats.l5kit import L5KitSource

    with L5KitSource(path) as source:
        rows = dict(zip(NAMES, (source.scenes, source.frames, source.agents, source.tl_faces), strict=True))
        return {name: digest(found[:]) for name, found in rows.items()}


def both_ways(peer: str, log: Path, root: Path) -> int:
    """How many logs differ when the other reads them."""
    from penstock_driving.formats.l5kit import concat

    ours = [root / f"ours{i}" for i in range(len(OPTIONS))]
    for path, options in zip(ours, OPTIONS, strict=True):
        concat([log], path, **options)
    expected, wrong = digests(log), 0
    for path, found, options in zip(
        ours, ask(peer, {"do": "digest", "paths": [str(p) for p in ours]}), OPTIONS, strict=True
    ):
        wrong += found != expected or digests(path) != expected
        print("ours, read by zarr 2:", "equal" if found == expected else f"OTHERS {found}", options)
    blosc = {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}
    kinds: list[tuple[Any, int]] = [
        (blosc, 20_000),
        ({**blosc, "cname": "zstd"}, 700),
        (None, 999),
        ({"id": "zlib"}, 5000),
        ({"id": "lzma"}, 5000),
    ]
    theirs = {str(root / f"theirs{i}{end}"): kind for i, kind in enumerate(kinds) for end in ("", ".zip")}
    version = ask(peer, {"do": "write", "log": str(log), "out": theirs})
    for path, kind in theirs.items():
        found = digests(Path(path))
        wrong += found != expected
        print(
            f"zarr {version}, read by us:", "equal" if found == expected else f"OTHERS {found}", Path(path).suffix, kind
        )
    figures.record("compared", len(ours) + len(theirs), "count")
    figures.record("equal", len(ours) + len(theirs) - wrong, "count")
    return wrong


def speeds(peer: str, log: Path, root: Path) -> None:
    """Microseconds of ours, of zarr 2, and of a memory map of the same rows, on the log twenty times over."""
    from penstock_driving.formats.l5kit import L5KitSource, concat

    concat([log] * 20, root / "long.zarr")
    concat([log] * 20, root / "flat", layout="npy")
    with L5KitSource(root / "long.zarr") as source:
        agents, n = source.agents, len(source.agents)
        found = {"ours": measured(agents, n)}
        rng = np.random.default_rng(1)

        def cold() -> None:
            for i in rng.integers(0, n - 900, 200).tolist():
                source.cache.clear()
                agents[i : i + 900]

        found["ours, nothing kept"] = {"agents[i:i+900]": best(cold, 3) / 200}
    with L5KitSource(root / "flat") as source:
        found["ours, npy"] = measured(source.agents, n)
    found["zarr 2"] = ask(peer, {"do": "measure", "log": str(root / "long.zarr")})
    flat = np.load(root / "flat" / "agents.npy", mmap_mode="r")
    found["numpy.load(mmap)"] = measured(Copied(flat), n)
    for what, name in (("agents[i]", "row"), ("agents[i:i+900]", "rows"), ("agents[:]", "all")):
        figures.record(f"{name}.ratio", found["zarr 2"][what] / found["ours"][what], "x")
    for name, times in found.items():
        print(f"{name:20}", {what: round(value, 1) for what, value in times.items()})


class Copied:
    """A memory map whose rows are copied, as all others do."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index].copy()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--child", type=json.loads)
    given = parser.parse_args()
    if given.child:
        child(given.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        log = given.log or made(root / "made.zarr")
        wrong = both_ways(given.peer or sys.executable, log, root)
        speeds(given.peer or sys.executable, log, root)
    if wrong:
        raise SystemExit(f"{wrong} logs differ")


if __name__ == "__main__":
    main()
