"""Addresses of the values of an episode: curves, pictures and views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock_studio.viewer.viewed import ViewedDataset

KEEP = {"Cache-Control": "private, max-age=600"}


def episode_routes(of_dataset: Callable[[Callable[[ViewedDataset, Any], Any]], Any]) -> list[Any]:
    """Return the routes of the values of episodes."""
    from starlette import routing

    work: dict[str, Callable[[ViewedDataset, Any], Any]] = {
        "series/{e:int}": _series,
        "picture/{e:int}/{row:int}": _picture,
        "chunk/{e:int}/{number:int}": _chunk,
        "view/{e:int}": lambda data, asked: dict(data.contents.drawn(asked.path_params["e"])),
        "view/{e:int}/array": lambda data, asked: _array(data.contents.drawn_array(asked.path_params["e"])),
    }
    return [routing.Route(f"/api/{{name}}/{place}", of_dataset(each)) for place, each in work.items()]


def _series(data: ViewedDataset, request: Any) -> Any:
    """`[n, 2, k]` float32 values and `[n]` uint8 flags of points."""
    query = request.query_params
    last = query.get("last")
    values, flags = data.contents.series(
        request.path_params["e"],
        query.get("column", ""),
        first=int(query.get("first", 0)),
        last=None if last is None else int(last),
        points=int(query.get("points", 2000)),
    )
    return _array(values, flags.tobytes())


def _picture(data: ViewedDataset, request: Any) -> Any:
    path = request.path_params
    content = data.contents.picture(path["e"], request.query_params.get("camera", ""), path["row"])
    return _bytes(content, "image/jpeg", KEEP)


def _chunk(data: ViewedDataset, request: Any) -> Any:
    path = request.path_params
    content = data.contents.chunk(path["e"], request.query_params.get("camera", ""), path["number"])
    return _bytes(content, "application/octet-stream", KEEP)


def _array(values: AnyArray, more: bytes = b"") -> Any:
    """The values as little-endian float32 with the shape in a header, and bytes behind them."""
    shape = ",".join(map(str, values.shape))
    content = np.ascontiguousarray(values, "<f4").tobytes() + more
    return _bytes(content, "application/octet-stream", {"X-Shape": shape})


def _bytes(content: bytes, kind: str, headers: dict[str, str]) -> Any:
    from starlette import responses

    return responses.Response(content, headers=headers, media_type=kind)
