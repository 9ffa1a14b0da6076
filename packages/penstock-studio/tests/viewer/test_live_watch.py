"""The answers that the page of a running loader gets."""

# pyright: basic

from __future__ import annotations

import json
import threading
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import penstock
from live.snapshots import snapshot
from penstock.errors import FormatError
from penstock.flow.look import bottleneck
from penstock_live.endpoint import MetricsEndpoint, look
from penstock_studio.viewer.live_watch import LOOKS, LiveWatch
from penstock_studio.viewer.server import ViewerServer
from viewer.test_server import ask


def test_stages_are_those_of_top_over_the_last_minute() -> None:
    chunks = {"threads": 1, "busy": 0, "counts": {}, "gauges": {"chunks_expected": 3, "chunks_read": 2}, "queue": {}}
    looks = iter([snapshot(t, 0.9 * t, 100 * t) | {"memory": 2e9} for t in range(200)])
    looks = ({**each, "stages": {**each["stages"], "shuffling_chunk_pool": chunks}} for each in looks)
    watch = LiveWatch(lambda: next(looks), "9470")
    assert (watch.figures()["problem"], watch.figures()["stages"]) == ("no figures yet", [])
    for _ in range(200):
        watch.take_look()
    found = json.loads(json.dumps(watch.figures(width=400)))
    assert found["stages"][1][:3] == ["chunk_unpacker", "2", "90 %"]
    assert "100 frames" in found["stages"][1]
    assert found["account"] == {"expected": 3, "read": 2}
    assert (found["seconds"], found["kept"], found["memory"]) == (60, 199, 2e9)
    assert found["bottleneck"].startswith("chunk_unpacker is the bottleneck")
    assert found["advice"]
    for title, drawing in found["charts"]:
        assert title in ET.fromstring(drawing).attrib["aria-label"]
    assert [title.split()[0] for title, _ in found["charts"]] == ["Busy", "Time", "Fill", "Memory"]


def test_what_goes_wrong_is_said_and_figures_stay_bounded() -> None:
    answers = iter([ConnectionError("nobody there"), FormatError("other metrics")])
    looks = (snapshot(t, 0, 0) for t in range(2 * LOOKS))

    def taken():
        if error := next(answers, None):
            raise error
        return next(looks)

    watch = LiveWatch(taken, "9470")
    watch.take_look()
    assert watch.figures()["problem"] == "nobody there"
    watch.take_look()
    assert watch.figures()["problem"] == "other metrics"
    for _ in range(2 * LOOKS):
        watch.take_look()
    found = watch.figures()
    assert (found["problem"], found["kept"]) == ("", LOOKS - 1)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_consumer_that_waits_is_not_the_bottleneck(threads: int) -> None:
    """Without threads, nobody waits at a queue, and the consumer waits all the time."""
    data = penstock.from_arrays({"x": np.zeros((20_000, 32))}, [1000] * 20).windows(128).shuffle(0)
    loader = data.loader(256, threads=threads)  # 8 MB a batch, for a consumer that does nothing
    before = loader.stats.snapshot
    for _, _ in zip(range(20), loader, strict=False):
        pass
    found = bottleneck(before, loader.stats.snapshot)
    assert found is not None
    assert found.kind != "consumer"
    assert found.advice


def test_the_server_watches_a_running_loader() -> None:
    data = penstock.from_arrays({"x": np.zeros((2000, 4))}, [100] * 20).steps()
    loader = data.loader(64, threads=1)
    list(loader)
    with MetricsEndpoint(lambda: loader.stats.snapshot) as endpoint:
        assert look(endpoint.url)["memory"] > 1 << 20
        with ViewerServer([], live=str(endpoint.port)) as server:
            assert server.start.endswith("#live")
            thread = threading.Thread(target=server.run)
            thread.start()
            try:
                assert json.loads(ask(server, "/pages")[2]) == {"datasets": 0, "plan": False, "live": True}
                assert json.loads(ask(server, "/live/figures")[2])["name"] == f"loader at {endpoint.port}"
                assert ask(server, "/live/figures", token=None)[0] == 403
                assert ask(server, "/live/figures?width=x")[0] == 400
            finally:
                server.stop()
                thread.join()
