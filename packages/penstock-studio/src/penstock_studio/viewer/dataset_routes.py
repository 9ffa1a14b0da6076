"""Addresses below `/api/NAME`: the answers of a `ViewedDataset` for its pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.narrowing import is_dict
from penstock.errors import ArgumentError
from penstock_studio.viewer.answers import answer, not_served
from penstock_studio.viewer.episode_routes import episode_routes
from penstock_studio.viewer.episode_table import Asked
from penstock_studio.viewer.guard import sent_json
from penstock_studio.viewer.viewed import ViewedDataset


def dataset_routes(datasets: Sequence[ViewedDataset], *, read_only: bool) -> list[Any]:
    """Return the routes of datasets.

    Unless `read_only`, one of them writes: it sets the marks of an episode in the file of the curation.
    """
    from starlette import routing

    by_name = {dataset.name: dataset for dataset in datasets}

    def of_dataset(work: Callable[[ViewedDataset, Any], Any]) -> Callable[[Any], Any]:
        def named(request: Any) -> Any:
            name = request.path_params["name"]
            if name not in by_name:
                return not_served(f"no dataset {name!r}")
            return work(by_name[name], request)

        return answer(named)

    def posted(place: str, work: Callable[[ViewedDataset, Any], Any]) -> Any:
        named = of_dataset(work)

        async def endpoint(request: Any) -> Any:
            from starlette import concurrency

            request.state.body, refused = await sent_json(request)
            return refused or await concurrency.run_in_threadpool(named, request)

        return routing.Route(f"/api/{{name}}/{place}", endpoint, methods=["POST"])

    return [
        routing.Route("/api/datasets", answer(lambda _: [dataset.summary() for dataset in datasets])),
        routing.Route("/api/{name}/info", of_dataset(lambda data, _: data.info())),
        routing.Route("/api/{name}/check", of_dataset(lambda data, _: data.check())),
        routing.Route("/api/{name}/figures", of_dataset(lambda data, _: data.figures())),
        routing.Route("/api/{name}/overview", of_dataset(lambda data, _: data.overview())),
        routing.Route("/api/{name}/episodes", of_dataset(_episodes)),
        routing.Route("/api/{name}/histograms", of_dataset(_histograms)),
        routing.Route("/api/{name}/selection", of_dataset(lambda data, asked: data.selection(_asked(asked)))),
        routing.Route("/api/{name}/episode/{e:int}", of_dataset(lambda data, asked: data.episode(_number(asked)))),
        *([] if read_only else [posted("marks/{e:int}", _mark), posted("agreement", _agreement)]),
        *episode_routes(of_dataset, by_name),
    ]


def _number(request: Any) -> int:
    return request.path_params["e"]


def _body(request: Any) -> object:
    try:
        return json.loads(request.state.body)
    except RecursionError as error:
        raise ValueError("expected JSON of modest depth") from error


def _agreement(data: ViewedDataset, request: Any) -> Any:
    return data.agreement(_body(request))


def _mark(data: ViewedDataset, request: Any) -> Any:
    stated = _body(request)
    if not is_dict(stated) or set(stated) != {"before", "after"}:
        raise ArgumentError("expected an object with the marks before and after the change")
    file = request.query_params.get("file")  # that the page had: the server may be another one since
    return data.mark(_number(request), stated["after"], stated["before"], file=file)


def _asked(request: Any) -> Asked:
    query = request.query_params
    seed = query.get("seed")
    return Asked(
        query.get("where", ""),
        query.get("sort", ""),
        query.get("descending") == "1",
        query.get("finding", ""),
        None if seed is None else int(seed),
    )


def _episodes(data: ViewedDataset, request: Any) -> Any:
    query, table = request.query_params, data.table()
    offset, limit = int(query.get("offset", 0)), int(query.get("limit", 100))
    part = table.page(_asked(request), columns=query.getlist("column"), offset=offset, limit=limit)
    return {**part, "known": table.described()}


def _histograms(data: ViewedDataset, request: Any) -> Any:
    query = request.query_params
    return data.table().histograms(query.getlist("column"), _asked(request), int(query.get("bins", 24)))
