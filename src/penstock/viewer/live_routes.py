"""Addresses below `/live`: the figures of a running loader."""

from __future__ import annotations

from typing import Any

from penstock.errors import require
from penstock.viewer.answers import answer
from penstock.viewer.live_watch import LiveWatch


def live_routes(watch: LiveWatch) -> list[Any]:
    """Return the routes of a running loader."""
    routing: Any = require("starlette.routing", "serve")
    return [
        routing.Route("/live/figures", answer(lambda asked: watch.figures(float(asked.query_params.get("width", 760)))))
    ]
