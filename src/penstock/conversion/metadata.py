"""Metadata on its way into a target: JSON, and nothing that describes how the source lay on the disk."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, cast

from penstock.conversion.report import Note
from penstock.core.narrowing import is_array, is_list, is_listed, is_mapping, is_path, is_scalar
from penstock.formats.base.account import CONVERSION as MARK
from penstock.formats.base.writer import Target

STORED_BY_MINARI = frozenset(
    (
        "total_episodes",
        "total_steps",
        "dataset_size",
        "data_format",
        "jpeg_encoding",
        "minari_version",
        "observation_space",
        "action_space",
    )
)
DISCONTINUOUS = "discontinuous_steps"  # entry that the reader of shards makes

COLORS = (None, "RGB", "GRAY")
_COUNTED = frozenset(("id", "total_steps"))  # entries of an episode that the target counts itself


def of_dataset(metadata: Mapping[str, Any], target: Target) -> tuple[dict[str, Any], list[Note]]:
    """The entries of the target, and what is to be said about the others."""
    entries, notes = json_of(metadata, "metadata")
    for name in (DISCONTINUOUS, MARK):
        entries.pop(name, None)
    for name in STORED_BY_MINARI & entries.keys():
        del entries[name]
    if target.minari:
        entries.pop("dataset_id", None)  # the id of the source's place
    if target.seed and entries.get("color_space") not in COLORS:
        value = entries.pop("color_space")
        notes.append(Note("left out", "metadata/color_space", f"expected RGB or GRAY, got {value!r}"))
    return entries, notes


def of_episode(metadata: Mapping[str, Any], target: Target) -> tuple[dict[str, Any], list[Note]]:
    """The entries of one episode, and what is to be said about the others."""
    given = {key: value for key, value in metadata.items() if key not in _COUNTED}
    if target.restored is not None:
        others = sorted(given.keys() - target.restored)
        return {}, [Note("left out", f"episode metadata/{key}", f"{target.name} has no place for it") for key in others]
    entries, notes = json_of(given, "episode metadata")
    if not target.minari:
        return entries, notes
    seed = entries.get("seed")
    if "seed" in entries and (type(seed) is not int or not -(2**63) <= seed < 2**64):
        del entries["seed"]
        if seed is not None:
            notes.append(Note("left out", "episode metadata/seed", "expected an integer of 64 bits"))
    for key in [key for key in entries if "/" in key]:
        notes.append(Note("adapted", f"episode metadata/{key}", "read back as an entry of an object, as / nests names"))
    if target.name == "minari, hdf5":
        for key, value in entries.items():
            if _deep(value):
                entries[key] = json.dumps(value)
                notes.append(
                    Note("adapted", f"episode metadata/{key}", "stored as JSON text, as attributes hold no such list")
                )
    return entries, notes


def json_of(metadata: Mapping[Any, Any], where: str) -> tuple[dict[str, Any], list[Note]]:
    """What JSON can hold, with NumPy as numbers and lists, and a note for everything else."""
    entries: dict[str, Any] = {}
    notes: list[Note] = []
    for key, value in metadata.items():
        if not isinstance(key, str):
            notes.append(Note("adapted", f"{where}/{key}", "the key became text"))
        try:
            entries[str(key)] = _plain(value)
        except (TypeError, RecursionError) as error:
            notes.append(Note("left out", f"{where}/{key}", f"JSON cannot hold it: {error}"))
    return entries, notes


def _plain(value: Any) -> Any:
    if (is_array(value) or is_scalar(value)) and value.dtype.kind in "biufU":
        return value.tolist()
    if is_mapping(value):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if is_listed(value):
        return [_plain(inner) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(inner) for inner in cast("set[Any]", value)), key=str)
    if is_path(value):
        return os.fspath(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__}")


def _deep(value: Any) -> bool:
    """Whether it is a list that no array of numbers or strings is equal to, anywhere in it."""
    if is_mapping(value):
        return any(_deep(inner) for inner in value.values())
    if not is_list(value):
        return False
    return not value or not (
        all(isinstance(v, str) for v in value)
        or all(type(v) in (int, float) and math.isfinite(v) and abs(v) < 2**63 for v in value)
    )
