"""Metrics under the names of Leela Chess Zero's loader, over periods that end now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock_chess.lczero.config import QueueConfig, ShufflingChunkPoolConfig
from penstock_chess.lczero.graph import Branch
from penstock_chess.lczero.history import Fullness, Snapshot
from penstock_live.account import FIGURES

# The stage of ours behind each kind of theirs, with the name of the load where theirs has several.
LOADS = {
    "file_path_provider": [("load", "file_path_provider")],
    "chunk_source_loader": [("load", "chunk_source_loader")],
    "shuffling_chunk_pool": [("source_ingestion", "shuffling_chunk_pool"), ("chunk_loading", "chunk_loading")],
    "chunk_validator": [("load", "chunk_validator")],
    "chunk_rescorer": [("load", "chunk_rescorer")],
    "chunk_unpacker": [("load", "chunk_unpacker")],
    "shuffling_frame_sampler": [("load", "shuffling_frame_sampler")],
    "tensor_generator": [("load", "tensor_generator")],
}
NAMED = ("chunk_source_splitter", "shuffling_chunk_pool", "chunk_unpacker")  # whose queues have their own names
POOL_GAUGES = ("chunk_sources", "chunks_current", "chunks_total", "chunks_since_anchor")
# Gauges of ours that only grow, which theirs counts, under its name.
CACHE_COUNTS = {
    "cache_hits": "cache_hits",
    "cache_misses": "cache_misses",
    "newly_cached": "cached",
    "dropped_cache_positions": "cache_dropped",
}
# Of the queue behind a stage of theirs that is a function call here: our stage and its count of what has passed.
PASSED = {
    "file_path_provider": ("file_path_provider", "files"),
    "chunk_source_loader": ("chunk_source_loader", "files"),
    "chunk_source_splitter": ("chunk_source_loader", "files"),
    "chunk_validator": ("chunk_validator", "chunks"),
    "chunk_rescorer": ("chunk_rescorer", "chunks"),
    "chunk_unpacker": ("chunk_unpacker", "frames"),
    "join_positions": ("shuffling_frame_sampler", "frames"),
}


@dataclass(frozen=True)
class _Span:
    """The stages of one feed at the start and at the end of a period, and how full their queues were meanwhile."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    fullness: Mapping[str, Fullness]
    seconds: float

    def counts(self, stage: str) -> dict[str, int]:
        """Return the counts of a penstock stage in the period."""
        earlier = self.before.get(stage, {}).get("counts", {})
        return {name: n - earlier.get(name, 0) for name, n in self.after.get(stage, {}).get("counts", {}).items()}

    def grown(self, stage: str, gauge: str) -> int:
        """Return the growth of a gauge in the period."""
        now, then = (side.get(stage, {}).get("gauges", {}).get(gauge, 0) for side in (self.after, self.before))
        return int(now - then)

    def failures(self) -> dict[str, int]:
        """Chunks that failed when they were read, by `failed.<reason>`."""
        reading = {**self.counts("chunk_loading"), **self.counts("chunk_unpacker")}
        return {name: n for name, n in reading.items() if name.startswith("failed.")}


def stage_metrics(
    branch: Branch,
    before: Snapshot,
    after: Snapshot,
    *,
    fullness: Mapping[str, Fullness],
    pools: Sequence[Mapping[str, str]],
    queues: Mapping[str, Sequence[QueueConfig]],
) -> list[dict[str, Any]]:
    """Return the figures of a branch's stages between two snapshots, a dict each, as their `StageMetricProto`."""
    stages: list[dict[str, Any]] = []
    for feed, texts in zip(branch.feeds, pools, strict=True):
        suffix = f".{feed.names['chunk_unpacker']}" if len(branch.feeds) > 1 else ""
        sides = [_of_feed(side, suffix) for side in (before["stages"], after["stages"], fullness)]
        span = _Span(sides[0], sides[1], sides[2], after["time"] - before["time"])
        names = {**feed.names, **(branch.names if not stages else {})}
        cache = feed.pool.position_cache_size if isinstance(feed.pool, ShufflingChunkPoolConfig) else 0
        stages += [_of_stage(kind, name, span, texts, queues[name], cache) for kind, name in names.items()]
    return stages


