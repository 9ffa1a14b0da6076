"""Divide wanted frames into runs: packets of one file from a key frame to the last frame wanted, decoded in order.

A run goes on into the next group of pictures if its wanted frames continue there, up to `RUN` packets. So no packet is
decoded twice, and no group of pictures without wanted frames is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock.containers.video.index import PacketIndex
from penstock.core.arrays import IntArray

RUN = 48  # packets of a run, about, so that the runs of a batch can be divided among threads


class WantedFrames(NamedTuple):
    """Different frames, sorted by file and frame, and the rows of the buffer that each of them has."""

    files: IntArray
    frames: IntArray
    places: IntArray
    first: IntArray  # places of frame i are places[first[i] : first[i + 1]]

    @classmethod
    def of(cls, files: Any, frames: Any, places: Any) -> WantedFrames:
        """Sort frames and merge equal ones."""
        wide = [np.asarray(each, np.int64).reshape(-1) for each in np.broadcast_arrays(files, frames, places)]
        order = np.lexsort((wide[1], wide[0]))
        file, frame, place = (each[order] for each in wide)
        new = np.ones(len(order), np.bool_)
        new[1:] = (file[1:] != file[:-1]) | (frame[1:] != frame[:-1])
        first = np.flatnonzero(new)
        return cls(file[first], frame[first], place, np.append(first, len(order)))

    def places_of(self, row: int) -> IntArray:
        """Rows of the buffer for frame `row`."""
        return self.places[self.first[row] : self.first[row + 1]]

    def by_file(self, rows: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Some of the frames, grouped by file."""
        files = self.files[rows]
        edges = np.flatnonzero(files[1:] != files[:-1]) + 1
        for part in np.split(rows, edges):
            if len(part):
                yield int(self.files[part[0]]), part


class PacketRun(NamedTuple):
    """Wanted frames of one file that are decoded together."""

    file: int
    frames: IntArray  # increasing
    rows: IntArray  # numbers of these frames among all different frames of the read


def divided(file: int, index: PacketIndex, numbers: IntArray, rows: IntArray) -> Iterator[PacketRun]:
    """Divide the wanted frames of a file into runs."""
    start, packet = index.start[numbers], index.packet[numbers]
    begin, last = 0, int(packet[0])
    for i in range(1, len(rows)):
        # A frame continues the run if its group of pictures is the one in work, or the next one.
        if start[i] > last + 1 or (start[i] > start[begin] and last - start[begin] >= RUN):
            yield PacketRun(file, numbers[begin:i], rows[begin:i])
            begin, last = i, int(packet[i])
        last = max(last, int(packet[i]))
    yield PacketRun(file, numbers[begin:], rows[begin:])
