"""Addresses below `/live`: the figures of a running loader."""

from __future__ import annotations

from typing import Any

from penstock_studio.viewer.answers import answer
from penstock_studio.viewer.live_watch import LiveWatch


def live_routes(watch: LiveWatch) -> list[Any]:
    """Return the routes of a running loader."""
    from starlette import routing

    return [
        routing.Route("/live/figures", answer(lambda asked: watch.figures(float(asked.query_params.get("width", 760)))))
    ]
