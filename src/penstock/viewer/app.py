"""The server of the viewer: pages, JSON and pictures, for the one user who has the token.

The token is in the address that the command prints. It comes back in a cookie that other sites cannot use. Requests for
another host name are refused, so that another page in the browser cannot reach the server under another name. Pages
load nothing from elsewhere (`Content-Security-Policy`). One endpoint writes: it sets the marks of an episode in the
file of the curation, for JSON that a page of this server sent (`Origin`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import PenstockError, require
from penstock.viewer.viewed import ViewedDataset

STATIC = Path(__file__).parent / "static"
COOKIE = "penstock_token"
HOSTS = ("127.0.0.1", "localhost", "testserver")
POLICY = "default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; frame-ancestors 'none'"
MOST_BODY = 1 << 20  # bytes of a request with marks
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def create_app(datasets: Sequence[ViewedDataset], token: str) -> Any:
    """Return the ASGI application.

    Args:
        datasets: Datasets with different names.
        token: Secret that requests must have, as `?token=` or in the cookie.

    Raises:
        MissingExtraError: Starlette is not installed.
    """
    applications: Any = require("starlette.applications", "serve")
    routing: Any = require("starlette.routing", "serve")
    by_name = {dataset.name: dataset for dataset in datasets}

    def answer(work: Callable[[ViewedDataset, Any], Any]) -> Callable[[Any], Any]:
        """An endpoint of a dataset, run in a thread of the server. Errors of the data are code 400 with a message."""
        responses: Any = require("starlette.responses", "serve")

        def endpoint(request: Any) -> Any:
            dataset = by_name.get(request.path_params["name"])
            if dataset is None:
                return responses.JSONResponse({"error": f"no dataset {request.path_params['name']!r}"}, 404)
            try:
                result = work(dataset, request)
            except (PenstockError, ValueError) as error:
                return responses.JSONResponse({"error": str(error)}, 400)
            return result if isinstance(result, responses.Response) else responses.JSONResponse(result)

        return endpoint

    set_marks = answer(_mark)

    async def mark(request: Any) -> Any:
        responses: Any = require("starlette.responses", "serve")
        concurrency: Any = require("starlette.concurrency", "serve")
        sent = request.headers
        if sent.get("origin") != f"http://{sent.get('host')}":
            return responses.PlainTextResponse("expected a page of this server to ask", 403)
        if sent.get("content-type", "").split(";")[0].strip() != "application/json":
            return responses.PlainTextResponse("expected JSON", 415)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BODY:
                return responses.JSONResponse({"error": f"expected at most {MOST_BODY:,} bytes of marks"}, 413)
        request.state.body = body
        return await concurrency.run_in_threadpool(set_marks, request)

    def pages(request: Any) -> Any:
        return _file(request.path_params.get("path") or "index.html")

    def listed(_: Any) -> Any:
        responses: Any = require("starlette.responses", "serve")
        return responses.JSONResponse([dataset.summary() for dataset in datasets])

    routes = [
        routing.Route("/", pages),
        routing.Route("/static/{path}", pages),
        routing.Route("/api/datasets", listed),
        routing.Route("/api/{name}/info", answer(lambda data, _: data.info())),
        routing.Route("/api/{name}/check", answer(lambda data, _: data.check())),
        routing.Route("/api/{name}/episodes", answer(_episodes)),
        routing.Route("/api/{name}/histogram", answer(_histogram)),
        routing.Route(
            "/api/{name}/episode/{e:int}", answer(lambda data, request: data.episode(request.path_params["e"]))
        ),
        routing.Route("/api/{name}/marks/{e:int}", mark, methods=["POST"]),
        routing.Route("/api/{name}/series/{e:int}", answer(_series)),
        routing.Route("/api/{name}/picture/{e:int}/{row:int}", answer(_picture)),
    ]
    return _Guard(applications.Starlette(routes=routes), token)


def _mark(data: ViewedDataset, request: Any) -> Any:
    try:
        stated: object = json.loads(request.state.body)
    except RecursionError as error:
        raise ValueError("expected JSON of modest depth") from error
    return data.mark(request.path_params["e"], stated)


def _episodes(data: ViewedDataset, request: Any) -> Any:
    query = request.query_params
    return data.episodes(
        where=query.get("where", ""),
        sort=query.get("sort", ""),
        descending=query.get("descending") == "1",
        offset=int(query.get("offset", 0)),
        limit=int(query.get("limit", 100)),
    )


def _histogram(data: ViewedDataset, request: Any) -> Any:
    query = request.query_params
    return data.histogram(query.get("column", ""), where=query.get("where", ""), bins=int(query.get("bins", 40)))


def _series(data: ViewedDataset, request: Any) -> Any:
    """`[n, 2, k]` float32, little-endian, with the shape in a header."""
    responses: Any = require("starlette.responses", "serve")
    query = request.query_params
    last = query.get("last")
    values = data.series(
        request.path_params["e"],
        query.get("column", ""),
        first=int(query.get("first", 0)),
        last=None if last is None else int(last),
        points=int(query.get("points", 2000)),
    )
    shape = ",".join(map(str, values.shape))
    content = np.ascontiguousarray(values, "<f4").tobytes()
    return responses.Response(content, headers={"X-Shape": shape}, media_type="application/octet-stream")


def _picture(data: ViewedDataset, request: Any) -> Any:
    responses: Any = require("starlette.responses", "serve")
    path = request.path_params
    content = data.picture(path["e"], request.query_params.get("camera", ""), path["row"])
    return responses.Response(content, headers={"Cache-Control": "private, max-age=600"}, media_type="image/jpeg")


def _file(name: str) -> Any:
    responses: Any = require("starlette.responses", "serve")
    known = {file.name: file for file in STATIC.iterdir() if file.suffix in TYPES}
    if name not in known:
        return responses.PlainTextResponse("not found", 404)
    return responses.Response(known[name].read_bytes(), media_type=TYPES[known[name].suffix])


class _Guard:
    """Lets requests through that have the token and the name of this machine; adds headers to all answers."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        requests: Any = require("starlette.requests", "serve")
        responses: Any = require("starlette.responses", "serve")
        request = requests.Request(scope)
        given = request.query_params.get("token")
        allowed = [each for each in (given, request.cookies.get(COOKIE)) if each is not None]
        if request.url.hostname not in HOSTS:
            await responses.PlainTextResponse("wrong host", 403)(scope, receive, send)
        elif not any(secrets.compare_digest(each.encode(), self._token.encode()) for each in allowed):
            message = "open the address that penstock printed: it has a token"
            await responses.PlainTextResponse(message, 403)(scope, receive, send)
        else:
            await self._app(scope, receive, _with_headers(send, self._token if given else None))


def _with_headers(send: Any, token: str | None) -> Any:
    """Add headers to an answer: what pages may load, and the cookie if the token was in the address."""
    added = [(b"content-security-policy", POLICY.encode()), (b"x-content-type-options", b"nosniff")]
    added.append((b"referrer-policy", b"no-referrer"))
    if token is not None:
        added.append((b"set-cookie", f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict".encode()))

    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *added]
        await send(message)

    return sent
