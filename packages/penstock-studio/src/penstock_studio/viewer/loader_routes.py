"""Addresses below `/loader`: the answers of a `ViewedLoader` for its pages."""

from __future__ import annotations

from typing import Any

from penstock_studio.viewer.answers import answer
from penstock_studio.viewer.guard import sent_json
from penstock_studio.viewer.viewed_loader import ViewedLoader


def loader_routes(loader: ViewedLoader, *, read_only: bool) -> list[Any]:
    """Return the routes of a loader. Unless `read_only`, one works for seconds: it measures the loader."""
    from starlette import routing

    def plan(request: Any) -> Any:
        query = request.query_params
        position = query.get("position")
        return loader.plan(
            batches=int(query.get("batches", 16)),
            position=None if position is None else int(position),
            width=float(query.get("width", 760)),
        )

    def uses(request: Any) -> Any:
        source = request.query_params.get("source")
        return loader.uses(int(request.query_params.get("episode", "")), None if source is None else int(source))

    def coverage(request: Any) -> Any:
        return loader.coverage(float(request.query_params.get("width", 760)))

    measure = answer(lambda _: loader.measure())

    async def measured(request: Any) -> Any:
        from starlette import concurrency

        _, refused = await sent_json(request)
        return refused or await concurrency.run_in_threadpool(measure, request)

    return [
        routing.Route("/loader/plan", answer(plan)),
        routing.Route("/loader/uses", answer(uses)),
        routing.Route("/loader/coverage", answer(coverage)),
        routing.Route(
            "/loader/ticket/{ticket}",
            answer(lambda asked: loader.ticket(asked.path_params["ticket"], asked.query_params.get("column"))),
        ),
        *([] if read_only else [routing.Route("/loader/measure", measured, methods=["POST"])]),
    ]
