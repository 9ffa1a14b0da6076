"""Serves the metrics of a pipeline to Prometheus over HTTP, and reads them back for `penstock top`."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import FormatError, require

Snapshot = Mapping[str, Any]

QUEUE = {
    "puts": "Things that were put into the queue behind a stage.",
    "gets": "Things that were taken out of the queue behind a stage.",
    "drops": "Things that the queue behind a stage dropped, being full.",
    "fill": "Things in the queue behind a stage.",
    "capacity": "Things that the queue behind a stage can hold.",
    "nbytes": "Bytes in the queue behind a stage.",
    "waited_seconds": "Time during which somebody waited to get something out of the queue behind a stage.",
}
MEMORY = "process_resident_memory_bytes"  # as the client library calls it
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loaders are near, proxies are for far away
COUNTED = ("puts", "gets", "drops", "waited_seconds")


class MetricsEndpoint:
    """Serves the metrics of a running pipeline at `/metrics`, in Prometheus' text format.

    `snapshot` gives them, as `penstock.flow.metrics.Metrics.snapshot` does; it is called once a request, by a thread of
    the server's. `port` 0 takes a free one, `port` of the object tells which. By default only this machine can connect.
    A context manager. Needs `penstock-live[metrics]`. Raises `MissingExtraError`, and `OSError` for a port
    that is taken.

    Args:
        snapshot: Returns the metrics, as `Metrics.snapshot` does.
        port: Port to serve at. The default 0 takes a free one.
        host: Address to serve at. The default is this machine only.

    Example:
        >>> figures = {"threads": 1, "busy": 2.5, "counts": {"chunks": 3}, "gauges": {}, "queue": {}}
        >>> with MetricsEndpoint(lambda: {"time": 7.0, "stages": {"pool": figures}}) as endpoint:
        ...     look(endpoint.url)["stages"]["pool"]["counts"]
        {'chunks': 3}
    """

    def __init__(self, snapshot: Callable[[], Snapshot], port: int = 0, host: str = "127.0.0.1") -> None:
        prometheus = require("prometheus_client", "metrics", "penstock-live")
        registry = prometheus.CollectorRegistry(auto_describe=False)
        registry.register(_MetricsCollector(snapshot))
        self._server, self._thread = prometheus.start_http_server(port, host, registry)
        self.host, self.port = host, int(self._server.server_port)

    @property
    def url(self) -> str:
        """Address of the metrics.

        >>> with MetricsEndpoint(lambda: {"time": 0.0, "stages": {}}) as endpoint:
        ...     endpoint.url.startswith("http://127.0.0.1:")
        True
        """
        return f"http://{self.host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsEndpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _MetricsCollector:
    """Collector that the client library calls for the metrics."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._lock = threading.Lock()

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> Iterator[Any]:
        core = require("prometheus_client.core", "metrics", "penstock-live")
        with self._lock:
            taken = self._snapshot()
        clock = core.GaugeMetricFamily("penstock_clock_seconds", "When the figures were taken, on the loader's clock.")
        clock.add_metric([], taken["time"])
        yield clock
        if (nbytes := resident_bytes()) is not None:
            memory = core.GaugeMetricFamily(MEMORY, "Memory of the process of the loader, in bytes.")
            memory.add_metric([], nbytes)
            yield memory
        yield from _families(taken["stages"])


def _families(stages: Mapping[str, Any]) -> Iterator[Any]:
    core = require("prometheus_client.core", "metrics", "penstock-live")
    threads = core.GaugeMetricFamily("penstock_stage_threads", "Threads of a stage.", labels=["stage"])
    busy = core.CounterMetricFamily("penstock_stage_busy_seconds", "Work of all threads of a stage.", labels=["stage"])
    events = core.CounterMetricFamily("penstock_stage_events", "What a stage counted.", labels=["stage", "event"])
    gauges = core.GaugeMetricFamily("penstock_stage_gauge", "Values of a stage.", labels=["stage", "name"])
    texts = core.GaugeMetricFamily("penstock_stage_text", "Texts of a stage.", labels=["stage", "name", "text"])
    queues = {name: _queue_family(core, name, about) for name, about in QUEUE.items()}
    for name, stage in stages.items():
        threads.add_metric([name], stage["threads"])
        busy.add_metric([name], stage["busy"])
        for event, n in stage["counts"].items():
            events.add_metric([name, event], n)
        for gauge, value in stage["gauges"].items():
            if isinstance(value, str):
                texts.add_metric([name, gauge, value], 1)
            else:
                gauges.add_metric([name, gauge], value)
        for figure, value in stage["queue"].items():
            queues[figure].add_metric([name], value)
    yield from (threads, busy, events, gauges, texts, *queues.values())


