"""`dataset_by_step`: some examples of a task as they are before and behind each of its preprocessors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.data.dataset import EpisodeDataset
from penstock.errors import PlanError
from penstock.formats.records import RandomAccess
from penstock_mirrors.airio.examples import ELEMENT, of_episodes
from penstock_mirrors.airio.flow import Flow, Preprocessor
from penstock_mirrors.airio.runtime import AirIOInjectedRuntimeArgs

MOST = 1000  # records that are looked at


def dataset_by_step(
    name: str,
    source: EpisodeDataset | RandomAccess,
    preprocessors: Sequence[Preprocessor],
    args: AirIOInjectedRuntimeArgs,
    *,
    num_records: int,
    shuffle: bool,
    seed: int,
) -> list[list[Any]]:
    """Return the first records of a source, and what they are behind each preprocessor, and as batches.

    As long as functions of one example were met, elements are what those return; behind others, arrays or dicts of
    arrays.
    """
    if not 1 <= num_records <= MOST:
        raise PlanError(f"expected num_records from 1 to {MOST}, got {num_records}")
    examples = of_episodes(source) if isinstance(source, EpisodeDataset) else source
    order = np.arange(min(num_records, len(examples)))
    if shuffle:
        np.random.default_rng(seed).shuffle(order)
    records = [examples[int(i)] for i in order]
    steps = [list(records)]
    flow = Flow.start(name, records, args, seed, each=True)
    for i in range(len(preprocessors)):
        flow = flow.apply_one(preprocessors, i) if steps[-1] else flow
        steps.append(_elements(flow) if steps[-1] else [])  # where all were left out, there is nothing to show
    if args.batch_size is not None:
        batches = flow.columns().dataset.loader(args.batch_size, rank=0, world=1, threads=0) if steps[-1] else ()
        steps.append([_unwrapped(batch) for batch in batches])
    return steps


def _elements(flow: Flow) -> list[Any]:
    if flow.examples is not None:
        return [flow.examples[i] for i in range(len(flow.examples))]
    return [_unwrapped(row) for row in flow.dataset]


def _unwrapped(element: Any) -> Any:
    """An example, or a batch, that is no dict, as itself."""
    return element[ELEMENT] if list(element) == [ELEMENT] else element
