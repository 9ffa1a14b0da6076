"""Augmentations of pictures as functions of columns and keys: shift, crop, colour and noise.

Every random number is a function of a sample's key. `MapDataset.map(fn, seed=...)` makes the key from seed and
position, so an augmented sample does not depend on the batch size, threads, ranks or resuming. It changes every epoch.

A key becomes numbers by SplitMix64, with one constant for each kind of number, so that augmentations that share a key
draw independently. The arithmetic is int64 that wraps, which NumPy and torch compute alike: the same key gives the same
shift or crop in both, and a tensor's numbers are drawn on its device. Colours and noise are computed in float32, whose
last bits may differ between the two.

Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014), for the hash; Box and Muller,
"A note on the generation of random normal deviates" (1958).
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, pi, prod, sqrt
from typing import Any, Literal

import numpy as np

from penstock.core.frozen import set_fields
from penstock.core.ragged import Ragged
from penstock.data.normalize import replace_columns
from penstock.errors import ArgumentError, PlanError, SpecError

Layout = Literal["CHW", "HWC"]

# Constants of SplitMix64, as signed numbers.
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)
# Kinds of numbers, each a part of the hash. A change changes every augmented sample.
_SHIFT_DOWN = 1
_SHIFT_RIGHT = 2
_CROP_TOP = 3
_CROP_LEFT = 4
_BRIGHTNESS = 5
_CONTRAST = 6
_SATURATION = 7
_HUE = 8
_NOISE = 9
_FRAME = 10

_LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue in grey, ITU-R BT.601
_BLOCK_BYTES = 1 << 20  # of noise that NumPy computes at once, so that temporaries stay in the processor's cache


@dataclass(frozen=True)
class Augmentation(ABC):
    """Base class of augmentations: frozen functions for `MapDataset.map(fn, seed=...)`.

    They take `Columns` and (nested) dicts of NumPy arrays or torch tensors, and return the same, with the other columns
    as they are. Columns of one augmentation share its draws; use two augmentations with two seeds for separate draws.
    Padding is augmented like other rows.

    Args:
        columns: Path of the column to change, or several. The default is `"observations"`.

    Example:
        >>> isinstance(RandomShift(pad=4), Augmentation)
        True
    """

    columns: str | Sequence[str] = "observations"

    def __post_init__(self) -> None:
        set_fields(self, columns=(self.columns,) if isinstance(self.columns, str) else tuple(self.columns))

    def __call__(self, columns: Any, keys: Any = None) -> Any:
        """Augment the columns of a batch.

        Args:
            columns: `Columns`, or a mapping.
            keys: `[n]` uint64 or int64 random keys, one a sample, which `map` passes if it has a seed. Tensors take
                keys as an array or as a tensor.

        Returns:
            `Columns`, or dicts, with new arrays for the changed columns, of the same dtype.

        Raises:
            ArgumentError: There are no keys.
            SpecError: A column is missing, or is no picture of the right shape or dtype, or the keys do not fit.
        """
        if keys is None:
            raise ArgumentError(f"expected random keys for {type(self).__name__}, got none; use map(fn, seed=0)")

        def change(path: str, column: Any) -> Any:
            if isinstance(column, Ragged):
                raise SpecError(f"expected {path!r} as an array to augment, got a Ragged column")
            return self._changed(path, column, _words(keys, column, path))

        return replace_columns(columns, self.columns, change, "augment")

    @abstractmethod
    def _changed(self, path: str, column: Any, keys: Any) -> Any:
        """Return the new column, for int64 keys of the column's framework and device."""


