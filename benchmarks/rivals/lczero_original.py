"""The original loader of Leela Chess Zero, timed: `python lczero_original.py MODULE_FOLDER DIRECTORY SECONDS CASE`.

MODULE_FOLDER has its built extension module `_lczero_training`. Prints one JSON object. Its configuration is written
here as protocol buffers on the wire, so that nothing else of it is needed.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from typing import Any

# Numbers of the fields of its messages.
STAGE, OUTPUT, NAME, INPUT = 1, 2, 1, 2
KIND = {"files": 4, "sources": 5, "pool": 6, "frames": 7, "shuffled": 8, "tensors": 9, "rescored": 10}
QUEUE = {"files": 2, "sources": 2, "pool": 5, "frames": 4, "shuffled": 3, "tensors": 3, "rescored": 2}
CAPACITY = 16  # of its example


def varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def field(number: int, value: Any) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def stage(name: str, above: str, options: list[tuple[int, Any]], capacity: int = CAPACITY) -> bytes:
    body = b"".join(field(number, value) for number, value in options)
    body += field(QUEUE[name], field(2, capacity))
    return field(STAGE, field(NAME, name) + (field(INPUT, above) if above else b"") + field(KIND[name], body))


def config(directory: str, case: dict[str, Any]) -> bytes:
    tuned = case.get("tuned", False)
    frames = 4096 if tuned else CAPACITY
    hanse = [(6, 1)] if case.get("hanse") else []
    # Its default of four threads that load is kept, but for the tuned settings of its measurements.
    stages = [
        stage("files", "", [(1, directory)]),
        stage("sources", "files", []),
        stage("pool", "sources", [(1, case.get("window", 100_000)), (4, 2 if tuned else 4), *hanse]),
    ]
    above = "pool"
    if case.get("rescore"):
        stages.append(stage("rescored", above, []))
        above = "rescored"
    taken: list[tuple[int, Any]] = [(3, case["count"])] if "count" in case else [(2, float(case["rate"]))]
    stages.append(stage("frames", above, taken, frames))
    above = "frames"
    if case["reservoir"]:
        stages.append(stage("shuffled", above, [(2, case["reservoir"])], frames))
        above = "shuffled"
    stages.append(stage("tensors", above, [(1, 2 if tuned else 1), (2, case["batch_size"])]))
    return b"".join(stages) + field(OUTPUT, "tensors")


def main() -> None:
    folder, directory, seconds, case = sys.argv[1], sys.argv[2], float(sys.argv[3]), json.loads(sys.argv[4])
    sys.path.insert(0, folder)
    import _lczero_training  # pyright: ignore[reportMissingImports]

    begun = time.perf_counter()
    loader = _lczero_training.DataLoader(config(directory, case))
    loader.start()
    loader.get_next()
    first = time.perf_counter() - begun
    cpu, begun, frames = time.process_time(), time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        frames += len(loader.get_next()[0])
    spent = time.perf_counter() - begun
    busy = time.process_time() - cpu
    print(json.dumps({"frames_per_s": frames / spent, "first_s": first, "cpu_us": busy / max(frames, 1) * 1e6}))
    sys.stdout.flush()
    os._exit(0)  # its destructors may wait for its threads


if __name__ == "__main__":
    main()
