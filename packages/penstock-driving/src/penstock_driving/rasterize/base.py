"""Rasterisers prepare many views at once, then draw each into planes that the caller owns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from penstock.core.arrays import AnyArray, ByteArray, Float32Array, FloatArray
from penstock.errors import DataError
from penstock.flow import map_on_threads
from penstock_driving.kernels.pixels import to_unit
from penstock_driving.rasterize.context import RenderContext
from penstock_driving.rasterize.scenes import Scenes, Views

Planes = ByteArray
Draw = Callable[[int, Planes], None]  # view, its planes [C, H, W]: every pixel is written

CHUNK = 32  # views prepared at once: their corners and lanes stay in the cache


class Rasterizer(ABC):
    """Base of rasterizers: `rasterize` draws one view as L5Kit does, `rasterize_batch` many views on threads.

    A rasterizer defines the number of its channels, prepares many views at once, and converts rasters to pictures.

    Example:
        >>> rasterizer = StubRasterizer(RenderContext((3, 2), (1.0, 1.0), (0.5, 0.5)))
        >>> isinstance(rasterizer, Rasterizer), rasterizer.num_channels()
        (True, 3)
    """

    context: RenderContext

    @abstractmethod
    def num_channels(self) -> int:
        """Return the number of channels of a raster."""

    @abstractmethod
    def prepare(self, scenes: Scenes, views: Views) -> Draw:
        """Compute everything about views that can be computed for all at once.

        Args:
            scenes: Rows of a log.
            views: `n` views of them.

        Returns:
            A function of the number of a view and of its planes `[C, H, W]` uint8, which writes every pixel.
        """

    @abstractmethod
    def to_rgb(self, in_im: AnyArray, **kwargs: Any) -> Planes:
        """Convert a raster to a picture.

        Args:
            in_im: `[H, W, C]`, float in 0 to 1 or uint8.
            kwargs: Colours of boxes, for rasterizers with boxes.

        Returns:
            `[H, W, 3]` uint8.

        Raises:
            DataError: `kwargs` are passed, and the rasterizer draws no boxes.
        """

    def rasterize(
        self,
        history_frames: AnyArray,
        history_agents: Sequence[AnyArray],
        history_tl_faces: Sequence[AnyArray],
        agent: Any = None,
    ) -> Float32Array:
        """Draw one raster around the ego or an agent.

        Args:
            history_frames: `[S]` frames: the current one first, then back in time.
            history_agents: For each frame, its agents.
            history_tl_faces: For each frame, its faces of traffic lights.
            agent: Row of the agents' dtype to draw around. The default is None: the ego.

        Returns:
            `[H, W, C]` float32 in 0 to 1, a view of `[C, H, W]` memory.

        Raises:
            DataError: The history is empty.
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
        """Draw rasters of views. The picture does not depend on `threads`; drawing runs without the GIL.

        Pass the same `out` for each batch: new memory costs more than drawing.

        Args:
            scenes: Rows of a log.
            views: `n` views of them.
            out: Contiguous array `[n, C, H, W]` of uint8, or float32 for 0 to 1. The default is None: a new array.
            dtype: `"uint8"` or `"float32"`. The default is the dtype of `out`, else uint8.
            threads: Threads that draw, 1 or more. The default is 1.

        Returns:
            `[n, C, H, W]` rasters.

        Raises:
            DataError: `out` has another shape or dtype, or `threads` is out of range.
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

        def draw(low: int) -> None:
            self._draw(scenes, views.part(low, low + chunk), out[low : low + chunk])

        map_on_threads(draw, lows, threads, name="penstock-raster")
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
        """Return the matrices `[n, 3, 3]` from the world to pixels.

        Yaws of agents are float32, and so are their sines, as in the original.

        Args:
            views: `n` views.
        """
        matrices = self.context.raster_from_world(views.position, views.yaw)
        agents = np.flatnonzero(views.track >= 0)
        if len(agents):
            matrices[agents] = self.context.raster_from_world(
                views.position[agents], views.yaw[agents].astype(np.float32)
            )
        return matrices


class StubRasterizer(Rasterizer):
    """Three black channels, for models that need no picture."""

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
    """A raster in 0..1, whichever form it came in."""
    return image / np.float32(255) if image.dtype == np.uint8 else image


def _form(array: AnyArray) -> str:
    return f"{list(array.shape)} {array.dtype}{'' if array.flags.c_contiguous else ', not contiguous'}"
