"""Facts of columns for their curves: names of elements, unit, names of values, form.

Names of elements come from the features of LeRobot, or from `element_names` in the metadata of a dataset, by path.
Units are `units` in the metadata, by path, as a mapping writes them. Names of values are `value_names`, by path: a
list, or an object from values to names; `action_meanings` name the values of `actions`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from penstock.core.narrowing import is_dict, is_list
from penstock.core.spec import Field
from penstock.doctor.block import is_clock

MOST_VALUES = 64  # named values of a column
AXES = ("x", "y", "z")
POSITIONS = ("position", "positions", "pos", "xyz", "xy", "translation", "location", "agent_pos", "centroid")
GOALS = ("achieved_goal", "desired_goal")


def column_facts(path: str, field: Field, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return `elements` of a row, `names` of them, `unit`, names of `values`, `form`, `path` and `align` of a column of
    numbers.

    The form is `"line"` for measured values, `"step"` for integers and `"state"` for values with names. `path` lists
    the elements that are a position, two or three; it is empty for others.
    """
    elements = math.prod(field.shape)
    names = _element_names(path, elements, metadata)
    values = _value_names(path, field, metadata)
    form = "line" if field.dtype.kind == "f" else "state" if values else "step"
    return {
        "elements": elements,
        "names": names,
        "unit": unit_of(path, field, metadata),
        "values": values,
        "form": form,
        "path": _position(path, field, names) if field.dtype.kind == "f" else [],
        "align": field.align,
    }


def unit_of(path: str, field: Field, metadata: Mapping[str, Any]) -> str:
    """Return the unit of a column, or an empty text."""
    units, depths = metadata.get("units"), metadata.get("depth")
    if is_dict(units) and isinstance(unit := units.get(path), str):
        return unit
    if is_dict(depths) and is_dict(depth := depths.get(path)) and isinstance(unit := depth.get("unit"), str):
        return unit
    return ("s" if field.dtype.kind == "f" else "ns") if is_clock(path, field) else ""


def _element_names(path: str, elements: int, metadata: Mapping[str, Any]) -> list[str]:
    """Names of the elements of a column, or none."""
    stated = metadata.get("element_names")
    if is_dict(stated) and is_list(named := stated.get(path)):
        return [str(name) for name in named] if len(named) == elements else []
    features, stored = metadata.get("features"), metadata.get("names")
    if not is_dict(features):
        return []
    name = stored.get(path, path) if is_dict(stored) else path
    feature = features.get(str(name))
    names = list(_texts(feature.get("names"))) if is_dict(feature) else []
    return names if elements > 1 and len(names) == elements else []


def _texts(names: object) -> Iterator[str]:
    """Names of a feature: a list, or an object of lists such as `{"motors": [...]}`."""
    for each in names.values() if is_dict(names) else [names]:
        if is_list(each):
            yield from (str(name) for name in each)


def _value_names(path: str, field: Field, metadata: Mapping[str, Any]) -> dict[str, str]:
    """Names of the values of a column, by the value as text."""
    if field.dtype.kind == "b":
        return {"0": "false", "1": "true"}
    if field.dtype.kind not in "iu":
        return {}
    stated = metadata.get("value_names")
    named = stated.get(path) if is_dict(stated) else None
    if named is None and path == "actions":
        named = metadata.get("action_meanings")
    if is_list(named):
        named = {str(value): name for value, name in enumerate(named)}
    if not is_dict(named) or len(named) > MOST_VALUES:
        return {}
    return {str(value): str(name) for value, name in named.items()}


def _position(path: str, field: Field, names: list[str]) -> list[int]:
    """The elements of a column that are a position."""
    last = [name.rpartition(".")[2].rpartition("/")[2].lower() for name in names]
    named = [last.index(axis) for axis in AXES if last.count(axis) == 1]
    if len(named) > 1:
        return named
    leaf = path.rpartition("/")[2].lower()
    is_position = leaf in (*POSITIONS, *GOALS) or leaf.endswith(("_pos", "_position", "_translation", "_xyz", "_xy"))
    return list(range(field.shape[0])) if is_position and field.shape in ((2,), (3,)) else []


def wire_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which values are sent, which has all of them: float32 or float64.

    Integers beyond 2**53 are the exception: the page asks for the exact ones of a row.
    """
    return np.dtype("<f4") if np.promote_types(dtype, np.float32) == np.float32 else np.dtype("<f8")
