"""The webdataset library's side of `benchmarks/shards.py`: decode, pairs, a shuffle buffer, interleaving, batches.

python webdataset_pairs.py WORKERS FOLDER FOLDER
"""

from __future__ import annotations

import random
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import webdataset as wds
from torch.utils.data import DataLoader, IterableDataset


def pairs(samples: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """An observation and the next of the same trajectory."""
    before = None
    for sample in samples:
        if sample["__key__"] == "_metadata":
            continue
        if before is not None:
            yield {"context": before["obs.pickle"], "target": sample["obs.pickle"]}
        before = None if sample["dones.pickle"] else sample


def dataset(folder: Path) -> Any:
    return wds.DataPipeline(
        wds.SimpleShardList(sorted(map(str, folder.glob("*.t*")))),
        wds.split_by_worker,
        wds.tarfile_to_samples(),
        wds.decode(),
        pairs,
        wds.shuffle(1024),
    )


class Interleaved(IterableDataset[Any]):
    """A sample of either, by chance, until one is used up."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders

    def __iter__(self) -> Iterator[Any]:
        streams = [iter(dataset(folder)) for folder in self.folders]
        while True:
            try:
                yield next(streams[random.randrange(len(streams))])
            except StopIteration:
                return


def main() -> None:
    warnings.simplefilter("ignore")
    workers, folders = int(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    torch.set_num_threads(1)
    begin, count = time.perf_counter(), 0
    for batch in DataLoader(Interleaved(folders), batch_size=256, num_workers=workers):
        count += len(batch["context"])
    print(count / (time.perf_counter() - begin))


if __name__ == "__main__":
    main()
