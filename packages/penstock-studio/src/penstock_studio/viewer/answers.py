"""Endpoints of the viewer: answers as JSON, errors of the data as messages, and its static files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock_studio.views import view_kinds

STATIC = Path(__file__).parent / "static"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def answer(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return an endpoint that runs in a thread of the server."""
    from starlette import responses

    def endpoint(request: Any) -> Any:
        try:
            result = work(request)
        except (PenstockError, ValueError) as error:
            return responses.JSONResponse({"error": str(error)}, 400)
        return result if isinstance(result, responses.Response) else responses.JSONResponse(result)

    return endpoint


def not_served(message: str) -> Any:
    """Return an answer of code 404."""
    from starlette import responses

    return responses.JSONResponse({"error": message}, 404)


def page(request: Any) -> Any:
    """Return one of the static files, of the viewer or of a view; the page itself by default."""
    from starlette import responses

    name = request.path_params.get("path") or "index.html"
    view = request.path_params.get("view")
    kind = None if view is None else view_kinds().get(view)
    folder = STATIC if view is None else None if kind is None else kind.folder
    known = {} if folder is None else {file.name: file for file in folder.iterdir() if file.suffix in TYPES}
    if name not in known:
        return responses.PlainTextResponse("not found", 404)
    return responses.Response(known[name].read_bytes(), media_type=TYPES[known[name].suffix])
