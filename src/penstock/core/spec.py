"""`Field` and `Spec`: the columns of a dataset, and its observation and action spaces."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from penstock.core.columns import under
from penstock.core.frames import is_picture
from penstock.core.frozen import set_fields
from penstock.core.narrowing import is_mapping
from penstock.core.space_json import compact, json_object, json_text
from penstock.core.spaces import Space
from penstock.errors import SpecError, suggestion

Align = Literal["step", "boundary", "episode"]
Kind = Literal["array", "ragged", "text"]

ALIGNS: tuple[Align, ...] = ("step", "boundary", "episode")


@dataclass(frozen=True)
class Field:
    """Dtype, shape and alignment of one column.

    Args:
        dtype: Dtype of the values. Object dtypes are not allowed.
        shape: Shape of one row, or of one value of a ragged row. The default is `()`.
        align: `"step"` for T rows in an episode of T steps, such as actions and rewards. `"boundary"` for T + 1 rows:
            observations before the first step and after every step. `"episode"` for one row. The default is `"step"`.
        kind: `"array"`, `"ragged"` for rows of varying length, or `"text"` for ragged UTF-8 bytes. The default is
            `"array"`.

    Raises:
        SpecError: The dtype contains Python objects, or `align` or `kind` is unknown.

    Example:
        >>> import numpy as np
        >>> Field(np.dtype("float32"), (3,), "boundary").row_bytes
        12
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()
    align: Align = "step"
    kind: Kind = "array"

    def __post_init__(self) -> None:
        set_fields(self, dtype=np.dtype(self.dtype), shape=tuple(int(s) for s in self.shape))
        if self.dtype.hasobject:
            raise SpecError(f"expected a dtype of plain bytes, got {self.dtype}; store text with kind='text'")
        if self.align not in ALIGNS:
            raise SpecError(f"expected align to be one of {ALIGNS}, got {self.align!r}")
        if self.kind not in ("array", "ragged", "text"):
            raise SpecError(f"expected kind to be 'array', 'ragged' or 'text', got {self.kind!r}")

    @property
    def row_bytes(self) -> int:
        """Size of one row of an `"array"` column in bytes."""
        return self.dtype.itemsize * math.prod(self.shape)

    @property
    def ragged(self) -> bool:
        """Whether rows vary in length."""
        return self.kind != "array"

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain values for `from_json`."""
        return {"dtype": self.dtype.str, "shape": list(self.shape), "align": self.align, "kind": self.kind}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Field:
        """Make a field from the output of `to_json`.

        Args:
            data: Mapping with `dtype`, `shape`, `align` and `kind`.

        Raises:
            SpecError: A key is missing, or a value is wrong.

        Example:
            >>> Field.from_json({"dtype": "<f4", "shape": [3], "align": "step", "kind": "array"}).row_bytes
            12
        """
        try:
            return cls(np.dtype(str(data["dtype"])), tuple(data["shape"]), data["align"], data["kind"])
        except (KeyError, TypeError, ValueError) as error:
            raise SpecError(f"expected a field with dtype, shape, align and kind, got {data!r}: {error}") from error


def is_camera(field: Field) -> bool:
    """Whether rows of a column are pictures."""
    return field.kind == "array" and field.dtype == np.uint8 and is_picture(field.shape)


@dataclass(frozen=True, eq=False)
class Spec(Mapping[str, Field]):
    """Columns of a dataset by path, and its observation and action spaces.

    Args:
        fields: A `Field` for each column path.
        observation_space: Space of the observations. The default is None: unknown.
        action_space: Space of the actions. The default is None: unknown.

    Raises:
        SpecError: A path is empty, or has an empty part, as in `"infos//x"`.

    Example:
        >>> import numpy as np
        >>> spec = Spec({"rewards": Field(np.dtype("float64"))})
        >>> spec["rewards"].align, spec.paths("rewards")
        ('step', ['rewards'])
    """

    fields: Mapping[str, Field]
    observation_space: Space | None = None
    action_space: Space | None = None

    def __post_init__(self) -> None:
        for path in self.fields:
            if not all(path.split("/")):
                raise SpecError(f"expected paths of columns without empty parts, got {path!r} in {list(self.fields)}")

    def __getitem__(self, path: str) -> Field:
        """Return the field of a column.

        Args:
            path: Path of the column.

        Raises:
            KeyError: There is no such column.
        """
        try:
            return self.fields[path]
        except KeyError:
            raise KeyError(f"no column {path!r}{suggestion(path, self)}; there are {list(self)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spec) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def _key(self) -> tuple[Any, ...]:
        return dict(self.fields), self.observation_space, self.action_space

    @cached_property
    def aligns(self) -> tuple[Align, ...]:
        """Alignments that at least one column has."""
        return tuple(align for align in ALIGNS if any(field.align == align for field in self.fields.values()))

    def paths(self, prefix: str) -> list[str]:
        """Return the columns at or below a path.

        Args:
            prefix: Path of a column or of a group of columns.

        Raises:
            KeyError: There are no such columns.
        """
        paths = [path for path in self.fields if under(prefix, path)]
        if not paths:
            raise KeyError(f"no column {prefix!r}{suggestion(prefix, self)}; there are {list(self)}")
        return paths

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 hex digest of the fields, and of the spaces in the JSON of the Minari standard.

        Equal specs, and only they, have equal digests.
        """
        spaces = {"observation_space": self.observation_space, "action_space": self.action_space}
        fields = {path: json.dumps(field.to_json(), sort_keys=True) for path, field in self.fields.items()}
        texts = {name: "null" if space is None else json_text(space) for name, space in spaces.items()}
        return hashlib.sha256(json_object({"fields": json_object(fields), **texts}).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain values for `from_json`."""
        spaces = {"observation_space": self.observation_space, "action_space": self.action_space}
        return {
            "fields": {path: field.to_json() for path, field in self.fields.items()},
            **{name: None if space is None else compact(space) for name, space in spaces.items()},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Spec:
        """Make a spec from the output of `to_json`.

        Args:
            data: Mapping with `fields` and, if known, the two spaces.

        Raises:
            SpecError: A key is missing, or a value is wrong.
        """
        fields = data.get("fields")
        if not is_mapping(fields):
            raise SpecError(f"expected an object with 'fields', got {list(data)}")
        spaces = [data.get(name) for name in ("observation_space", "action_space")]
        return cls(
            {str(path): Field.from_json(field) for path, field in fields.items()},
            *(None if space is None else Space.from_json(space) for space in spaces),
        )