@dataclass(frozen=True)
class PictureAugmentation(Augmentation):
    """Base class of augmentations of pictures, single or in stacks and windows.

    Args:
        columns: Path of the column to change, or several. The default is `"observations"`.
        layout: Last three axes of the column: `"CHW"` for `[n, ..., C, H, W]`, `"HWC"` for `[n, ..., H, W, C]`. The
            default is `"CHW"`.
        per_frame: Whether every frame of a stack or window has its own draw. The default False shares one draw among
            the frames of a sample.
    """

    layout: Layout = "CHW"
    per_frame: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout not in ("CHW", "HWC"):
            raise PlanError(f"expected layout to be 'CHW' or 'HWC', got {self.layout!r}")

    def _size(self, path: str, column: Any) -> tuple[int, int]:
        """Height and width of the pictures of a column."""
        if column.ndim < 4:
            axes = ", ".join(self.layout)
            raise SpecError(f"expected {path!r} as pictures [n, ..., {axes}], got {list(column.shape)}")
        height, width = column.shape[-2:] if self.layout == "CHW" else column.shape[-3:-1]
        return int(height), int(width)

    def _frame_keys(self, column: Any, keys: Any) -> Any:
        """`[n, F]` keys of the frames of each sample, or `[n, 1]` if they share one."""
        if not self.per_frame:
            return keys[:, None]
        frames = _arange(prod(column.shape[1:-3]), column)
        return _hashed(_hashed(keys + _constant(_FRAME))[:, None] + (frames + 1) * _STEP)

    def _cut(self, column: Any, top: Any, left: Any, size: tuple[int, int]) -> Any:
        """Cut `size` from each picture at `[m]` offsets, repeating its edge outside. `m` counts samples or frames."""
        *lead, a, b, c = map(int, column.shape)
        groups = len(top), prod(lead) // max(len(top), 1)
        if self.layout == "CHW":
            planes, shape = column.reshape(groups[0], groups[1] * a, b, c, 1), (*lead, a, *size)
        else:
            planes, shape = column.reshape(*groups, a, b, c), (*lead, *size, c)
        cut = _cut_tensor if _is_tensor(column) else _cut_array
        return cut(planes, top, left, size).reshape(shape)


@dataclass(frozen=True)
class RandomShift(PictureAugmentation):
    """Move pictures by up to `pad` pixels in each direction, as DrQ does; the edge is repeated in the gap.

    Both offsets are uniform over the `2 * pad + 1` whole numbers from `-pad` to `pad`. Any dtype is possible.

    Args:
        columns: Path of the column to change, or several. The default is `"observations"`.
        layout: Last three axes of the column: `"CHW"` or `"HWC"`. The default is `"CHW"`.
        per_frame: Whether every frame of a stack or window has its own draw. The default is False.
        pad: Most pixels of a move, 0 or more. The default is 4.

    Raises:
        PlanError: An argument is out of range.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"image": np.zeros((6, 3, 84, 84), "uint8")}, lengths=[6])
        >>> data.steps().map(RandomShift("image", pad=4), seed=0)[:]["image"].shape
        (6, 3, 84, 84)

    Source: Kostrikov, Yarats and Fergus, "Image augmentation is all you need" (2020).
    """

    pad: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pad < 0:
            raise PlanError(f"expected pad to be 0 pixels or more, got {self.pad}")

    def _changed(self, path: str, column: Any, keys: Any) -> Any:
        size = self._size(path, column)
        each = self._frame_keys(column, keys).reshape(-1)
        top = _integers(each, _SHIFT_DOWN, 2 * self.pad + 1) - self.pad
        left = _integers(each, _SHIFT_RIGHT, 2 * self.pad + 1) - self.pad
        return self._cut(column, top, left, size)


@dataclass(frozen=True)
class RandomCrop(PictureAugmentation):
    """Cut a part of each picture at a random place, as RAD does.

    The place is uniform over all places inside the picture. Any dtype is possible.

    Args:
        columns: Path of the column to change, or several. The default is `"observations"`.
        layout: Last three axes of the column: `"CHW"` or `"HWC"`. The default is `"CHW"`.
        per_frame: Whether every frame of a stack or window has its own draw. The default is False.
        size: Height and width of the part, or one number for both. The default is 84.

    Raises:
        PlanError: An argument is out of range.
        SpecError: When called, the part is larger than the picture.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"image": np.zeros((6, 100, 100, 3), "uint8")}, lengths=[6])
        >>> data.steps().map(RandomCrop("image", "HWC", size=84), seed=0)[:]["image"].shape
        (6, 84, 84, 3)

    Source: Laskin et al., "Reinforcement learning with augmented data" (2020).
    """

    size: int | tuple[int, int] = 84

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self._wanted) < 1:
            raise PlanError(f"expected size to be 1 pixel or more, got {self.size}")

    @property
    def _wanted(self) -> tuple[int, int]:
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    def _changed(self, path: str, column: Any, keys: Any) -> Any:
        size, (height, width) = self._wanted, self._size(path, column)
        if size[0] > height or size[1] > width:
            raise SpecError(f"expected {path!r} to be at least {size[0]} x {size[1]} pixels, got {height} x {width}")
        each = self._frame_keys(column, keys).reshape(-1)
        top = _integers(each, _CROP_TOP, height - size[0] + 1)
        left = _integers(each, _CROP_LEFT, width - size[1] + 1)
        return self._cut(column, top, left, size)


