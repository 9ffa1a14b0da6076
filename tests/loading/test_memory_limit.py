"""A process that may not have the memory for a dataset reads an epoch of it, from every format that is written."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.cache import Cache

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the private memory of a process")

FORMATS: dict[str, dict[str, Any]] = {
    "minari": {},
    "webdataset": {},
    "zarr": {},
    "rlds": {},
    "lerobot": {"fps": 10},
}
STEPS, SIDE, EPISODES = 50, 64, 40  # 25 MB of pictures

# Opening, threads and decoders get what they take. From then on the process may have 8 MB more, a third of the data,
# and 8 times `memory=`: the pieces in which the C library and decoders ask for memory.
READER = """
import hashlib, itertools, resource, sys, threading
import penstock
from pathlib import Path

def private():
    return int(Path("/proc/self/status").read_text().split("VmData:")[1].split()[0]) << 10

def read(batches=None):
    total = 0
    for batch in itertools.islice(samples.loader(batch_size=16, threads=2, memory=1 << 20), batches):
        total += batch.n
        for _ in range(8):  # slower than the threads that read ahead
            hashlib.sha256(batch["observations"])
    return total

threading.stack_size(1 << 20)  # a thread that gets no stack waits for ever, in Python itself
data = penstock.open(sys.argv[1])
samples = data.windows(2).shuffle(seed=3)
read(5)
limit = private() + (8 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
print(read(), len(samples))
try:
    held = bytearray(25 << 20)
except MemoryError:
    print("limited")
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    last = np.arange(EPISODES * STEPS) % STEPS == STEPS - 1
    columns = {
        "observations": rng.integers(0, 256, (EPISODES * (STEPS + 1), SIDE, SIDE, 3), np.uint8),
        "actions": rng.random((EPISODES * STEPS, 6), np.float32),
        "rewards": rng.random(EPISODES * STEPS),
        "terminations": last,
        "truncations": last & False,
    }
    path = tmp_path_factory.mktemp("memory") / "columns"
    penstock.convert(penstock.from_arrays(columns, lengths=[STEPS] * EPISODES), path)
    return path


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="Python without a GIL reserves 1 GiB before the limit"
)
@pytest.mark.parametrize("name", ["columns", *FORMATS])
def test_an_epoch_in_a_third_of_the_memory_of_the_data(name: str, store: Path, tmp_path: Path) -> None:
    path = store
    if name != "columns":
        path = tmp_path / f"{name}-v0"
        penstock.convert(store, path, format=name, options=FORMATS[name])
    done = subprocess.run([sys.executable, "-c", READER, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    samples = EPISODES * (STEPS - 1)
    assert done.stdout.split() == [str(samples), str(samples), "limited"]


def test_all_caches_are_within_half_of_the_memory_while_a_loader_runs() -> None:
    cache = Cache(1 << 20)

    def fill() -> int:
        for number in range(10):
            cache.array(number, lambda: np.zeros(100_000, np.uint8))
        return cache.nbytes

    data = penstock.from_arrays({"x": np.arange(64)}, lengths=[64]).steps()
    loader = data.loader(batch_size=4, threads=0, memory=1 << 20)
    assert fill() == 1_000_000
    batches = iter(loader)
    next(batches)
    assert cache.nbytes <= 1 << 19
    assert fill() <= 1 << 19
    batches.close()
    assert fill() == 1_000_000
    assert sum(batch.n for batch in loader) == 64
    assert fill() == 1_000_000
