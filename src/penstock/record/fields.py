"""List the columns of a space."""

from __future__ import annotations

import numpy as np

from penstock.core import spaces
from penstock.core.spec import Align, Field
from penstock.errors import SpecError


def leaf_field(space: spaces.Space, align: Align) -> Field:
    """Return the field of a leaf space's column.

    Args:
        space: Leaf space.
        align: Alignment of the column.

    Raises:
        SpecError: The space is composite.

    Example:
        >>> leaf_field(spaces.MultiBinary((2, 3)), "step").shape
        (2, 3)
    """
    match space:
        case spaces.Discrete():
            return Field(space.dtype, (), align)
        case spaces.Box() | spaces.MultiDiscrete():
            return Field(space.dtype, space.shape, align)
        case spaces.MultiBinary():
            return Field(np.dtype(np.int8), space.shape, align)
        case spaces.Text():
            return Field(np.dtype(np.uint8), (), align, "text")
        case _:
            raise SpecError(f"expected a space with a column of its own, got {space}")


def space_fields(space: spaces.Space, prefix: str, align: Align) -> dict[str, Field]:
    """Return the fields of all leaves of a space, by path.

    Args:
        space: Any space.
        prefix: Path above all leaves.
        align: Alignment of the columns.

    Example:
        >>> list(space_fields(spaces.Dict({"x": spaces.Discrete(2)}), "observations", "boundary"))
        ['observations/x']
    """
    return {f"{prefix}/{path}" if path else prefix: leaf_field(leaf, align) for path, leaf in space.leaves()}