@dataclass(frozen=True)
class ColorJitter(PictureAugmentation):
    """Change brightness, contrast, saturation and hue by random amounts.

    In this order: all values are multiplied by a factor for brightness; differences from the picture's mean by one for
    contrast; differences from each pixel's grey by one for saturation; and colours turn about the grey axis by the
    angle for hue. Each factor is uniform from `1 - amount` to `1 + amount`. uint8 values are rounded, and clipped to
    0 to 255 at the end. Floats are not clipped, and black is 0 in them.

    Saturation and hue need red, green and blue as the channels, or several such pictures in the channels.

    Args:
        columns: Path of the column to change, or several. The default is `"observations"`.
        layout: Last three axes of the column: `"CHW"` or `"HWC"`. The default is `"CHW"`.
        per_frame: Whether every frame of a stack or window has its own draw. The default is False.
        brightness: Amount of brightness, 0 to 1. The default is 0.
        contrast: Amount of contrast, 0 to 1. The default is 0.
        saturation: Amount of saturation, 0 to 1. The default is 0.
        hue: Largest angle, in turns, 0 to 0.5. The default is 0.

    Raises:
        PlanError: An argument is out of range.
        SpecError: When called, the channels are no colours, or the dtype is neither uint8 nor a float.

    Example:
        >>> import numpy as np
        >>> jitter = ColorJitter("image", brightness=0.5)
        >>> batch = {"image": np.full((2, 3, 4, 4), 100, "uint8")}
        >>> jitter(batch, np.array([1, 2], "uint64"))["image"][:, 0, 0, 0].tolist()
        [94, 81]
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        amounts = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.5}
        for name, most in amounts.items():
            if not 0 <= getattr(self, name) <= most:
                raise PlanError(f"expected {name} to be 0 to {most}, got {getattr(self, name)}")

    def _changed(self, path: str, column: Any, keys: Any) -> Any:
        self._size(path, column)
        values = _floating(column, path)
        each = self._frame_keys(column, keys)
        scale, contrast = (
            1 + amount * _uniform(each, kind, values)
            for amount, kind in ((self.brightness, _BRIGHTNESS), (self.contrast, _CONTRAST))
        )
        *lead, a, b, c = map(int, column.shape)
        frames = values.reshape(lead[0], prod(lead[1:]), a, b, c)
        mean = _as_type(frames.mean((2, 3, 4), dtype=_namespace(column).float64), values)
        offset = ((1 - contrast) * scale * mean)[:, :, None, None, None]
        factor = (scale * contrast)[:, :, None, None, None]
        if self.saturation or self.hue:
            frames = self._colours(path, frames, each)
        return _like(frames * factor + offset, column).reshape(column.shape)

    def _colours(self, path: str, frames: Any, keys: Any) -> Any:
        """Change saturation and hue by one matrix a frame. Both leave grey as it is."""
        n, count, a, b, c = map(int, frames.shape)
        channels = a if self.layout == "CHW" else c
        if channels % 3:
            raise SpecError(
                f"expected {path!r} to have red, green and blue for saturation and hue, got {channels} channels"
            )
        matrix = self._matrix(keys, frames)  # [n, F or 1, 3, 3]
        if self.layout == "CHW":
            flat = frames.reshape(n, count, a // 3, 3, b * c)
            return (matrix[:, :, None] @ flat).reshape(frames.shape)
        flat = frames.reshape(n, count, a * b * (c // 3), 3)
        return (flat @ matrix.swapaxes(-1, -2)).reshape(frames.shape)

    def _matrix(self, keys: Any, like: Any) -> Any:
        xp = _namespace(like)
        grey, identity, even, turn = (_float_array(rows, like) for rows in _MATRICES)
        saturation = (1 + self.saturation * _uniform(keys, _SATURATION, like))[:, :, None, None]
        angle = (2 * pi * self.hue * _uniform(keys, _HUE, like))[:, :, None, None]
        saturated = saturation * identity + (1 - saturation) * grey
        rotation = xp.cos(angle) * (identity - even) + even + xp.sin(angle) * turn  # Rodrigues, about (1, 1, 1)
        return rotation @ saturated


# For `ColorJitter`: every channel becomes luma; identity; every channel becomes the mean; cross product with the axis.
_MATRICES = (
    [_LUMA] * 3,
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    [[1 / 3] * 3] * 3,
    [[0.0, -1 / sqrt(3), 1 / sqrt(3)], [1 / sqrt(3), 0.0, -1 / sqrt(3)], [-1 / sqrt(3), 1 / sqrt(3), 0.0]],
)


@dataclass(frozen=True)
class GaussianNoise(Augmentation):
    """Add normal noise to every value of a column of any shape.

    The noise of a value is a function of the sample's key and of the value's number in the row. uint8 values are
    rounded, and clipped to 0 to 255. Floats are not clipped. Draws are at most 5.8 standard deviations.

    Args:
        columns: Path of the column to change, or several. The default is `"observations"`.
        std: Standard deviation, in the unit of the column, at least 0. The default is 1.

    Raises:
        PlanError: `std` is negative or not finite.
        SpecError: When called, the dtype is neither uint8 nor a float.

    Example:
        >>> import numpy as np
        >>> noise = GaussianNoise("state", std=0.1)
        >>> noise({"state": np.zeros((1000, 4))}, np.arange(1000, dtype="uint64"))["state"].std().round(2).item()
        0.1
    """

    std: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isfinite(self.std) and self.std >= 0):
            raise PlanError(f"expected std to be a number of at least 0, got {self.std}")

    def _changed(self, path: str, column: Any, keys: Any) -> Any:
        n, width = len(column), prod(column.shape[1:])
        values = _floating(column, path).reshape(n, width)
        streams = _hashed(keys + _constant(_NOISE))
        rows = n if _is_tensor(column) else max(1, _BLOCK_BYTES // (4 * max(width, 1)))
        xp = _namespace(column)
        out = xp.empty_like(column).reshape(n, width)
        for start in range(0, n, max(rows, 1)):
            block = slice(start, start + rows)
            out[block] = _like(values[block] + self.std * _normal(streams[block], width, values), column)
        return out.reshape(column.shape)


def _is_tensor(column: Any) -> bool:
    return type(column).__module__.partition(".")[0] == "torch"


def _namespace(column: Any) -> Any:
    """NumPy, or torch, which a tensor's program has loaded."""
    return sys.modules["torch"] if _is_tensor(column) else np


