"""`SampleReader`: the rows of drawn samples, in one block of memory for each batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.core.arrays import IntArray
from penstock.core.recycler import Recycler
from penstock.core.spec import Field, Spec
from penstock.kernels.replay import HI, MASK
from penstock.replay.samples import Arrays, SampleLayout
from penstock.replay.segments import SegmentStore

ALIGNMENT = 64  # bytes: outputs begin at cache lines
BUFFERS = 1 << 28  # bytes of batches whose memory is used again
Parts = list[tuple[str, tuple[int, ...], np.dtype[Any], int]]
"""Name, shape, dtype and first byte of each output."""

_MASK = Field(np.dtype(np.bool_))


class SampleReader:
    """Reads samples into one block of memory for each batch. The outputs are parts of the block."""

    def __init__(self, layout: SampleLayout, spec: Spec) -> None:
        self.layout = layout
        self._views = layout.table(spec)
        self._recycler = Recycler(BUFFERS)
        self._plans: dict[tuple[int, int | None], tuple[IntArray, IntArray, int, Parts]] = {}
        self._spec = spec

    def __call__(self, store: SegmentStore, anchors: IntArray) -> Arrays:
        """Read the outputs of anchors."""
        n = len(anchors)
        places = store.find(anchors)
        longest = None if self.layout.longest is None else int(store.lengths(places[:, 0]).max(initial=1))
        plan = self._plans.get((n, longest))
        if plan is None:
            if len(self._plans) >= 64:
                self._plans.clear()
            plan = self._plans[n, longest] = self._plan(n, longest)
        views, offsets, size, parts = plan
        out = self._recycler.empty((size,), np.dtype(np.uint8))
        store.gather(places, views, offsets, out)
        flat: Arrays = {name: np.ndarray(shape, dtype, out, begin) for name, shape, dtype, begin in parts}
        return flat if self.layout.finish is None else self.layout.finish(flat)

    def _plan(self, n: int, longest: int | None) -> tuple[IntArray, IntArray, int, Parts]:
        """Where the outputs of `n` samples are in the block: views, offsets, size, and shape and dtype of each."""
        views = self._views
        if longest is not None:
            views = views.copy()
            views[[not output.squeeze for output in self.layout.outputs], HI] = longest
        offsets: list[int] = []
        parts: Parts = []
        size = 0
        for output in self.layout.outputs:
            rows = () if output.squeeze else (output.rows if longest is None else longest,)
            field = _MASK if output.pad == MASK else self._spec[output.column]
            whole, dtype = (n, *rows, *field.shape), field.dtype
            offsets.append(size)
            parts.append((output.name, whole, dtype, size))
            nbytes = int(np.prod(whole, dtype=np.int64)) * dtype.itemsize
            size += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return views, np.array(offsets, np.int64), max(size, 1), parts
