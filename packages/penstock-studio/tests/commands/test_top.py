"""`penstock top`: figures of a running loader, as JSON and in Textual's picture."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from live.snapshots import snapshot
from penstock_live.endpoint import MetricsEndpoint
from penstock_studio.commands import top
from tests.cli.conftest import Call


def test_nobody_there_is_said(call: Call) -> None:
    with MetricsEndpoint(lambda: {"time": 0.0, "stages": {}}) as endpoint:
        port = endpoint.port
    answer = call("top", port)
    assert answer.code == 2
    assert "expected a loader at" in answer.err


def test_top_prints_json(call: Call) -> None:
    seconds = iter(range(9))
    with MetricsEndpoint(lambda: {"time": float(next(seconds)), "stages": {}}) as endpoint:
        found = call("top", endpoint.url, "--interval", 0.1, "--json").json
    assert (found["seconds"], found["bottleneck"]) == (1.0, None)


def shown(app: Any) -> tuple[list[list[Any]], str]:
    """The rows and the sentence that an application shows."""
    data = app.query_one("DataTable")
    table = [data.get_row_at(i) for i in range(data.row_count)]
    return table, str(app.query_one("#says").render())


def piloted(looks: Callable[[], Mapping[str, Any]], act: Callable[[Any, Any], Any]) -> None:
    """Run an application without a terminal; `act(app, pilot)` is a coroutine function."""

    async def run() -> None:
        app = top.make_app(looks, 3600.0, "here")
        async with app.run_test(size=(140, 30)) as pilot:
            await act(app, pilot)

    asyncio.run(run())


def test_top_shows_stages_and_names_the_bottleneck() -> None:
    looks = iter(snapshot(*each) for each in [(5, 0, 0), (6, 0.9, 100), (7, 1.4, 100), (1, 0, 0), (2, 0.1, 0)])

    async def act(app: Any, pilot: Any) -> None:
        assert shown(app) == ([], "the first rates appear at the second update")
        await app.take_look()
        table, says = shown(app)
        assert [row[0] for row in table] == ["chunk_unpacker", "tensor_generator", "other"]
        assert says == "chunk_unpacker is the bottleneck: busy 90 % of the time"
        await app.take_look()  # of both looks together, not of the last alone
        assert shown(app)[1] == "chunk_unpacker is the bottleneck: busy 70 % of the time"
        await app.take_look()  # it was started again
        assert shown(app)[1] == "chunk_unpacker is the bottleneck: busy 70 % of the time"
        await app.take_look()
        assert shown(app)[1].startswith("no stage is the bottleneck")

    piloted(lambda: next(looks), act)


def test_top_waits_while_it_is_paused_and_quits() -> None:
    looks = [snapshot(0, 0, 0), snapshot(1, 0.9, 100)]

    async def act(app: Any, pilot: Any) -> None:
        await pilot.press("space")
        await app.take_look()
        assert len(looks) == 1
        await pilot.press("space")
        await app.take_look()
        assert looks == []
        assert len(shown(app)[0]) == 3
        await pilot.press("q")
        assert app.return_code == 0

    piloted(lambda: looks.pop(0), act)


def test_top_stays_when_the_loader_is_gone_and_goes_on_when_it_is_back() -> None:
    answers: list[Any] = [snapshot(0, 0, 0), ConnectionError("expected a loader"), snapshot(1, 0.9, 100)]

    def looked() -> Mapping[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def act(app: Any, pilot: Any) -> None:
        await app.take_look()
        assert shown(app)[1] == "no figures: expected a loader"
        await app.take_look()
        assert len(shown(app)[0]) == 3

    piloted(looked, act)