def _words(keys: Any, column: Any, path: str) -> Any:
    """`[n]` int64 keys of the column's framework and device."""
    xp = _namespace(column)
    keys = keys if _is_tensor(keys) else np.asarray(keys)
    if str(keys.dtype).rpartition(".")[2] not in ("uint64", "int64") or tuple(keys.shape) != (len(column),):
        raise SpecError(
            f"expected one key of 64 bits for each of the {len(column)} rows of {path!r}, "
            f"got {keys.dtype}{list(keys.shape)}"
        )
    if _is_tensor(column):
        keys = keys if _is_tensor(keys) else xp.from_numpy(np.array(keys).view(np.int64))
        return keys.view(xp.int64).to(column.device)
    if _is_tensor(keys):
        raise SpecError(f"expected keys as an array for {path!r}, which is one, got a tensor")
    return keys.view(np.int64)


def _arange(stop: int, like: Any) -> Any:
    if _is_tensor(like):
        return _namespace(like).arange(stop, device=like.device)
    return np.arange(stop, dtype=np.int64)


def _float_array(rows: Any, like: Any) -> Any:
    return like.new_tensor(rows) if _is_tensor(like) else np.asarray(rows, like.dtype)


def _constant(kind: int) -> int:
    """`kind` times the step of SplitMix64, as a signed number of 64 bits."""
    word = kind * _STEP % (1 << 64)
    return word - (1 << 64) if word >> 63 else word


