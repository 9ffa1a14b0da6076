"""Task metadata from the first member of an archive, with the stored values."""

from __future__ import annotations

import tarfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.pickle import ColorSpace, loads
from penstock.containers.tar.compress import opened
from penstock.core.narrowing import is_dict
from penstock.core.spaces import Box, Space
from penstock.errors import FormatError

Meta = dict[str, Any]

__all__ = ["COMPARED", "NAME", "TRAJECTORY", "ColorSpace", "Meta", "differences", "metadata_of", "shown"]

TRAJECTORY = "__trajectory__"  # the key of a frame that is the number of its trajectory
NAME = "_metadata.meta.pickle"
COMPARED = ("color_space", "observation_space", "action_space")
_LONGEST = 64 << 20  # bytes into an archive within which its description ends


def metadata_of(paths: Sequence[Path]) -> Meta:
    """Return the metadata of the first archive. Warn about archives whose metadata differ."""
    first, *others = [_read(path) for path in paths]
    if first is None:
        message = f"expected {NAME} as the first member, which mkdataset_demos and mkdataset_random write, got none"
        raise FormatError(message, path=paths[0])
    for path, other in zip(paths[1:], others, strict=True):
        if other is not None and (differing := differences(first, other)):
            warnings.warn(f"metadata of {path} differ from those of {paths[0]}: {'; '.join(differing)}", stacklevel=3)
    return first


def differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[str]:
    """Return the differences between two descriptions, one entry each."""
    names = dict.fromkeys([*left, *right])
    return [f"{n} is {shown(right.get(n))}, not {shown(left.get(n))}" for n in names if left.get(n) != right.get(n)]


def shown(value: Any) -> str:
    """Return a short text for a value; boxes show dtype, shape and range."""
    if isinstance(value, Box):
        low, high = (np.unique(bound) for bound in (value.low, value.high))
        bounds = [str(b[0]) if len(b) == 1 else f"{b[0]}..{b[-1]}" for b in (low, high) if len(b)]
        return f"Box({value.dtype}{list(value.shape)} from {' to '.join(bounds)})"
    return repr(value) if isinstance(value, Space) else repr(value)[:200]


def _read(path: Path) -> Meta | None:
    """Return the first member if it is a description. The archive was read before and is complete."""
    with open(path, "rb") as file:
        reader: Any = opened(file, path, _LONGEST)
        with tarfile.open(fileobj=reader, mode="r|") as archive:
            member = archive.next()
            inside = archive.extractfile(member) if member is not None and member.name == NAME else None
            if inside is None:
                return None
            value = loads(inside.read(), where=NAME, path=path)
    if not is_dict(value):
        raise FormatError(f"expected a dict of metadata, got {type(value).__name__}", path=path, where=NAME)
    return {str(key): entry for key, entry in value.items()}
