"""Minimum track lengths of sampled agents, and conversion of samples to PyTorch tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError, require
from penstock_driving.logs import HOST_BYTES as kMaxStrLength
from penstock_driving.mask import MIN_FUTURE as AGENT_MIN_FRAME_FUTURE
from penstock_driving.mask import MIN_HISTORY as AGENT_MIN_FRAME_HISTORY

__all__ = [
    "AGENT_MIN_FRAME_FUTURE",
    "AGENT_MIN_FRAME_HISTORY",
    "convert_str_to_fixed_length_tensor",
    "kMaxStrLength",
    "move_to_device",
    "move_to_numpy",
]


def convert_str_to_fixed_length_tensor(string: str, max_length: int = kMaxStrLength) -> Any:
    """Return a text as a tensor `[max_length]` uint8 of ASCII, padded with zeros. Needs the extra `torch`."""
    if len(string) > max_length or not string.isascii() or "\0" in string:
        raise DataError(f"expected at most {max_length} ASCII characters without zeros, got {string!r}")
    return require("torch", "torch").tensor([*string.encode("ascii"), *[0] * (max_length - len(string))]).byte()


def move_to_device(data: Mapping[str, Any], device: Any) -> dict[str, Any]:
    return {name: tensor.to(device) for name, tensor in data.items()}


def move_to_numpy(data: Mapping[str, Any]) -> dict[str, npt.NDArray[np.generic]]:
    """Return a dict of tensors as NumPy arrays."""
    return {name: tensor.cpu().numpy() for name, tensor in data.items()}
