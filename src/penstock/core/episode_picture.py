"""Picture of an episode for notebooks: frames of its cameras, and curves of its numbers with what is missing marked."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from penstock.core.frames import is_picture, pictures
from penstock.core.html import Markup, caption, image, page
from penstock.core.svg import WIDE, ChartLine, chart, color
from penstock.core.text import counted

if TYPE_CHECKING:
    from penstock.core.episode import Episode

FRAMES = 8  # of a camera
SIDE = 96  # pixels of the longer side of a frame
CURVES = 8  # elements of a column
POINTS = 300  # of a curve: with more steps, each point is the range of its steps
HEIGHT = 76.0  # pixels of a curve


@dataclass(frozen=True, eq=False)
class EpisodePicture:
    """Result of `Episode.show`. Notebooks show it as pictures.

    Args:
        episode: The episode.

    Example:
        >>> import penstock
        >>> episode = penstock.from_arrays({"rewards": [0.0, 1.0, 2.0]}, lengths=[3])[0]
        >>> "<svg" in EpisodePicture(episode)._repr_html_()
        True
    """

    episode: Episode

    @property
    def cameras(self) -> tuple[str, ...]:
        """Columns that are shown as frames."""
        return tuple(path for path, array in self._arrays().items() if _is_camera(array))

    @property
    def curves(self) -> tuple[str, ...]:
        """Columns that are shown as curves: numbers with a row for each step."""
        fields = self.episode.spec.fields
        return tuple(
            path
            for path, array in self._arrays().items()
            if fields[path].align != "episode" and array.dtype.kind in "biuf" and not _is_camera(array)
        )

    def _arrays(self) -> dict[str, AnyArray]:
        return {path: array for path, array in self.episode.columns.items() if isinstance(array, np.ndarray)}

    def __repr__(self) -> str:
        shown = ", ".join([*self.cameras, *self.curves])
        return f"Picture of episode {self.episode.id}, {counted(len(self.episode), 'step')}: {shown or 'no numbers'}"

    def _repr_html_(self) -> str:
        arrays = self._arrays()
        parts: list[Markup] = []
        for path in self.cameras if importlib.util.find_spec("PIL") else ():
            chosen = _spread(len(arrays[path]))
            steps = ", ".join(map(str, chosen.tolist()))
            parts += [caption(f"{path} at steps {steps}"), _film(arrays[path][chosen])]
        for path in self.curves:
            values = arrays[path].reshape(len(arrays[path]), math.prod(arrays[path].shape[1:]))
            more = f", the first {CURVES} of {values.shape[1]} elements" if values.shape[1] > CURVES else ""
            parts += [caption(f"{path}{more}"), _curves(path, values[:, :CURVES].astype(np.float64))]
        facts = ", ".join([counted(len(self.episode), "step"), *self._facts()])
        return page(f"Episode {self.episode.id}", facts, *parts)

    def _facts(self) -> list[str]:
        known = {key: value for key, value in self.episode.metadata.items() if isinstance(value, str | int | float)}
        return [f"{key} {value}" for key, value in known.items()][:CURVES]


def _is_camera(array: AnyArray) -> bool:
    return array.dtype == np.uint8 and is_picture(array.shape[1:])


def _spread(n: int) -> IntArray:
    """Numbers of the frames that are shown, from the first to the last."""
    return np.unique(np.linspace(0, n - 1, FRAMES).astype(np.int64)) if n else np.zeros(0, np.int64)


def _film(rows: AnyArray) -> Markup:
    return Markup("".join(image(frames[-1], SIDE) for frames in pictures(rows)))


def _curves(path: str, values: FloatArray) -> Markup:
    """One line for each element. Of several steps in one point, the line goes through the smallest and the largest."""
    if len(values) > POINTS:
        cuts = np.linspace(0, len(values), POINTS, endpoint=False).astype(np.int64)
        with np.errstate(invalid="ignore"):  # comparisons with NaN
            both = [np.minimum.reduceat(values, cuts), np.maximum.reduceat(values, cuts)]
        values = np.stack(both, axis=1).reshape(2 * POINTS, -1)
    missing: BoolArray = np.any(~np.isfinite(values), axis=1)
    curves = [ChartLine("", column, color(i)) for i, column in enumerate(values.T)]
    return chart(curves, ("", ""), WIDE, HEIGHT, f"curve of {path}", missing=missing)
