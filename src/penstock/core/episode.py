"""`Episode`: the columns of one trajectory, checked against the spec of the dataset, and their picture in notebooks."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from penstock.core.arrays import AnyArray, BoolArray, FloatArray, IntArray
from penstock.core.columns import nest, under
from penstock.core.frames import is_picture, pictures
from penstock.core.html import Markup, caption, columns_table, document, image, page
from penstock.core.ragged import Array, Ragged
from penstock.core.space_columns import unflatten
from penstock.core.spaces import Space
from penstock.core.spec import Spec
from penstock.core.svg import WIDE, ChartLine, chart, color
from penstock.core.text import counted
from penstock.errors import SpecError, suggestion

METADATA = 300  # characters of metadata in a notebook
REQUIRED = ("observations", "actions", "rewards", "terminations", "truncations")

FRAMES = 8  # of a camera
SIDE = 96  # pixels of the longer side of a frame
CURVES = 8  # elements of a column
POINTS = 300  # of a curve: with more steps, each point is the range of its steps
HEIGHT = 76.0  # pixels of a curve


@dataclass(frozen=True, eq=False)
class Episode:
    """One trajectory of T steps.

    The names of the Minari standard are properties: `observations` (T + 1 rows, in the structure of the observation
    space), `actions`, `rewards`, `terminations`, `truncations` (T rows each), `infos` (a nested dict) and `extras` (all
    other columns).

    Args:
        spec: Columns and spaces of the dataset.
        columns: Arrays by path. Each has T, T + 1 or 1 rows, as the `align` of its field says.
        id: Number of the episode in the dataset. The default is 0.
        metadata: Metadata of the episode, such as seed, options and statistics. The default is empty.

    Raises:
        SpecError: A column is missing or unknown, or has a wrong number of rows, dtype or shape.

    Example:
        >>> import numpy as np
        >>> from penstock.core.spec import Field
        >>> spec = Spec({"observations": Field(np.dtype("f4"), (2,), "boundary"), "rewards": Field(np.dtype("f8"))})
        >>> episode = Episode(spec, {"observations": np.zeros((4, 2), "f4"), "rewards": np.ones(3)})
        >>> len(episode), episode.total_reward
        (3, 3.0)
    """

    spec: Spec
    columns: Mapping[str, Array]
    id: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if self.columns.keys() != self.spec.fields.keys():
            missing, extra = self.spec.keys() - self.columns.keys(), self.columns.keys() - self.spec.keys()
            raise SpecError(
                f"expected the columns {list(self.spec)}, got {sorted(missing)} missing and {sorted(extra)} too many"
            )
        steps = len(self)
        rows = {"step": steps, "boundary": steps + 1, "episode": 1}
        for path, array in self.columns.items():
            column = self.spec.fields[path]
            ragged = isinstance(array, Ragged)
            if (
                len(array) != rows[column.align]
                or ragged != column.ragged
                or array.dtype != column.dtype
                or not (ragged or array.shape[1:] == column.shape)
            ):
                self._refuse(path, array, rows[column.align], steps)

    @classmethod
    def trusted(cls, spec: Spec, columns: Mapping[str, Array], id: int, metadata: Mapping[str, Any]) -> Episode:
        """Make an episode without checks, from columns that were read by the same spec.

        Args:
            spec: Columns and spaces of the dataset.
            columns: Arrays by path.
            id: Number of the episode in the dataset.
            metadata: Metadata of the episode.
        """
        episode = cls.__new__(cls)
        # A frozen dataclass without slots: one call in place of one a field, for each episode that is read.
        vars(episode).update(spec=spec, columns=columns, id=id, metadata=metadata)
        return episode

    def _refuse(self, path: str, array: Array, rows: int, steps: int) -> NoReturn:
        column = self.spec.fields[path]
        if len(array) != rows:
            raise SpecError(f"expected {rows} {path} for {steps} steps, got {len(array)} - at episode {self.id}")
        if isinstance(array, Ragged) != column.ragged or array.dtype != column.dtype:
            raise SpecError(
                f"expected {path} as {column.kind} of {column.dtype}, got {array.dtype} - at episode {self.id}"
            )
        raise SpecError(f"expected {path} of shape {column.shape}, got {array.shape[1:]} - at episode {self.id}")

    def __len__(self) -> int:
        return steps_of(self.spec, self.columns)

    def __getitem__(self, path: str) -> Any:
        """Return the array of a column, or a nested dict of the columns below a name such as `"infos"`.

        Args:
            path: Name of a column or of a group of columns.

        Raises:
            SpecError: There is no such column.
        """
        name = str(path)
        if not any(under(name, each) for each in self.columns):
            known = list(self.columns)
            if name != path:  # a number, as of a list
                example = f"episode[{known[0]!r}][0] is a value of the first step" if known else "it has no columns"
                raise SpecError(f"expected a column among {known}, got {path!r}; {example}")
            raise SpecError(f"expected a column among {known}, got {path!r}{suggestion(name, known)}")
        return self.columns[name] if name in self.columns else self._part(name, None)

    def __repr__(self) -> str:
        return f"Episode(id={self.id}, steps={len(self)}, columns={list(self.columns)})"

    def _repr_html_(self) -> str:
        texts = [path for path, field in self.spec.items() if field.kind == "text"]
        summary = ", ".join([counted(len(self), "step"), *(f"{key} {value}" for key, value in self.metadata.items())])
        return page(f"Episode {self.id}", summary[:METADATA], columns_table(self.columns, texts))

    def show(self) -> EpisodePicture:
        """Show frames of the cameras and curves of all numbers, with missing values marked, in a notebook.

        Returns:
            The picture. Frames need Pillow.

        Example:
            >>> import penstock
            >>> penstock.from_arrays({"rewards": [0.0, 1.0, 2.0]}, lengths=[3])[0].show()
            Picture of episode 0, 3 steps: rewards
        """
        return EpisodePicture(self)

    def _array(self, path: str) -> AnyArray:
        value: Any = self.columns[path]
        return value

    @property
    def observations(self) -> Any:
        """Observations `[T + 1, ...]`, in the structure of the observation space."""
        return self._part("observations", self.spec.observation_space)

    @property
    def actions(self) -> Any:
        """Actions `[T, ...]`, in the structure of the action space."""
        return self._part("actions", self.spec.action_space)

    @property
    def rewards(self) -> AnyArray:
        """Rewards `[T]`."""
        return self._array("rewards")

    @property
    def terminations(self) -> AnyArray:
        """`[T]` bool, True where the environment terminated."""
        return self._array("terminations")

    @property
    def truncations(self) -> AnyArray:
        """`[T]` bool, True where the episode was truncated."""
        return self._array("truncations")

    @property
    def infos(self) -> dict[str, Any]:
        """Info columns as a nested dict. It is empty if none were recorded."""
        return self._part("infos", None) if any(under("infos", p) for p in self.columns) else {}

    @property
    def extras(self) -> dict[str, Any]:
        """All columns that the Minari standard does not name, as a nested dict, such as `{"state": {"qpos": ...}}`."""
        names = (*REQUIRED, "infos")
        return nest({p: self.columns[p] for p in self.columns if not any(under(name, p) for name in names)})

    @property
    def total_reward(self) -> float:
        """Undiscounted return: the sum of the rewards."""
        return float(np.sum(self.rewards))

    def _part(self, name: str, space: Space | None) -> Any:
        return unflatten(space, {p[len(name) + 1 :]: self.columns[p] for p in self.columns if under(name, p)})


def steps_of(spec: Spec, columns: Mapping[str, Array]) -> int:
    """Return the number of steps of an episode, from its first step or boundary column."""
    for path, column in spec.fields.items():
        if path in columns and column.align != "episode":
            return len(columns[path]) - (column.align == "boundary")
    if not any(path in columns for path in spec.fields):
        raise SpecError(f"expected a column of {list(spec.fields)}, got {list(columns)}")
    return 1


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
        return page(*self._parts())

    def document(self, title: str) -> str:
        """Return the picture as a whole HTML file, which loads nothing.

        Args:
            title: Title of the page.
        """
        _, *rest = self._parts()
        return document(title, page(title, *rest))

    def _parts(self) -> tuple[Any, ...]:
        arrays = self._arrays()
        parts: list[Markup] = []
        for path in self.cameras if importlib.util.find_spec("PIL") else ():
            chosen = _spread(len(arrays[path]))
            steps = ", ".join(map(str, chosen.tolist()))
            parts += [caption(f"{path} at steps {steps}"), _film(arrays[path][chosen])]
        for path in self.curves:
            values = arrays[path].reshape(len(arrays[path]), math.prod(arrays[path].shape[1:]))
            more = f", the first {CURVES} of {values.shape[1]} elements" if values.shape[1] > CURVES else ""
            parts += [caption(f"{path}{more}"), _curves(path, values[:, :CURVES])]
        facts = ", ".join([counted(len(self.episode), "step"), *self._facts()])
        return f"Episode {self.episode.id}", facts, *parts

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


def _curves(path: str, rows: AnyArray) -> Markup:
    """One line for each element. Of several steps in one point, the line goes through the smallest and the largest."""
    values: FloatArray = rows.astype(np.float64)
    if len(values) > POINTS:
        cuts = np.linspace(0, len(values), POINTS, endpoint=False).astype(np.int64)
        with np.errstate(invalid="ignore"):  # comparisons with NaN
            both = [np.minimum.reduceat(values, cuts), np.maximum.reduceat(values, cuts)]
        values = np.stack(both, axis=1).reshape(2 * POINTS, -1)
    missing: BoolArray = np.any(~np.isfinite(values), axis=1)
    curves = [ChartLine("", column, color(i), stepped=rows.dtype.kind in "biu") for i, column in enumerate(values.T)]
    return chart(curves, ("", ""), WIDE, HEIGHT, f"curve of {path}", missing=missing)
