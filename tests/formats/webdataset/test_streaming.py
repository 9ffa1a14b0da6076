"""Archives read one way: everything once, in an order that the seed says, from any place again, in bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.containers.tar import END, member
from penstock.data.iter_dataset import IterDataset
from penstock.errors import DataError, FormatError, StateError, UnsafeDataError
from penstock.formats.webdataset.streaming import ShardStream

GOLDEN = Path(__file__).parents[2] / "golden" / "ilr" / "shards"


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def shards(folder: Path, sizes: tuple[int, ...] = (7, 1, 12, 5)) -> Path:
    n = 0
    for s, size in enumerate(sizes):
        raw = b""
        for i in range(n, n + size):
            raw += member(f"{i:03d}.cls", b"%d" % i) + member("__skip__/x.bin", bytes(300))
            raw += member(f"{i:03d}.x.npy", npy(np.full((2, 3), i, "f4"))) + member(f"{i:03d}.txt", b"n%d" % i)
        n += size
        (folder / f"s-{s}.tar.gz").write_bytes(gzip.compress(raw + END))
    return folder


def rows(stream: Any) -> list[int]:
    found: list[int] = []
    for block in stream:
        for x, array, text in zip(block["cls"].tolist(), block["x.npy"], block["txt"].strings(), strict=True):
            assert (array == x).all()
            assert text == f"n{x}"
            found.append(x)
    return found


@pytest.mark.parametrize("size", [1, 3, 256])
def test_as_stored_it_is_what_a_source_reads(size: int, tmp_path: Path) -> None:
    stream = ShardStream(shards(tmp_path), rows=size)
    assert stream.shuffling == "none"
    assert rows(stream()) == list(range(25)) == penstock.open(tmp_path).steps()[:]["cls"].tolist()


def test_shuffled_in_a_buffer_by_the_seed(tmp_path: Path) -> None:
    shards(tmp_path)
    orders = [rows(ShardStream(tmp_path, rows=4, shuffle=10, seed=seed)()) for seed in (0, 0, 1, (0, 1))]
    assert orders[0] == orders[1]
    assert all(sorted(order) == list(range(25)) for order in orders)
    assert len({tuple(order) for order in orders}) == 3
    assert ShardStream(tmp_path, shuffle=10).shuffling == "a buffer of 10 samples"


@pytest.mark.parametrize("threads", [1, 2, 9])
@pytest.mark.parametrize("shuffle", [0, 1, 10])
def test_resumed_anywhere_it_goes_on_the_same(shuffle: int, threads: int, tmp_path: Path) -> None:
    stream = ShardStream(shards(tmp_path), rows=3, shuffle=shuffle, seed=5, threads=threads)
    whole = [block["cls"].tolist() for block in stream()]
    for stop in range(len(whole) + 1):
        first = stream()
        before = [next(first)["cls"].tolist() for _ in range(stop)]
        again = ShardStream(tmp_path, rows=3, shuffle=shuffle, seed=5)()
        again.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert before + [block["cls"].tolist() for block in again] == whole
    with pytest.raises(StateError):
        ShardStream(tmp_path, rows=3, shuffle=shuffle, seed=6)().load_state_dict(first.state_dict())


def test_it_is_an_origin_of_iterated_datasets(tmp_path: Path) -> None:
    data = IterDataset(ShardStream(shards(tmp_path), rows=4, shuffle=8, seed=2))
    even = data.filter(lambda c: c["cls"] % 2 == 0).rebatch(5)
    whole = [block["cls"].tolist() for block in even]
    assert sorted(x for block in whole for x in block) == list(range(0, 25, 2))
    iterator = iter(even)
    assert next(iterator)["cls"].tolist() == whole[0]
    again = iter(even)
    again.load_state_dict(iterator.state_dict())
    assert [block["cls"].tolist() for block in again] == whole[1:]


def test_pipes(tmp_path: Path) -> None:
    shards(tmp_path)
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.stdout.buffer.write(open({str(tmp_path / 's-2.tar.gz')!r}, 'rb').read())",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        out = process.stdout
        assert rows(ShardStream({"a pipe": lambda: out})()) == list(range(8, 20))
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes((tmp_path / "s-0.tar.gz").read_bytes()))
    writer.start()
    assert rows(ShardStream({"fifo": lambda: fifo.open("rb")})()) == list(range(7))
    writer.join()


@pytest.mark.parametrize("name", ["A_plain.tar", "A.tgz", "A.tar.zst"])
def test_steps_of_the_seeds_layout(name: str) -> None:
    expected = np.load(GOLDEN / "A_steps.npz")
    blocks = list(ShardStream(GOLDEN / name, rows=5, extensions=[f"{column}.pickle" for column in expected])())
    assert [block.n for block in blocks] == [5, 5, 5, 1]
    for column in expected:
        found = np.concatenate([block[f"{column}.pickle"] for block in blocks])
        assert (found.dtype, found.tolist()) == (expected[column].dtype, expected[column].tolist())


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    shards(tmp_path)
    for bad in ({"rows": 0}, {"shuffle": -1}, {"threads": 0}, {"buffer_bytes": 0}, {"trust": True}, {"images": "x"}):
        with pytest.raises(DataError):
            ShardStream(tmp_path, **bad)  # type: ignore[arg-type]
    with pytest.raises(UnsafeDataError, match="raise"):
        next(ShardStream(tmp_path, buffer_bytes=1000)())
    (tmp_path / "s-9.tar").write_bytes(member("1.cls", b"1") + member("2.pkl", b"cos\nsystem\n(tR.") + END)
    with pytest.raises(FormatError, match=r"s-9\.tar"):
        rows(ShardStream(tmp_path / "s-9.tar")())
    with pytest.raises(FormatError, match="columns"):
        list(ShardStream({"a": lambda: io.BytesIO(member("1.cls", b"1") + member("2.id", b"1"))}, rows=1)())
    raw = (tmp_path / "s-2.tar.gz").read_bytes()
    with pytest.raises(FormatError, match="damaged compression"):
        rows(ShardStream({"a": lambda: io.BytesIO(raw[:-20])})())


def test_a_buffer_ends_where_it_holds_enough(tmp_path: Path) -> None:
    stream = ShardStream(shards(tmp_path), rows=100, shuffle=1000, seed=1, buffer_bytes=9000)
    blocks = [block.n for block in stream()]
    assert len(blocks) > 5
    assert sum(blocks) == 25


MEASURED = """
import io, resource, sys
import numpy as np
from penstock.containers.tar import member
from penstock.formats.webdataset.streaming import ShardStream

class Endless(io.RawIOBase):
    def __init__(self, n): self.n, self.i, self.left = n, 0, b""
    def read(self, size=-1):
        if not self.left and self.i < self.n:
            self.left = member(f"{self.i:09d}.bin", bytes(1 << 18)); self.i += 1
        part, self.left = self.left[:size], self.left[size:]
        return part

def peak(n):
    total = sum(block.n for block in ShardStream({"x": lambda: Endless(n)}, rows=16, shuffle=64)())
    assert total == n
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

few = peak(128)
print((peak(768) - few) // 1024)
"""


def test_memory_is_that_of_the_buffer() -> None:
    """192 MiB pass through a buffer of 16 MiB."""
    done = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64
