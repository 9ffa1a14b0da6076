"""The server of the viewer: pages, JSON and pictures, for the one user who has the token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.errors import require
from penstock.viewer.answers import page
from penstock.viewer.dataset_routes import dataset_routes
from penstock.viewer.guard import Guard
from penstock.viewer.viewed import ViewedDataset


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
    routes = [routing.Route("/", page), routing.Route("/static/{path}", page), *dataset_routes(datasets)]
    return Guard(applications.Starlette(routes=routes), token)