def _queue_family(core: Any, name: str, about: str) -> Any:
    family = core.CounterMetricFamily if name in COUNTED else core.GaugeMetricFamily
    return family(f"penstock_queue_{name}", about, labels=["stage"])


def resident_bytes() -> int | None:
    """Return the resident memory of this process in bytes, or None where the system does not tell it as Linux does."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def look(url: str, timeout: float = 5.0) -> dict[str, Any]:
    """Read the snapshot of an endpoint: `time` and `stages`, as in `penstock.flow.metrics.Metrics.snapshot`.

    `memory` is the resident memory of its process in bytes, if the system tells it.

    `url` may be a port, `host:port` or an address. Needs `penstock-live[metrics]`.
    """
    address = _address(url)
    try:
        with DIRECT.open(address, timeout=timeout) as answer:
            text = answer.read().decode("utf-8")
    except urllib.error.URLError as error:
        reason = getattr(error.reason, "strerror", None) or error.reason
        message = f"expected a loader at {address}, got {reason}; penstock live --metrics-port PORT serves one"
        raise ConnectionError(message) from error
    except ValueError as error:
        raise FormatError("expected text of a loader's figures, got something else", path=address) from error
    return parse(text, address)


def parse(text: str, path: object = None) -> dict[str, Any]:
    """Parse a snapshot from the text of an endpoint; other metrics are ignored."""
    parser = require("prometheus_client.parser", "metrics", "penstock-live")
    stages: dict[str, dict[str, Any]] = {}
    taken: float | None = None
    memory: dict[str, int] = {}
    try:
        for family in parser.text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "penstock_clock_seconds":
                    taken = sample.value
                elif sample.name == MEMORY:
                    memory["memory"] = int(sample.value)
                elif sample.name.startswith("penstock_"):
                    _read(sample.name, sample.labels, sample.value, stages)
    except (ValueError, KeyError) as error:
        raise FormatError("expected text of a loader's figures, got something else", path=path) from error
    if taken is None:
        raise FormatError("expected the metrics of a penstock loader, got other metrics", path=path)
    return {"time": taken, **memory, "stages": stages}


def _read(name: str, labels: Mapping[str, str], value: float, stages: dict[str, dict[str, Any]]) -> None:
    empty: dict[str, Any] = {"threads": 1, "busy": 0.0, "counts": {}, "gauges": {}, "queue": {}}
    stage = stages.setdefault(labels["stage"], empty)
    figure = name.removeprefix("penstock_queue_").removesuffix("_total")
    if name == "penstock_stage_threads":
        stage["threads"] = int(value)
    elif name == "penstock_stage_busy_seconds_total":
        stage["busy"] = value
    elif name == "penstock_stage_events_total":
        stage["counts"][labels["event"]] = int(value)
    elif name == "penstock_stage_gauge":
        stage["gauges"][labels["name"]] = value
    elif name == "penstock_stage_text":
        stage["gauges"][labels["name"]] = labels["text"]
    elif figure in QUEUE:
        stage["queue"][figure] = value if figure == "waited_seconds" else int(value)


def _address(url: str) -> str:
    """Return the full address for a port, a host and a port, or an address."""
    if url.isdigit():
        url = f"127.0.0.1:{url}"
    if "://" not in url:
        url = f"http://{url}"
    return url if url.rstrip("/").endswith("/metrics") else url.rstrip("/") + "/metrics"
