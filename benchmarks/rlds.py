"""Steps of an RLDS dataset against TensorFlow Datasets: `python benchmarks/rlds.py --peer PYTHON_WITH_TFDS`.

Claim: penstock reads steps in random order in a tenth of the CPU time in which TFDS reads them in file order, as long
as no pictures are decoded. With pictures (PNG, and JPEG with the extra `jpeg`) it takes less than half of TFDS's
time: decoding them takes most of what is left. The second table has both parts: *parse* is the time of a step without
pictures, *pictures* the rest, and *decoders* the functions that decode the same pictures in the same order, in a loop
with memory at hand: no reader that decodes with them takes less.
Float columns alone are copied in place; TFDS always parses whole records, so that line has no comparison.

Both read the same TFRecord files: the golden episodes (two images of 64 x 96 and 48 x 64 a step), repeated. TFDS reads
in the order of the files, penstock in random order. Runs of both alternate, and the best of `--rounds` counts. Figures
are steps per second of CPU time, because the machine may be busy, and each library has one core: with several, both
spend more, for threads wait for each other.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import figures
import numpy as np

import penstock
from penstock.containers.images import decode_into
from penstock.formats.rlds import columns

GOLDEN = Path(__file__).parents[1] / "tests/golden/rlds/tfrecord/toy_arm/1.0.0"
FLOATS = ["actions", "observations/state", "rewards", "discounts", "language_embedding"]
SHARDS = 4
BATCH = 256
PEER = """
import sys, time
import tensorflow_datasets as tfds
skip = tfds.decode.SkipDecoding()
decoders = {"steps": {"observation": {"image": skip, "wrist_image": skip}}} if sys.argv[2] == "no images" else None
builder = tfds.builder_from_directory(sys.argv[1])
data = builder.as_dataset(split="train", decoders=decoders, shuffle_files=False)
data = data.flat_map(lambda episode: episode["steps"]).batch(256).prefetch(2)
for _ in range(2):  # the first pass builds the graph
    begin, steps = time.process_time(), 0
    for batch in data:
        steps += int(batch["reward"].shape[0])
    rate = steps / (time.process_time() - begin)
print(rate)
"""


def repeated(folder: Path, repeats: int) -> Path:
    """Write the golden episodes several times, as one dataset."""
    path = folder / "toy_arm/1.0.0"
    path.mkdir(parents=True)
    raw = b"".join(file.read_bytes() for file in sorted(GOLDEN.glob("*-train.*"))) * repeats
    for shard in range(SHARDS):
        (path / f"toy_arm-train.tfrecord-{shard:05d}-of-{SHARDS:05d}").write_bytes(raw)
    info = json.loads((GOLDEN / "dataset_info.json").read_text())
    lengths = {"shardLengths": [str(9 * repeats)] * SHARDS, "numBytes": str(len(raw) * SHARDS)}
    info["splits"] = [{**info["splits"][0], **lengths}]
    (path / "dataset_info.json").write_text(json.dumps(info))
    shutil.copy(GOLDEN / "features.json", path)
    return path


def ours(path: Path, kind: str) -> float:
    """Return steps per second of CPU time, of the second pass."""
    names = penstock.open(path).spec
    chosen = FLOATS if kind == "floats" else [name for name in names if kind == "all" or "image" not in name]
    samples = penstock.open(path, columns=chosen).steps().shuffle(seed=0)
    rate = 0.0
    for _ in range(2):  # the first pass compares checksums
        begin = time.process_time()
        steps = sum(len(batch["rewards"]) for batch in samples.loader(batch_size=BATCH, threads=1))
        rate = steps / (time.process_time() - begin)
    return rate


def decoders_alone(path: Path) -> float:
    """Return seconds of CPU time that the decoders take for the pictures of a step, as a loader orders all of them.

    The bytes are in memory, and pixels are written to that of three batches in turn, as a loader does.
    """
    samples = penstock.open(path).steps().shuffle(seed=0)
    calls: list[tuple[bytes, tuple[int, ...]]] = []
    with mock.patch.object(columns, "decode_into", lambda blob, out, **_: calls.append((blob, out.shape))):
        for _ in samples.loader(batch_size=BATCH, threads=1):
            pass
    memory = {shape: np.empty((3 * BATCH, *shape), np.uint8) for shape in {shape for _, shape in calls}}
    begin = time.process_time()
    for i, (blob, shape) in enumerate(calls):
        decode_into(blob, memory[shape][i % (3 * BATCH)])
    return (time.process_time() - begin) / len(samples)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="Python with tensorflow-cpu and tensorflow-datasets")
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        path = repeated(Path(folder), given.repeats)
        print(f"{'columns':12} {'penstock':>10} {'TFDS':>10} {'ratio':>6}   steps per second of CPU time")
        rates: dict[str, tuple[float, float]] = {}
        for kind in ("all", "no images", "floats"):
            mine = theirs = 0.0
            for _ in range(given.rounds):
                mine = max(mine, ours(path, kind))
                if given.peer and kind != "floats":
                    command = [given.peer, "-c", PEER, str(path), kind]
                    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                    theirs = max(theirs, float(out.split()[-1]))
            rates[kind] = mine, theirs
            ratio = f"{mine / theirs:6.2f}" if theirs else "     -"
            print(f"{kind:12} {mine:10,.0f} {theirs:10,.0f} {ratio}")
            figures.record(f"{kind.replace(' ', '_')}.penstock", mine, "/s")
            if theirs:
                figures.record(f"{kind.replace(' ', '_')}.faster", mine / theirs, "x")
        print(f"\n{'of a step':12} {'penstock':>10} {'TFDS':>10}          microseconds of CPU time")
        parse = [1e6 / rate if rate else 0.0 for rate in rates["no images"]]
        pictures = [1e6 / rate - part if rate else 0.0 for rate, part in zip(rates["all"], parse, strict=True)]
        alone = min(decoders_alone(path) for _ in range(given.rounds))
        print(f"{'decoders':12} {1e6 * alone:10,.1f}")
        figures.record("decoders.alone", alone, "s")
        for name, (mine, theirs) in (("parse", parse), ("pictures", pictures)):
            print(f"{name:12} {mine:10,.1f} {theirs:10,.1f}")
            figures.record(f"{name}.penstock", mine / 1e6, "s")
            if theirs:
                figures.record(f"{name}.TFDS", theirs / 1e6, "s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
