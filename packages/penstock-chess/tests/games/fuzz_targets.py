"""Chess games and configurations of Leela's loader that are fuzzed, and how they are read."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from penstock.containers.tar import END, member
from penstock.errors import PenstockError
from penstock_chess.formats.lc0 import RECORDS, open_chunks
from penstock_chess.lczero.binding import load_config
from tests.fuzz.edits import corrupted
from tests.fuzz.targets import Random, Target, bytes_of, copy_of, dataset, the_one


def game(version: int, n: int) -> bytes:
    """Records of a game, each with the version and a format of input."""
    rows = np.zeros(n, RECORDS[version])
    rows["version"] = version
    rows["rule50_count"] = np.arange(n)
    if version >= 5:
        rows["input_format"] = 1
    return rows.tobytes()


def lc0() -> Iterator[Target]:
    """Games in all versions of records, plain, gzipped, in tars, in a folder."""
    read = dataset("lc0", {}, {"damaged": "refuse"}, {"order": "key"})
    for version in (3, 4, 5, 6, 7):
        zipped = gzip.compress(game(version, 3), mtime=0)
        yield Target("lc0", f"gz{version}", bytes_of("training.1.gz", zipped), chunks)
    yield Target("lc0", "sealed", bytes_of("training.1.gz", zipped), chunks, corrupted, sealed=True)
    yield Target("lc0", "frames", bytes_of("training.1", game(6, 4)), read)
    mixed = [member(f"training.{i}.gz", gzip.compress(game(v, 2), mtime=0)) for i, v in enumerate((3, 4, 5, 6, 7, 6))]
    archive = b"".join([*mixed, member("raw", game(7, 2)), member("LICENSE", b"text"), END])
    yield Target("lc0", "tar", bytes_of("training.tar", archive), read)
    yield Target("lc0", "tar chunks", bytes_of("training.tar", archive), chunks)
    yield Target("lc0", "golden", copy_of("lc0/old/v4.gz"), read)
    yield Target("lc0", "folder", copy_of("lc0/gz"), dataset("lc0", {}, {"damaged": "refuse"}))


def chunks(folder: Path, rng: Random) -> tuple[str, bool]:
    """Reads the chunks as live data do, and the dataset."""
    path, digest, reported = the_one(folder), hashlib.sha256(), False
    file = open_chunks(path, limit=1 << 22)
    try:
        for i in range(len(file) if file is not None else 0):
            assert file is not None
            try:
                digest.update(file.load(i).tobytes())
                file.load(i, lambda n: np.arange(0, n, 2))
            except PenstockError:
                reported = True
        if file is not None:
            file.load_some(range(len(file)), lambda i, n: np.arange(0, n, 2))
    finally:
        if file is not None:
            file.close()
    whole, more = dataset("lc0", {}, {"damaged": "refuse"})(folder, rng)
    return digest.hexdigest() + whole, reported or more


CONFIG = """
data_loader {
  stage { name: "files" file_path_provider { directory: "games" } }
  stage { name: "sources" input: "files" chunk_source_loader { threads: 2 } }
  stage { name: "pool" input: "sources" shuffling_chunk_pool { chunk_pool_size: 100 } }
  stage { name: "rescored" input: "pool" chunk_rescorer { dist_temp: 1.2 dist_offset: -.5f } }
  stage { name: "frames" input: "rescored" chunk_unpacker { position_sampling_rate: 0.1 } }
  stage { name: "shuffled" input: "frames" shuffling_frame_sampler { reservoir_size_per_thread: 64 } }
  stage { name: "tensors" input: "shuffled" tensor_generator { batch_size: 50 } }
  output: "tensors"
}
"""


def read_config(folder: Path, rng: Random) -> tuple[str, bool]:
    """The configuration of a loader."""
    text = (folder / "config.textproto").read_bytes().decode("utf-8", "replace")
    return repr(load_config(text)), False


def targets() -> Iterator[Target]:
    """Games, and a configuration."""
    yield from lc0()
    yield Target("textproto", "config", bytes_of("config.textproto", CONFIG.encode()), read_config)
