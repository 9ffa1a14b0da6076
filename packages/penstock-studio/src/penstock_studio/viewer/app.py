"""The server of the viewer: pages, JSON and pictures, for people who may ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock_studio.viewer.answers import answer, page
from penstock_studio.viewer.dataset_routes import dataset_routes
from penstock_studio.viewer.guard import Access, Guard
from penstock_studio.viewer.live_routes import live_routes
from penstock_studio.viewer.live_watch import LiveWatch
from penstock_studio.viewer.loader_routes import loader_routes
from penstock_studio.viewer.viewed import ViewedDataset
from penstock_studio.viewer.viewed_loader import ViewedLoader


def create_app(
    datasets: Sequence[ViewedDataset],
    access: Access,
    *,
    loader: ViewedLoader | None = None,
    live: LiveWatch | None = None,
) -> Any:
    """Return the ASGI application."""
    from starlette import applications, routing

    pages = {"datasets": len(datasets), "plan": loader is not None, "live": live is not None}
    routes = [
        routing.Route("/", page),
        routing.Route("/static/{path}", page),
        routing.Route("/views/{view}/{path}", page),
        routing.Route("/pages", answer(lambda _: pages)),
        *dataset_routes(datasets, read_only=access.read_only),
        *([] if loader is None else loader_routes(loader, read_only=access.read_only)),
        *([] if live is None else live_routes(live)),
    ]
    return Guard(applications.Starlette(routes=routes), access)
