"""`Episode`: the columns of one trajectory, checked against the spec of the dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.columns import nest, under
from penstock.core.episode_picture import EpisodePicture
from penstock.core.frozen import set_fields
from penstock.core.html import columns_table, page
from penstock.core.ragged import Array, Ragged
from penstock.core.space_columns import unflatten
from penstock.core.spaces import Space
from penstock.core.spec import Spec
from penstock.core.text import counted
from penstock.errors import SpecError

METADATA = 300  # characters of metadata in a notebook
REQUIRED = ("observations", "actions", "rewards", "terminations", "truncations")


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
        set_fields(episode, spec=spec, columns=columns, id=id, metadata=metadata)
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
