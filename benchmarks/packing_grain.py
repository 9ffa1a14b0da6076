"""Grain's packers over arrays in a folder: finished rows, shuffled, in batches of 256. Run by `packing.py --peer`.

    python benchmarks/packing_grain.py folder capacity

The folder has `values.npy` and `offsets.npy`. Prints a line of JSON a packer: its name, seconds, packs.
Grain's tree functions are its fast ones where JAX is installed beside it, and the line says whether it is.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import grain
import numpy as np

BINS = 64
BATCH = 256


class Documents:
    def __init__(self, values: Any, offsets: Any) -> None:
        self.values, self.offsets = values, offsets.tolist()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"tokens": self.values[self.offsets[i] : self.offsets[i + 1]]}


def run(documents: Documents, capacity: int, packer: str) -> dict[str, Any]:
    begin, packs = time.perf_counter(), 0
    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    parent = grain.MapDataset.source(documents).shuffle(seed=0).to_iter_dataset(options)
    rows = getattr(grain.experimental, packer)(parent, length_struct={"tokens": capacity}, num_packing_bins=BINS)
    for batch in rows.batch(BATCH, drop_remainder=False):
        packs += len(batch["tokens"])
        assert batch["tokens"].shape == batch["tokens_positions"].shape
    return {"seconds": time.perf_counter() - begin, "packs": packs}


def main() -> None:
    folder, capacity = Path(sys.argv[1]), int(sys.argv[2])
    documents = Documents(np.load(folder / "values.npy"), np.load(folder / "offsets.npy"))
    jax = importlib.util.find_spec("jax") is not None
    for packer in ("FirstFitPackIterDataset", "BestFitPackIterDataset"):
        short = packer.removesuffix("PackIterDataset")
        name = f"Grain {short}, {BINS} bins, {'with' if jax else 'without'} JAX"
        print(json.dumps({"name": name} | run(documents, capacity, packer)))


if __name__ == "__main__":
    main()
