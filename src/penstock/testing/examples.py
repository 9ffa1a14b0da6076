"""Datasets of a few episodes that between them have everything a spec can say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.episode import Episode
from penstock.core.ragged import Array, Ragged, offsets_of
from penstock.core.space_columns import space_fields
from penstock.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from penstock.core.spec import Align, Field, Kind, Spec
from penstock.formats.memory import MemorySource

WORDS = ("", "go", "left", "né", "日本", "a b\n", "🙂")


@dataclass(frozen=True, eq=False)
class Example:
    """A dataset for tests: a spec, and the steps of each episode.

    Args:
        name: Name in test reports.
        spec: Columns and spaces.
        lengths: Steps of each episode.

    Example:
        >>> [len(episode) for episode in FLAT.episodes()]
        [3, 1, 7, 2]
    """

    name: str
    spec: Spec
    lengths: tuple[int, ...]

    def episodes(self, seed: int = 0) -> list[Episode]:
        """Return the episodes, with random values and metadata.

        Args:
            seed: Seed of the values. The default is 0.
        """
        rng = np.random.default_rng(seed)
        return [random_episode(rng, self.spec, steps, e) for e, steps in enumerate(self.lengths)]

    def __repr__(self) -> str:
        return self.name


def random_episode(rng: np.random.Generator, spec: Spec, steps: int, e: int = 0) -> Episode:
    """Return one episode of random values, with metadata of several types; episodes with an even `e` have fewer.

    Args:
        rng: Random numbers.
        spec: Columns and spaces.
        steps: Steps of the episode.
        e: Id of the episode. The default is 0.

    Returns:
        The episode.

    Example:
        >>> len(random_episode(np.random.default_rng(0), FLAT.spec, 5))
        5
    """
    rows = {"step": steps, "boundary": steps + 1, "episode": 1}
    columns = {path: random_column(rng, field, rows[field.align]) for path, field in spec.fields.items()}
    metadata: dict[str, Any] = {"seed": int(rng.integers(1 << 40)), "total": float(rng.normal())}
    if e % 2:
        metadata |= {"note": str(rng.choice(WORDS)), "bonus": float(rng.normal()), "solved": bool(rng.integers(2))}
    return Episode(spec, columns, e, metadata)


def random_column(rng: np.random.Generator, field: Field, rows: int) -> Array:
    """Return random rows of a column, with NaN among floats.

    Args:
        rng: Random numbers.
        field: Field of the column.
        rows: Number of rows.

    Returns:
        The rows.

    Example:
        >>> random_column(np.random.default_rng(0), field("f4", 2), 5).shape
        (5, 2)
    """
    if field.kind == "text":
        return Ragged.from_strings([str(rng.choice(WORDS)) for _ in range(rows)])
    if field.kind == "ragged":
        parts = [random_values(rng, field.dtype, (int(rng.integers(5)),)) for _ in range(rows)]
        return (
            Ragged.from_rows(parts, field.dtype) if parts else Ragged(np.zeros(0, field.dtype), np.zeros(1, np.int64))
        )
    return random_values(rng, field.dtype, (rows, *field.shape))


def random_values(rng: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> AnyArray:
    """Return random numbers of any dtype. All bits of integers are drawn; a tenth of the floats is NaN.

    Args:
        rng: Random numbers.
        dtype: A numeric dtype or bool.
        shape: Shape of the result.

    Returns:
        The numbers.

    Example:
        >>> random_values(np.random.default_rng(0), np.dtype("u2"), (3,)).dtype
        dtype('uint16')
    """
    if dtype.kind in "fc":
        values = np.asarray(rng.normal(size=shape)).astype(dtype)
        return np.where(rng.random(shape) < 0.1, np.array(np.nan, dtype), values).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.integers(2, size=shape)).astype(dtype)
    raw = rng.integers(256, size=(*shape, dtype.itemsize), dtype=np.uint8)
    return np.ascontiguousarray(raw).view(dtype).reshape(shape)


def two_columns(lengths: Sequence[tuple[int, int]]) -> MemorySource:
    """Return records with two ragged columns of tokens, `inputs` and `targets`, and with `name` and `weight`.

    Args:
        lengths: Tokens of `inputs` and of `targets` in each record. `inputs` count from 1, `targets` from 1001.

    Returns:
        A source in memory.

    Example:
        >>> two_columns([(2, 1), (1, 0)]).value_offsets("inputs").tolist()
        [0, 2, 3]
    """
    spec = Spec(
        {
            "inputs": Field(np.dtype("i4"), (), "episode", "ragged"),
            "targets": Field(np.dtype("i4"), (), "episode", "ragged"),
            "name": Field(np.dtype("u1"), (), "episode", "text"),
            "weight": Field(np.dtype("f4"), (), "episode"),
        }
    )
    inputs, targets = (offsets_of([pair[side] for pair in lengths]) for side in (0, 1))
    columns = {
        "inputs": Ragged(np.arange(inputs[-1], dtype="i4") + 1, inputs),
        "targets": Ragged(np.arange(targets[-1], dtype="i4") + 1001, targets),
        "name": Ragged.from_strings([f"r{i}" for i in range(len(lengths))]),
        "weight": np.arange(len(lengths), dtype="f4"),
    }
    return MemorySource(spec, columns, np.arange(len(lengths) + 1))


def field(dtype: str, *shape: int, align: Align = "step", kind: Kind = "array") -> Field:
    """Return a field.

    Args:
        dtype: Name of the dtype.
        shape: Shape of a row.
        align: `"step"` (the default), `"boundary"` or `"episode"`.
        kind: `"array"` (the default), `"ragged"` or `"text"`.

    Returns:
        The field.

    Example:
        >>> field("f4", 2, align="boundary").row_bytes
        8
    """
    return Field(np.dtype(dtype), shape, align, kind)


def _with_spaces(observations: Space, actions: Space, others: dict[str, Field] | None = None) -> Spec:
    fields = space_fields(observations, "observations", "boundary") | space_fields(actions, "actions", "step")
    ends = {"rewards": field("f8"), "terminations": field("?"), "truncations": field("?")}
    return Spec(fields | ends | (others or {}), observations, actions)


def _box(*shape: int, dtype: str = "f4") -> Box:
    return Box(np.zeros(shape, dtype), np.ones(shape, dtype), np.dtype(dtype))


DTYPES = ("?", "i1", "u1", "i2", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8", "c8", "c16")
_ARM = Dict({"arm": _box(3), "goal": Tuple((Discrete(4), _box(2, 2, dtype="f8")))})
_MOVES = Tuple((MultiDiscrete(np.array([2, 3])), MultiBinary(4)))
_INFOS = {f"infos/{name.replace('?', 'bool')}": field(name, *(i % 3,) * (i % 2)) for i, name in enumerate(DTYPES)}

FLAT = Example("flat", _with_spaces(_box(4), Discrete(2)), (3, 1, 7, 2))
IMAGES = Example("images", _with_spaces(_box(8, 8, 3, dtype="u1"), Discrete(2)), (2, 5, 1))
NESTED = Example("nested", _with_spaces(_ARM, _MOVES), (4, 2, 6))
NUMBERS = Example("numbers", _with_spaces(_box(2), Discrete(2), _INFOS), (3, 2))
TEXT = Example("text", _with_spaces(Dict({"mission": Text(8), "where": _box(2)}), Discrete(3)), (3, 1, 4))
RAGGED = Example(
    "ragged",
    _with_spaces(
        _box(2),
        Discrete(2),
        {
            "infos/legal": field("i4", kind="ragged"),
            "infos/hits": field("f8", align="boundary", kind="ragged"),
            "extra/name": field("u1", align="episode", kind="text"),
            "extra/goal": field("f4", 3, align="episode"),
        },
    ),
    (2, 4, 1),
)
EMPTY = Example("empty", RAGGED.spec, (0, 2, 0, 1, 0))

EXAMPLES: tuple[Example, ...] = (FLAT, IMAGES, NESTED, NUMBERS, TEXT, RAGGED, EMPTY)
