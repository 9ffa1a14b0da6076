"""Addresses of the values of an episode: curves, pictures and views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast, get_args

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import ArgumentError, suggestion
from penstock_studio.viewer.column_facts import wire_type
from penstock_studio.viewer.episode_contents import AlignedEpisode, Encoding
from penstock_studio.viewer.viewed import ViewedDataset

KEEP = {"Cache-Control": "private, max-age=600"}


def episode_routes(
    of_dataset: Callable[[Callable[[ViewedDataset, Any], Any]], Any], by_name: Mapping[str, ViewedDataset]
) -> list[Any]:
    """Return the routes of the values of episodes."""
    from starlette import routing

    work: dict[str, Callable[[ViewedDataset, Any], Any]] = {
        "series/{e:int}": partial(_series, by_name),
        "values/{e:int}/{row:int}": lambda data, asked: data.contents.values(_e(asked), asked.path_params["row"]),
        "changes/{e:int}": lambda data, asked: data.contents.changes(_e(asked), _column(asked)),
        "predicted/{e:int}": _predicted,
        "path/{e:int}": lambda data, asked: _array(data.contents.path(_e(asked), _column(asked))),
        "text/{e:int}": lambda data, asked: data.contents.text(_e(asked), _column(asked)),
        "picture/{e:int}/{row:int}": _picture,
        "pixel/{e:int}/{row:int}": _pixel,
        "chunk/{e:int}/{number:int}": _chunk,
        "packets/{e:int}/{number:int}": _packets,
        "view/{e:int}": lambda data, asked: dict(data.contents.drawn(_e(asked))),
        "view/{e:int}/array": lambda data, asked: _array(data.contents.drawn_array(_e(asked)).astype("<f4")),
    }
    return [routing.Route(f"/api/{{name}}/{place}", of_dataset(each)) for place, each in work.items()]


def _e(request: Any) -> int:
    return request.path_params["e"]


def _column(request: Any) -> str:
    return request.query_params.get("column", "")


def _series(by_name: Mapping[str, ViewedDataset], data: ViewedDataset, request: Any) -> Any:
    """`[n, 2, k]` values and `[n]` uint8 flags of points.

    With `minus=E`, `of=NAME`, `first_at`, `other_at` and `step`, the difference from another episode; with
    `predicted=1`, the prediction for each row.
    """
    query = request.query_params
    last, minus = query.get("last"), query.get("minus")
    other = None
    if minus is not None:
        name = query.get("of", data.name)
        if name not in by_name:
            raise ArgumentError(f"no dataset {name!r}{suggestion(name, by_name)}")
        zeros = int(query.get("first_at", 0)), int(query.get("other_at", 0))
        step = float(query.get("step", 1))
        if not 0 < step < float("inf"):
            raise ArgumentError(f"expected a step above 0, got {step}")
        other = AlignedEpisode(by_name[name].contents, int(minus), *zeros, step)
    values, flags = data.contents.series(
        _e(request),
        _column(request),
        first=int(query.get("first", 0)),
        last=None if last is None else int(last),
        points=int(query.get("points", 2000)),
        minus=other,
        predicted=query.get("predicted") == "1",
    )
    return _array(values, flags.tobytes())


def _predicted(data: ViewedDataset, request: Any) -> Any:
    query = request.query_params
    first, last = int(query.get("first", 0)), int(query.get("last", 0))
    return _array(data.contents.predicted(_e(request), _column(request), first, last))


def _picture(data: ViewedDataset, request: Any) -> Any:
    content = data.contents.picture(_e(request), _camera(request), request.path_params["row"], _encoding(request))
    return _bytes(content, "image/png" if content.startswith(b"\x89PNG") else "image/jpeg", KEEP)


def _pixel(data: ViewedDataset, request: Any) -> Any:
    query, row = request.query_params, request.path_params["row"]
    return data.contents.pixel(_e(request), _camera(request), row, int(query.get("x", 0)), int(query.get("y", 0)))


def _chunk(data: ViewedDataset, request: Any) -> Any:
    content = data.contents.chunk(_e(request), _camera(request), request.path_params["number"], _encoding(request))
    return _bytes(content, "application/octet-stream", KEEP)


def _packets(data: ViewedDataset, request: Any) -> Any:
    content = data.contents.packets(_e(request), _camera(request), request.path_params["number"])
    return _bytes(content, "application/octet-stream", KEEP)


def _camera(request: Any) -> str:
    return request.query_params.get("camera", "")


def _encoding(request: Any) -> Encoding | None:
    given = request.query_params.get("encoding")
    if given not in (None, *get_args(Encoding)):
        raise ArgumentError(f"expected an encoding among {list(get_args(Encoding))}, got {given!r}")
    return cast("Encoding | None", given)


def _array(values: AnyArray, more: bytes = b"") -> Any:
    """The values as little-endian floats, with their type and shape in headers, and bytes behind them."""
    dtype = wire_type(values.dtype)
    headers = {"X-Shape": ",".join(map(str, values.shape)), "X-Type": dtype.str[1:]}
    content = np.ascontiguousarray(values, dtype).tobytes() + more
    return _bytes(content, "application/octet-stream", headers)


def _bytes(content: bytes, kind: str, headers: dict[str, str]) -> Any:
    from starlette import responses

    return responses.Response(content, headers=headers, media_type=kind)