def _of_feed(stages: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    """Return the stages of one feed without their suffix, and the stages that all feeds share."""
    mine = {name.removesuffix(suffix): stage for name, stage in stages.items() if suffix and name.endswith(suffix)}
    return {**{name: stage for name, stage in stages.items() if "." not in name}, **mine}


def _of_stage(
    kind: str, name: str, span: _Span, pool: Mapping[str, str], queues: Sequence[QueueConfig], cache: int
) -> dict[str, Any]:
    metrics: dict[str, Any] = {"name": name, "load_metrics": [], "count_metrics": []}
    for load, ours in LOADS.get(kind, []):
        if ours in span.after:
            busy = span.after[ours]["busy"] - span.before.get(ours, {}).get("busy", 0.0)
            total = span.seconds * span.after[ours]["threads"]
            metrics["load_metrics"].append({"name": load, "load_seconds": busy, "total_seconds": total})
    names = [queue.name if kind in NAMED else "output" for queue in queues]
    metrics["queue_metrics"] = [_queue(kind, i, queue, span) for i, queue in enumerate(names)]
    counts = COUNTS[kind](span) if kind in COUNTS else span.counts(kind)
    metrics["count_metrics"] = [{"name": n, "count": c} for n, c in counts.items()]
    if kind == "shuffling_chunk_pool":
        metrics |= {"gauge_metrics": _pool_gauges(span, cache), "anchor": pool["anchor"]}
        metrics["statistics_metrics"] = _weights(span)
    if kind == "simple_chunk_extractor":
        metrics["gauge_metrics"] = _account(span)
    if kind == "chunk_source_loader" and pool["last_chunk_key"]:
        metrics["last_chunk_key"] = pool["last_chunk_key"]
    return metrics


def _pool_gauges(span: _Span, cache: int) -> list[dict[str, Any]]:
    gauges = span.after["shuffling_chunk_pool"]["gauges"]
    gauge_list: list[dict[str, Any]] = [{"name": gauge, "value": gauges[gauge]} for gauge in POOL_GAUGES]
    gauge_list[1]["capacity"] = gauges["chunks_capacity"]
    if "cached_positions" in gauges:
        gauge_list.append({"name": "cached_positions", "value": gauges["cached_positions"], "capacity": cache})
    return [*gauge_list, *_account(span)]


def _account(span: _Span) -> list[dict[str, Any]]:
    """Return the outcomes of the expected chunks, as `ChunkAccount` counts them."""
    gauges = span.after["shuffling_chunk_pool"]["gauges"]
    return [{"name": f"chunks_{figure}", "value": gauges[f"chunks_{figure}"]} for figure in FIGURES]


def _weights(span: _Span) -> list[dict[str, Any]]:
    """The weights of chunks that were looked at for the first time: sum and count of the period, `min` and `max` since
    the start."""
    weights: list[dict[str, Any]] = []
    for stage in ("chunk_loading", "chunk_unpacker"):
        for name, now in span.after.get(stage, {}).get("samples", {}).items():
            then = span.before.get(stage, {}).get("samples", {}).get(name, {"sum": 0.0, "count": 0})
            if now["count"] > then["count"]:
                own = {"sum": now["sum"] - then["sum"], "count": now["count"] - then["count"]}
                weights.append({"name": name, **now, **own})
    return weights


def _queue(kind: str, place: int, name: str, span: _Span) -> dict[str, Any]:
    """The queue behind output number `place` of a stage: what went through it, and, where something waits there in
    our stages too, how full it was."""
    passed = _passed(kind, place, span)
    metrics: dict[str, Any] = {"name": name, "put_count": passed, "get_count": passed, "drop_count": 0}
    ours = LOADS.get(kind, [("", "")])[-1][1]
    now = span.after.get(ours, {}).get("queue") if place == 0 else None
    if not now:
        return metrics
    then = span.before.get(ours, {}).get("queue", {})
    if kind == "tensor_generator":
        metrics |= {f"{count}_count": now[f"{count}s"] - then.get(f"{count}s", 0) for count in ("put", "get", "drop")}
    fullness = span.fullness.get(ours, Fullness.of(int(now["fill"])))
    return {**metrics, "queue_fullness": fullness.fields(), "queue_capacity": now["capacity"]}


def _passed(kind: str, place: int, span: _Span) -> int:
    """Return the number of files, chunks or frames that left a stage."""
    if place > 0 and kind == "shuffling_chunk_pool":
        return span.grown(kind, "cache_hits")
    if place > 0 and kind == "chunk_unpacker":
        return span.grown("shuffling_chunk_pool", "cached")
    if kind in ("shuffling_chunk_pool", "simple_chunk_extractor"):
        for stage in ("chunk_validator", "chunk_rescorer"):
            if stage in span.after:  # the first that chunks come to
                return sum(n for name, n in span.counts(stage).items() if name.startswith(("chunks", "rejected.")))
        return span.counts("chunk_unpacker").get("chunks", 0)
    if kind == "shuffling_frame_sampler":
        return span.counts(kind).get("frames", 0) - span.grown(kind, "frames")
    stage, count = PASSED.get(kind, ("", ""))
    return span.counts(stage).get(count, 0)


def _loader_counts(span: _Span) -> dict[str, int]:
    ours = span.counts("chunk_source_loader")
    return {"skipped_files": ours.pop("skipped", 0), **ours}


def _pool_counts(span: _Span) -> dict[str, int]:
    reading = [span.counts(stage) for stage in ("chunk_loading", "chunk_unpacker")]
    total = {name: sum(each.get(name, 0) for each in reading) for name in ("weight_hits", "weight_misses", "rejected")}
    counts = {
        "dropped": sum(span.failures().values()),
        "hanse_cache_hits": total["weight_hits"],
        "hanse_cache_misses": total["weight_misses"],
        "hanse_rejected": total["rejected"],
        "reshuffles": span.grown("shuffling_chunk_pool", "reshuffles"),
    }
    gauges = span.after["shuffling_chunk_pool"]["gauges"]
    if "cache_hits" in gauges:
        counts |= {name: span.grown("shuffling_chunk_pool", ours) for name, ours in CACHE_COUNTS.items()}
        # Positions are kept for the uses that follow, by the thread that read their chunk: neither can happen.
        counts |= {"mismatched_use_counts": 0, "chunk_source_not_found": 0}
    return counts


def _extractor_counts(span: _Span) -> dict[str, int]:
    chunks = span.counts("chunk_unpacker").get("chunks", 0)
    done = span.grown("shuffling_chunk_pool", "sources_processed")
    return {"chunks_processed": chunks, "chunks_dropped": sum(span.failures().values()), "sources_processed": done}


def _rescorer_counts(span: _Span) -> dict[str, int]:
    return {"failed_rescores": sum(n for name, n in span.failures().items() if name.startswith("failed.rescore"))}


def _unpacker_counts(span: _Span) -> dict[str, int]:
    return {name: n for name, n in span.counts("chunk_unpacker").items() if name not in OF_THE_POOL}


OF_THE_POOL = ("rejected", "weight_hits", "weight_misses")
# Counts of each stage of the original: its names where it has them, penstock's names otherwise.
COUNTS: dict[str, Callable[[_Span], dict[str, int]]] = {
    "chunk_source_loader": _loader_counts,
    "shuffling_chunk_pool": _pool_counts,
    "simple_chunk_extractor": _extractor_counts,
    "chunk_rescorer": _rescorer_counts,
    "chunk_unpacker": _unpacker_counts,
}