def _shifted(words: Any, by: int) -> Any:
    """Shift right without sign."""
    return (words >> by) & ((1 << (64 - by)) - 1)


def _hashed(words: Any) -> Any:
    """The finish of SplitMix64."""
    words = (words ^ _shifted(words, 30)) * _FIRST
    words = (words ^ _shifted(words, 27)) * _SECOND
    return words ^ _shifted(words, 31)


def _integers(keys: Any, kind: int, count: int) -> Any:
    """Uniform over `0 : count`, up to `count / 2^32`."""
    return (_shifted(_hashed(keys + _constant(kind)), 32) * count) >> 32


def _uniform(keys: Any, kind: int, like: Any) -> Any:
    """Uniform over `[-1, 1)`, as multiples of 2^-23, which float32 holds exactly."""
    return _as_type(_shifted(_hashed(keys + _constant(kind)), 40) - (1 << 23), like) * 2.0**-23


def _normal(streams: Any, width: int, like: Any) -> Any:
    """`[n, width]` standard normal. A hash makes two: 23 bits for the radius, 24 others for the angle."""
    xp = _namespace(like)
    pairs = _arange((width + 1) // 2, like)
    words = _hashed(streams[:, None] + (pairs + 1) * _STEP)
    radius = xp.sqrt(-2 * xp.log((_as_single(_shifted(words, 41)) + 0.5) * 2.0**-23))
    angle = _as_single(words & ((1 << 24) - 1)) * (2 * pi * 2.0**-24)
    both = xp.stack([radius * xp.cos(angle), radius * xp.sin(angle)], -1)
    return both.reshape(len(streams), -1)[:, :width]


def _as_single(words: Any) -> Any:
    return words.float() if _is_tensor(words) else words.astype(np.float32)


def _as_type(values: Any, like: Any) -> Any:
    return values.to(like.dtype) if _is_tensor(values) else values.astype(like.dtype)


def _floating(column: Any, path: str) -> Any:
    """Return float64 as it is, other floats and uint8 as float32."""
    name = str(column.dtype).rpartition(".")[2]
    if name == "float64":
        return column
    if name != "uint8" and "float" not in name:
        raise SpecError(f"expected {path!r} as uint8 or floats, got {column.dtype}")
    return _as_single(column)


def _like(values: Any, column: Any) -> Any:
    if str(column.dtype).rpartition(".")[2] == "uint8":
        values = _namespace(column).round(values).clip(0, 255)
    return _as_type(values, column)


def _cut_array(planes: Any, top: Any, left: Any, size: tuple[int, int]) -> Any:
    """Cut `[m, G, h, w, K]` from `[m, G, H, W, K]`, one gather of whole windows."""
    extents = planes.shape[2:4]
    margins = [
        (max(0, -int(place.min(initial=0))), max(0, int(place.max(initial=0)) + length - extent))
        for place, length, extent in zip((top, left), size, extents, strict=True)
    ]
    padded = np.pad(planes, ((0, 0), (0, 0), *margins, (0, 0)), mode="edge") if any(map(any, margins)) else planes
    windows = np.lib.stride_tricks.sliding_window_view(padded, size, axis=(2, 3))
    windows = np.moveaxis(windows, 4, -1)  # [m, G, places down, places right, h, w, K]
    return np.ascontiguousarray(windows[np.arange(len(top)), :, top + margins[0][0], left + margins[1][0]])


def _cut_tensor(planes: Any, top: Any, left: Any, size: tuple[int, int]) -> Any:
    """Cut `[m, G, h, w, K]` from `[m, G, H, W, K]`, by indices that stop at the edge."""
    rows, columns = (
        (place[:, None] + _arange(length, planes)).clamp(0, extent - 1)
        for place, length, extent in zip((top, left), size, planes.shape[2:4], strict=True)
    )
    samples = _arange(len(top), planes)[:, None, None]
    return planes[samples, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2, 4)
