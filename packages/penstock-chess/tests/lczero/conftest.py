"""Games that were written by the original's tools, what its loader makes of them, and configurations to read them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penstock_chess.lczero import DataLoader

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "lc0"


def config_of(
    directory: Path, *, pool: str = "", rescorer: str | None = None, unpacker: str = "", tail: str = ""
) -> str:
    """A configuration of one output, its stages named after their kinds."""
    rescored = "" if rescorer is None else f'stage {{ name: "rescored" input: "pool" chunk_rescorer {{ {rescorer} }} }}'
    chunks = "pool" if rescorer is None else "rescored"
    return f"""
    stage {{ name: "files" file_path_provider {{ directory: "{directory}" }} }}
    stage {{ name: "sources" input: "files" chunk_source_loader {{}} }}
    stage {{ name: "pool" input: "sources" shuffling_chunk_pool {{ {pool} }} }}
    {rescored}
    stage {{ name: "frames" input: "{chunks}" chunk_unpacker {{ {unpacker or "position_sampling_rate: 1"} }} }}
    stage {{ name: "shuffled" input: "frames" shuffling_frame_sampler {{ reservoir_size_per_thread: 64 }} }}
    stage {{ name: "tensors" input: "shuffled" tensor_generator {{ batch_size: 50 }} }}
    output: "tensors"
    """


def split_config(directory: Path) -> str:
    """A configuration of two outputs, `train` and `test`."""
    branches = "".join(
        f"""
        stage {{ name: "pool_{name}" input: "split.{name}" shuffling_chunk_pool {{}} }}
        stage {{ name: "frames_{name}" input: "pool_{name}" chunk_unpacker {{ position_sampling_rate: 1 }} }}
        stage {{ name: "tensors_{name}" input: "frames_{name}" tensor_generator {{ batch_size: 50 }} }}
        output: "{name}:tensors_{name}"
        """
        for name in ("train", "test")
    )
    return f"""
    stage {{ name: "files" file_path_provider {{ directory: "{directory}" }} }}
    stage {{ name: "sources" input: "files" chunk_source_loader {{}} }}
    stage {{ name: "split" input: "sources" chunk_source_splitter {{
        output {{ name: "train" }} output {{ name: "test" }} weight: 1 weight: 1 }} }}
    {branches}
    """


def expected(name: str) -> list[Any]:
    """Inputs, probabilities and values that the original's loader gives for a folder of golden files."""
    places = GOLDEN / "expected"
    # Rescoring changes no planes, so those of the games before it are kept once.
    of_planes = "gz_raw" if name == "v7_raw" else name
    with np.load(places / f"{of_planes}.npz", allow_pickle=False) as held:
        planes = held["loader_planes"]
    with np.load(places / f"{name}.npz", allow_pickle=False) as held:
        return [planes, held["loader_probs"], held["loader_values"]]


def digests(batches: Iterable[Iterable[Any]]) -> list[bytes]:
    """What each position of batches is, in their order: bit for bit, but all NaN are one."""
    found: list[bytes] = []
    for batch in batches:
        rows = [np.where(np.isnan(array), np.float32(np.nan), array).reshape(len(array), -1) for array in batch]
        found += [hashlib.sha256(row.tobytes()).digest() for row in np.concatenate(rows, axis=1)]
    return found


def batches_of(loader: DataLoader, alias: str) -> Iterator[Any]:
    """The batches of one output."""
    while True:
        try:
            batch = loader.get_next(alias)
        except StopIteration:
            return
        yield batch


def counted(batches: Iterable[Iterable[Any]]) -> Counter[bytes]:
    """How often each position comes."""
    return Counter(digests(batches))
