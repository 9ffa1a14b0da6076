"""`ViewedLoader`: contents of the pages of a loader, as plain data and drawings.

The plan is resolved again for each answer, and no data are read, except to measure the loader. The loader itself does
not move. Methods may be called from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.core.arrays import IntArray
from penstock.data.coverage import COVERED
from penstock.data.plan_figures import BatchGrid, batches_drawing, layout_drawing, mixing_drawing, shares_drawing
from penstock.data.plan_picture import PlanPicture
from penstock.errors import ArgumentError
from penstock.loading.explain import Explanation
from penstock.loading.loader import Loader
from penstock.loading.ticket import Ticket
from penstock.loading.why import Why

MOST_SHOWN = 4096  # samples of all batches of a picture
MOST_LINES = 4096  # rows of a ticket that are listed
MEASURED = 16  # batches, at least


@dataclass(frozen=True)
class SourcePage:
    """Pages of a source of the loader."""

    name: str
    offsets: IntArray
    camera: str


class ViewedLoader:
    """A loader with the answers for its pages."""

    def __init__(self, place: str, loader: Loader[Any], pages: Sequence[SourcePage]) -> None:
        self._place = place
        self._loader = loader
        self._pages = tuple(pages)
        self._measuring = threading.Lock()

    def plan(self, *, batches: int = 16, position: int | None = None, width: float = 760) -> dict[str, Any]:
        """Return figures and drawings of the next batches."""
        picture = self._loader.show(1, position=position)
        size = max(int(picture.edges[1]), 1)
        picture = self._loader.show(min(batches, max(MOST_SHOWN // size, 1)), position=position)
        width = min(max(width, 200.0), 2000.0)
        grid = BatchGrid.of(picture)
        drawings = {
            f"{kind}_{by}": draw(picture, by, width).html
            for kind, draw in (("batches", batches_drawing), ("layout", layout_drawing))
            for by in ("part", "episode")
        }
        charts = {"mixing": mixing_drawing(picture, width), "shares": shares_drawing(picture, width)}
        return {
            "place": self._place,
            "chain": list(picture.chain),
            "sentences": list(picture.sentences),
            "parts": list(picture.parts),
            "sources": list(picture.sources),
            "pages": [page.name for page in self._pages],
            "next": int(picture.positions[-1]) + 1,
            "end": picture.end,
            "width": int(picture.widths.max()),
            "rows": _rows(picture, grid),
            "grid": [grid.batches, grid.columns],
            "batches": _batches(picture),
            "drawings": drawings | {name: chart.html for name, chart in charts.items() if chart is not None},
            "shares": _shares(picture),
            "mixing": _mixing(picture),
        }

    def ticket(self, digits: str, column: str | None = None) -> dict[str, Any]:
        """Return the rows of a batch in their episodes, sorted by the number of rows."""
        why = self._loader.why(digits, column)
        many = min(len(why), MOST_LINES)
        names = ("position", "source", "episode", "step", "rows", "segment", "skipped")
        lines = {name: why.table[name][:many].tolist() for name in names}
        return {
            "ticket": str(why.ticket),
            "place": self._place,
            "position": why.ticket.position,
            "count": why.ticket.count,
            "lines": len(why),
            "sources": list(why.sources),
            "episodes": self._episodes(why, lines),
        }

    def _episodes(self, why: Why, lines: Mapping[str, list[int]]) -> list[dict[str, Any]]:
        """Each episode with its spans `[first step, rows, position]`, sorted by the number of rows."""
        spans: dict[tuple[int, int], list[list[int]]] = {}
        for i, key in enumerate(zip(lines["source"], lines["episode"], strict=True)):
            spans.setdefault(key, []).append([lines["step"][i], lines["rows"][i], lines["position"][i]])
        ranked = sorted(spans, key=lambda key: -sum(rows for _, rows, _ in spans[key]))
        return [{**self._episode(why, *key), "spans": spans[key]} for key in ranked]

    def _episode(self, why: Why, source: int, episode: int) -> dict[str, Any]:
        """Part, page and length of an episode. Samples of a replay have no page."""
        named = {"source": source, "episode": episode, "part": (why.parts or why.sources)[source]}
        page = self._pages[source] if source < len(self._pages) else None
        if page is None or not 0 <= episode < len(page.offsets) - 1:
            return {**named, "page": "", "camera": "", "steps": 0}
        steps = int(page.offsets[episode + 1] - page.offsets[episode])
        return {**named, "page": page.name, "camera": page.camera, "steps": steps}

    def coverage(self, width: float = 760) -> dict[str, Any]:
        """Return which rows are in a sample of the epoch under way, and why others are not. Cost: plans the epoch."""
        covered = self._loader.coverage()
        totals = covered.counts.sum(axis=0).tolist()
        lines = zip((COVERED, *covered.reasons), totals, strict=True)
        return {
            "sentence": covered.sentence,
            "unit": covered.unit,
            "lines": [[reason, total, total / max(covered.rows, 1)] for reason, total in lines],
            "drawing": covered.picture(min(max(width, 200.0), 2000.0)).html,
        }

    def uses(self, episode: int, source: int | None = None) -> dict[str, Any]:
        """Return the batches that had an episode, and later ones that will."""
        uses = self._loader.uses(episode, source)
        many = min(len(uses), MOST_LINES)
        names = ("position", "epoch", "batch", "row", "rank", "given")
        columns = [uses.table[name][:many].tolist() for name in names]
        tickets = ["" if ticket is None else str(ticket) for ticket in uses.tickets[:many]]
        return {
            "sentence": uses.sentence,
            "lines": [list(line) for line in zip(*columns, tickets, strict=True)],
            "more": len(uses) - many,
        }

    def measure(self) -> dict[str, Any]:
        """Load some batches and return the speed of each stage, and what would help. One measurement at a time."""
        if not self._measuring.acquire(blocking=False):
            raise ArgumentError("expected one measurement at a time; wait until the other one has ended")
        try:
            explanation = self._loader.why(batches=MEASURED)
        finally:
            self._measuring.release()
        if isinstance(explanation, Explanation):
            total = sum(stage.seconds for stage in explanation.stages) or 1.0
            rows = [(stage.name, stage.rate, stage.speed, stage.seconds / total) for stage in explanation.stages]
        else:
            rows = [(each.name, max(each.rates.values(), default=0.0), 0.0, each.busy) for each in explanation.stages]
        return {"stages": rows, "sentence": explanation.sentence, "delivered": explanation.delivered}


def _rows(picture: PlanPicture, grid: BatchGrid) -> dict[str, list[int]]:
    """Lines of the samples that are drawn, with the batch and the column of each."""
    sample = picture.rows["sample"]
    batch = picture.edges.searchsorted(sample, side="right") - 1
    column = sample - picture.edges[batch]
    drawn = np.flatnonzero((batch < grid.batches) & (column < grid.columns))
    lines = {name: picture.rows[name][drawn].tolist() for name in picture.rows}
    return {"batch": batch[drawn].tolist(), "column": column[drawn].tolist(), **lines}


def _batches(picture: PlanPicture) -> list[dict[str, Any]]:
    """First position, number of samples and ticket of each batch, over all ranks."""
    listed: list[dict[str, Any]] = []
    for lo, hi in pairwise(picture.edges.tolist()):
        first, last = int(picture.positions[lo]), int(picture.positions[hi - 1])
        ticket = Ticket(first, last + 1 - first, picture.fingerprint[:8])
        listed.append({"first": first, "samples": hi - lo, "ticket": str(ticket)})
    return listed


def _shares(picture: PlanPicture) -> list[list[Any]]:
    """Name, target, share of samples and share of rows of each part of a mix."""
    shares = picture.shares
    if shares is None:
        return []
    wanted = shares.target.mean(axis=0)
    return [
        [name, float(wanted[i]), float(shares.samples[i]), float(shares.rows[i])] for i, name in enumerate(shares.names)
    ]


def _mixing(picture: PlanPicture) -> dict[str, Any] | None:
    mixing = picture.mixing
    if mixing is None:
        return None
    return {
        "neighbours": float(mixing.same[0]),
        "chance": mixing.chance,
        "batch": mixing.batch,
        "episodes": mixing.episodes,
        "expected": mixing.expected,
        "whole": mixing.whole,
    }
