"""`DatasetPicture`: what a dataset is and what is wrong with it, as one page of HTML without scripts."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.html import Markup, caption, document, image, page, table
from penstock.core.narrowing import is_mapping
from penstock.core.spec import is_camera
from penstock.core.svg import cells, color, drawing, label
from penstock.core.text import counted
from penstock.data.dataset_facts import (
    Histogram,
    ShownDataset,
    column_figures,
    end_pictures,
    histogram_of,
    spread_episodes,
    text_counts,
)
from penstock.data.planned_rows import source_name
from penstock.formats.base.findings import Finding
from penstock.formats.base.returns import RETURN, has_returns

WIDTH, HEIGHT = 300.0, 70.0  # of a histogram, in pixels
SMALL = (110.0, 18.0)  # of the histogram of a column
FRAMES = 6  # episodes of which pictures are shown
SIDE = 96  # pixels of the longer side of a picture
EPISODES = 8  # rows of the table
MARGIN = 14.0  # pixels below the bars, for the ends
LISTED = 12  # findings, and entries left out


@dataclass(frozen=True, eq=False)
class DatasetPicture:
    """Result of `EpisodeDataset.show`. Notebooks show it as a page.

    Args:
        data: The episodes.
        findings: Findings of a check of them. The default is none.

    Example:
        >>> import penstock
        >>> picture = DatasetPicture(penstock.from_arrays({"rewards": [0.0, 1.0, 2.0]}, lengths=[2, 1]))
        >>> picture, "<svg" in picture._repr_html_()
        (Picture of 2 episodes, 3 steps, True)
    """

    data: ShownDataset
    findings: Sequence[Finding] = ()

    def __repr__(self) -> str:
        return f"Picture of {self._size}"

    @property
    def _size(self) -> str:
        return f"{counted(len(self.data), 'episode')}, {counted(self.data.total_steps, 'step')}"

    def _repr_html_(self) -> str:
        return page("Dataset", self._size, *self._parts())

    def document(self, title: str) -> str:
        """Return the page as a whole HTML file, which loads nothing.

        Args:
            title: Title of the page.
        """
        return document(title, page(title, self._size, *self._parts()))

    def _parts(self) -> Iterator[Markup]:
        data = self.data
        yield caption(source_name(data.source))
        lengths = np.asarray(data.episodes.length)
        yield _bars(histogram_of(lengths), lengths, "steps of an episode")
        if has_returns(data.spec):
            returns = np.asarray(data.episodes.described()[RETURN])
            yield _bars(histogram_of(returns), returns, "return: sum of the rewards")
        left_out = data.source.account.left_out
        known = {(entry.reason, entry.where) for entry in left_out}
        if findings := [each for each in self.findings if (each.name, each.where) not in known]:
            rows = [(f.level, f.name, f.message, ", ".join(map(str, f.episodes[:6]))) for f in findings[:LISTED]]
            yield table(("harm", "finding", "what", "episodes"), rows)
        if left_out:
            yield caption("left out")
            yield table(("what", "of", "why"), [(e.where, e.thing, e.message) for e in left_out[:LISTED]])
        for path, texts in text_counts(data).items():
            yield caption(f"{path} at the start of episodes")
            yield table(("text", "episodes"), [(text[:200], f"{count:,}") for text, count in texts])
        yield from self._frames()
        yield self._columns()
        first = data[:EPISODES].table()
        yield caption(f"the first {min(EPISODES, len(data))} episodes" if len(data) > EPISODES else "the episodes")
        yield table(list(first), [[_short(first.flat[name][i]) for name in first] for i in range(first.n)])

    def _frames(self) -> Iterator[Markup]:
        cameras = [path for path, field in self.data.spec.items() if is_camera(field)]
        if not cameras or importlib.util.find_spec("PIL") is None:
            return
        chosen = spread_episodes(len(self.data), FRAMES)
        yield caption(f"first and last pictures of {cameras[0]} in episodes {', '.join(map(str, chosen))}")
        frames = [frame for e in chosen for frame in end_pictures(self.data, cameras[0], e)]
        yield Markup("".join(image(frame, SIDE) for frame in frames))

    def _columns(self) -> Markup:
        figures: dict[str, list[dict[str, Any]]] = {}
        for each in column_figures(self.data)["columns"]:
            figures.setdefault(each["path"], []).append(each)
        stated = self.data.metadata.get("units")
        units = dict(stated) if is_mapping(stated) else {}
        rows: list[Sequence[object]] = []
        for path, field in self.data.spec.items():
            about = (
                "text" if field.kind == "text" else field.dtype,
                "x".join(map(str, field.shape)) or "-",
                units.get(path, ""),
            )
            known = figures.get(path)
            rows += [_line(each, about) for each in known] if known else [(path, *about, *[""] * 5)]
        heads = ("column", "dtype", "shape", "unit", "mean", "deviation", "least", "greatest", "histogram")
        return table(heads, rows)


def _line(figures: dict[str, Any], about: Sequence[object]) -> Sequence[object]:
    numbers = [_short(figures[name]) for name in ("mean", "std", "min", "max")]
    counts = Histogram(np.asarray(figures["edges"]), np.asarray(figures["counts"]))
    shown = figures["words"] or drawing(*SMALL, f"histogram of {figures['name']}", *_boxes(counts, *SMALL))
    return figures["name"], *about, *numbers, shown


def _bars(histogram: Histogram, values: AnyArray, name: str) -> Markup:
    """A histogram with the least and the greatest value below it, and its name above."""
    shapes = _boxes(histogram, WIDTH, HEIGHT - MARGIN)
    known = values[np.isfinite(values)]
    if len(known):
        shapes += [label(_short(known.min().item()), 0, HEIGHT - 3)]
        shapes += [label(_short(known.max().item()), WIDTH, HEIGHT - 3, "end")]
    return Markup(caption(name).html + drawing(WIDTH, HEIGHT, f"histogram: {name}", *shapes).html)


def _boxes(histogram: Histogram, width: float, height: float) -> list[str]:
    step = width / max(len(histogram.counts), 1)
    tallest = max(int(histogram.counts.max(initial=0)), 1)
    tall = [max(height * int(n) / tallest, 1.5) if n else 0.0 for n in histogram.counts]
    return [cells((color(0), i * step, height - h, max(step - 1, 1), h) for i, h in enumerate(tall) if h)]


def _short(value: Any) -> str:
    plain: object = value.item() if hasattr(value, "item") else value
    if isinstance(plain, float):
        return f"{plain:.5g}"
    if isinstance(plain, int) and not isinstance(plain, bool):
        return f"{plain:,}"
    return "" if plain is None else str(plain)
