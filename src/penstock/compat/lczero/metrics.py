"""Figures under the names of Leela Chess Zero's loader, over periods that end now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.compat.lczero.graph import Branch

Snapshot = Mapping[str, Any]

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
CACHE = ("reshuffles", "cache_hits", "cache_misses")  # gauges of ours that theirs counts
POOL_GAUGES = ("chunk_sources", "chunks_current", "chunks_total", "chunks_since_anchor")


class History:
    """Snapshots of the past, the finer the nearer: at most two for each doubling of age.

    >>> history = History()
    >>> for second in range(100):
    ...     history.add({"time": float(second), "stages": {}})
    >>> len(history) < 20, history.at(99.0 - 30)["time"] <= 69.0, history.at(-9.0)["time"]
    (True, True, 0.0)
    """

    def __init__(self, finest: float = 0.25) -> None:
        self._finest = finest
        self._held: list[Snapshot] = []

    def __len__(self) -> int:
        return len(self._held)

    def wants(self, now: float) -> bool:
        """Whether a snapshot of this time would be kept: the last is not too near."""
        return not self._held or now - self._held[-1]["time"] >= self._finest

    def add(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and let go of those that others nearly stand for."""
        now = snapshot["time"]
        if not self.wants(now):
            return
        self._held.append(snapshot)
        # From the newest back: of three in a row the middle goes, if its neighbours are nearer than half of their age.
        kept = self._held[-2:][::-1]
        for i in range(len(self._held) - 3, -1, -1):
            older = self._held[i]
            if len(kept) > 2 and i > 0 and kept[-2]["time"] - older["time"] < (now - kept[-2]["time"]) / 2:
                kept[-1] = older
            else:
                kept.append(older)
        self._held = kept[::-1]

    def at(self, time: float) -> Snapshot:
        """The newest that is not younger than a time; the oldest where all are."""
        older = [snapshot for snapshot in self._held if snapshot["time"] <= time]
        return older[-1] if older else self._held[0]


def stage_metrics(
    branch: Branch, before: Snapshot, after: Snapshot, pools: Sequence[Mapping[str, str]]
) -> list[dict[str, Any]]:
    """The figures of a branch's stages between two snapshots, a dict each, as their `StageMetricProto`.

    `pools` has the texts `anchor` and `last_chunk_key` of the pool of each feed.
    """
    spent = after["time"] - before["time"]
    made: list[dict[str, Any]] = []
    for feed, texts in zip(branch.feeds, pools, strict=True):
        suffix = f".{feed.names['chunk_unpacker']}" if len(branch.feeds) > 1 else ""
        then, now = _of_feed(before["stages"], suffix), _of_feed(after["stages"], suffix)
        names = {**feed.names, **(branch.names if not made else {})}
        made += [_of_stage(kind, name, then, now, spent, texts) for kind, name in names.items()]
    return made


def _of_feed(stages: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    """The stages of one feed, by the names that they have where there is only one; and those of all."""
    mine = {name.removesuffix(suffix): stage for name, stage in stages.items() if suffix and name.endswith(suffix)}
    return {**{name: stage for name, stage in stages.items() if "." not in name}, **mine}


def _of_stage(
    kind: str, name: str, before: Mapping[str, Any], after: Mapping[str, Any], spent: float, pool: Mapping[str, str]
) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name}
    loads = [(load, ours) for load, ours in LOADS.get(kind, []) if ours in after]
    made["load_metrics"] = [
        {
            "name": load,
            "load_seconds": after[ours]["busy"] - before.get(ours, {}).get("busy", 0.0),
            "total_seconds": spent * after[ours]["threads"],
        }
        for load, ours in loads
    ]
    made["queue_metrics"] = [
        _queue(before.get(ours, {}).get("queue", {}), after[ours]["queue"]) for _, ours in loads if after[ours]["queue"]
    ]
    counted = {ours: _counts(before.get(ours, {}), after.get(ours, {})) for ours in after}
    made["count_metrics"] = [{"name": n, "count": c} for n, c in _named_counts(kind, counted).items()]
    if kind == "shuffling_chunk_pool":
        gauges = after["shuffling_chunk_pool"]["gauges"]
        made["gauge_metrics"] = [{"name": gauge, "value": gauges[gauge]} for gauge in POOL_GAUGES]
        made["gauge_metrics"][1]["capacity"] = gauges["chunks_capacity"]
        earlier = before.get("shuffling_chunk_pool", {}).get("gauges", {})
        made["count_metrics"] += [
            {"name": count, "count": gauges[count] - earlier.get(count, 0)} for count in CACHE if count in gauges
        ]
        made["anchor"] = pool["anchor"]
    if kind == "chunk_source_loader":
        made["last_chunk_key"] = pool["last_chunk_key"]
    return made


def _queue(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, Any]:
    counts = {f"{name}_count": after[f"{name}s"] - before.get(f"{name}s", 0) for name in ("put", "get", "drop")}
    full = {"queue_fullness": {"latest": after["fill"]}, "queue_capacity": after["capacity"]}
    return {"name": "output", **counts, **full}


def _counts(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    earlier = before.get("counts", {})
    return {name: n - earlier.get(name, 0) for name, n in after.get("counts", {}).items()}


def _named_counts(kind: str, counted: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """What a stage of theirs counts: their names for what they have, ours for the rest."""
    if kind == "chunk_source_loader":
        ours = dict(counted.get("chunk_source_loader", {}))
        return {"skipped_files": ours.pop("skipped", 0), **ours}
    reading = {name: n for stage in ("chunk_loading", "chunk_unpacker") for name, n in counted.get(stage, {}).items()}
    failed = {name: n for name, n in reading.items() if name.startswith("failed.")}
    if kind == "shuffling_chunk_pool":
        return {"dropped": sum(failed.values()), "hanse_rejected": reading.get("rejected", 0)}
    if kind == "simple_chunk_extractor":
        return {"chunks_processed": reading.get("chunks", 0), "chunks_dropped": sum(failed.values())}
    if kind == "chunk_rescorer":
        return {"failed_rescores": sum(n for name, n in failed.items() if name.startswith("failed.rescore"))}
    if kind == "chunk_unpacker":
        return {name: n for name, n in counted.get("chunk_unpacker", {}).items() if name != "rejected"}
    return dict(counted.get(kind, {}))
