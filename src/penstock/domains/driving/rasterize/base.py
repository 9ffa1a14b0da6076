"""Rasterisers prepare many views at once, then draw each into planes that the caller owns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, Float32Array, FloatArray
from penstock.domains.driving.kernels.pixels import to_unit
from penstock.domains.driving.rasterize.context import RenderContext
from penstock.domains.driving.rasterize.scenes import Scenes, Views
from penstock.errors import DataError

Planes = ByteArray
Draw = Callable[[int, Planes], None]  # view, its planes [C, H, W]: every pixel is written

CHUNK = 32  # views prepared at once: their corners and lanes stay in the cache


class Rasterizer(ABC):
    """Pictures of views of scenes. Implementations say how many channels they have, prepare, and colour.

    `rasterize` draws one view as L5Kit does; `rasterize_batch` many, into one buffer, on threads.
    """

    context: RenderContext

    @abstractmethod
    def num_channels(self) -> int:
        """How many channels a raster has."""

    @abstractmethod
    def prepare(self, scenes: Scenes, views: Views) -> Draw:
        """Everything about `views` that can be worked out for all at once; returns what draws one of them."""

    @abstractmethod
    def to_rgb(self, in_im: AnyArray, **kwargs: Any) -> Planes:
        """A raster `[H, W, C]`, float in 0..1 or uint8, as a picture `[H, W, 3]` uint8."""

    def rasterize(
        self,
        history_frames: AnyArray,
        history_agents: Sequence[AnyArray],
        history_tl_faces: Sequence[AnyArray],
        agent: Any = None,
    ) -> Float32Array:
        """One raster `[H, W, C]` float32 in 0..1, around the vehicle or around `agent`, a row of the agents' dtype.

        Histories begin with the current frame and go back in time. The result is a view of `[C, H, W]` memory.
        Raises `DataError` for an empty history.
        """
        scenes = Scenes.of_lists(history_frames, history_agents, history_tl_faces)
        steps = np.arange(len(scenes.frames))[None]
        chosen = None if agent is None else np.asarray(agent).reshape(1)
        views = Views.of_ego(scenes, steps) if chosen is None else Views.of_agents(scenes, steps, chosen)
        return self.rasterize_batch(scenes, views, dtype="float32")[0].transpose(1, 2, 0)

    def rasterize_batch(
        self,
        scenes: Scenes,
        views: Views,
        out: AnyArray | None = None,
        *,
        dtype: Literal["uint8", "float32"] | None = None,
        threads: int = 1,
    ) -> AnyArray:
        """Rasters `[n, C, H, W]` of `views`, in `out` where there is one: uint8, or float32 in 0..1.

        Hand the same `out` in again and again: fresh memory costs more than drawing. The picture does not depend on
        `threads`; drawing leaves the GIL. Raises `DataError` for an `out` of another form.
        """
        wanted = np.dtype(dtype or ("uint8" if out is None else out.dtype.name))
        shape = (len(views), self.num_channels(), *self.context.shape)
        if wanted.name not in ("uint8", "float32"):
            raise DataError(f"expected rasters of uint8 or float32, got {wanted}")
        if out is None:
            out = np.empty(shape, wanted)
        if out.shape != shape or out.dtype != wanted or not (out.flags.c_contiguous and out.flags.writeable):
            raise DataError(f"expected out as {list(shape)} {wanted}, contiguous and writeable, got {_form(out)}")
        if threads < 1:
            raise DataError(f"expected at least one thread, got {threads}")
        chunk = max(1, min(CHUNK, -(-len(views) // threads)))
        lows = range(0, len(views), chunk)
        if threads == 1 or len(lows) == 1:
            for low in lows:
                self._draw(scenes, views.part(low, low + chunk), out[low : low + chunk])
            return out
        with ThreadPoolExecutor(threads) as pool:

            def draw(low: int) -> None:
                self._draw(scenes, views.part(low, low + chunk), out[low : low + chunk])

            list(pool.map(draw, lows))
        return out

    def _draw(self, scenes: Scenes, views: Views, out: AnyArray) -> None:
        draw = self.prepare(scenes, views)
        if out.dtype == np.uint8:
            for view in range(len(views)):
                draw(view, out[view])
            return
        planes = np.empty(out.shape[1:], np.uint8)
        for view in range(len(views)):
            draw(view, planes)
            to_unit(planes.reshape(-1), out[view].reshape(-1))

    def matrices(self, views: Views) -> FloatArray:
        """`raster_from_world` `[n, 3, 3]`. Agents' yaws are float32, and so are their sines, as in the original."""
        matrices = self.context.raster_from_world(views.position, views.yaw)
        agents = np.flatnonzero(views.track >= 0)
        if len(agents):
            matrices[agents] = self.context.raster_from_world(
                views.position[agents], views.yaw[agents].astype(np.float32)
            )
        return matrices


class StubRasterizer(Rasterizer):
    """Three black channels, for what needs no picture.

    >>> StubRasterizer(RenderContext((3, 2), (1.0, 1.0), (0.5, 0.5))).num_channels()
    3
    """

    def __init__(self, context: RenderContext) -> None:
        self.context = context

    def num_channels(self) -> int:
        """Three."""
        return 3

    def prepare(self, scenes: Scenes, views: Views) -> Draw:
        """Nothing to prepare."""

        def draw(_view: int, planes: Planes) -> None:
            planes.fill(0)

        return draw

    def to_rgb(self, in_im: AnyArray, **kwargs: Any) -> Planes:
        """Black. Raises `DataError` for colours, which nothing is drawn in."""
        refuse_colors(kwargs)
        return np.zeros((*self.context.shape, 3), np.uint8)


def refuse_colors(kwargs: dict[str, Any]) -> None:
    """Raise `DataError` for arguments of `to_rgb` that a rasterizer without boxes does not use."""
    if kwargs:
        raise DataError(f"expected no {', '.join(kwargs)}, which are for rasters with boxes")


def unit(image: AnyArray) -> AnyArray:
    """A raster in 0..1, whichever form it came in.

    >>> unit(np.array([255], np.uint8)).tolist()
    [1.0]
    """
    return image / np.float32(255) if image.dtype == np.uint8 else image


def _form(array: AnyArray) -> str:
    return f"{list(array.shape)} {array.dtype}{'' if array.flags.c_contiguous else ', not contiguous'}"
