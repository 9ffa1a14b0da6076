"""Workers open the data of a work plan without scanning them: the making of the plan did so."""

# pyright: basic

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.conversion import scan
from penstock.data.chosen import ChosenDataset
from penstock.files import remote
from penstock.formats.minari import arrow_source, hdf5_source, index_cache
from penstock.formats.rlds import index as rlds_index
from penstock.formats.webdataset import copying, source
from penstock.jobs.operation import OPENED, pack
from penstock.jobs.runners import ThreadRunner
from penstock.jobs.work_plan import WorkPlan
from penstock.jobs.worker import serve

SCANS = [
    (source, "read_members"),
    (copying, "read_members"),
    (hdf5_source, "build"),
    (arrow_source.ArrowSource, "_scan"),
    (rlds_index, "_index_shard"),
    (scan.Scan, "_ends"),
]


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Counter[str]:
    """Counts the calls of all functions that scan data. All indexes are kept, of data of any size."""
    counts = Counter[str]()

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return real(*args, **options)

        return call

    for owner, name in SCANS:
        monkeypatch.setattr(owner, name, counted(name, getattr(owner, name)))
    for module in (source, arrow_source, index_cache):
        monkeypatch.setattr(module, "WORTH", 0)
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return counts


@pytest.fixture
def data() -> penstock.EpisodeDataset:
    """Episodes that every format can store, the last without an end, for which a conversion looks."""
    lengths = np.arange(1, 9)
    n = int(lengths.sum())
    flags = {name: np.zeros(n, bool) for name in ("terminations", "truncations")}
    flags["terminations"][np.cumsum(lengths[:-1]) - 1] = True
    observations = np.random.default_rng(0).standard_normal((n + len(lengths), 3))
    columns = {"observations": observations, "actions": np.zeros((n, 1)), "rewards": np.ones(n)}
    return penstock.from_arrays({**columns, **flags}, lengths=lengths)


STORED = {
    "webdataset": {"shard_episodes": 2},
    "minari": {},
    "minari parquet": {"data_format": "parquet"},
    "rlds": {},
    "columns": {},
}
COMMANDS: dict[str, dict[str, Any]] = {
    "stats": {},
    "check": {"deep": True},
    "convert": {"to": "minari", "writer": {"data_format": "parquet"}, "fill_missing": True, "certificate": False},
    "reshard": {"shard_bytes": 2000, "shard_episodes": 3},
}


PAIRS = [(stored, command) for stored in STORED for command in COMMANDS if command != "reshard"]


@pytest.mark.parametrize(("stored", "command"), [*PAIRS, ("webdataset", "reshard")])
def test_a_worker_scans_nothing(
    stored: str,
    command: str,
    data: penstock.EpisodeDataset,
    scans: Counter[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, place = stored.split(maxsplit=1)[0], tmp_path / "data"
    penstock.convert(data, place, format=name, options=STORED[stored], certificate=False)
    arguments = {**ChosenDataset(str(place)).arguments(), "out": str(tmp_path / "out"), **COMMANDS[command]}
    scans.clear()
    work = WorkPlan.make(command, arguments, range_bytes=1)
    if stored != "columns" or command == "convert":
        assert scans.total() > 0
    work.write(tmp_path / "plan.json")
    for cache in ("cache", "cache of another machine"):
        monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / cache))
        scans.clear()
        assert worked(WorkPlan.read(tmp_path / "plan.json")) == ""
        if command == "check":  # the check of the format reads as it does in one run
            scans.clear()
        assert scans == {}


@pytest.mark.parametrize("stored", [name for name in STORED if name != "columns"])
def test_no_index_is_kept_of_files_that_may_change_again_at_the_same_time(
    stored: str, data: penstock.EpisodeDataset, scans: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, place = stored.split(maxsplit=1)[0], tmp_path / "data"
    penstock.convert(data, place, format=name, options=STORED[stored], certificate=False)
    for settled, is_read in ((10**15, True), (10**15, True), (0, True), (0, False)):
        monkeypatch.setattr(remote, "SETTLED", settled)
        scans.clear()
        penstock.open(place).close()
        assert bool(scans.total()) == is_read


def worked(work: WorkPlan) -> str:
    """Run the last job as the process of a worker does; return its error."""
    OPENED.close()
    ours, theirs = Pipe()
    thread = threading.Thread(target=serve, args=(theirs, 0))
    thread.start()
    for message in (work.encode(), work.survey, str(len(work) - 1).encode()):
        ours.send_bytes(message)
    ours.recv_bytes()  # how long it took to start
    _, error = ours.recv_bytes(), ours.recv_bytes().decode()
    if not error:
        ours.recv_bytes()
    ours.close()
    thread.join()
    theirs.close()
    return error


def test_a_plan_without_its_survey_gives_the_same(data: penstock.EpisodeDataset, tmp_path: Path) -> None:
    penstock.convert(data, tmp_path / "data", format="webdataset", options={"shard_episodes": 2}, certificate=False)
    arguments = {"location": str(tmp_path / "data"), "shard_bytes": 2000, "shard_episodes": 3}
    work = WorkPlan.make("reshard", {**arguments, "out": str(tmp_path / "out")}, range_bytes=1)
    assert work.survey
    results = [[result.result for result in ThreadRunner(0).run(work, deque(range(len(work))))]]
    OPENED.close()
    without = replace(work, survey=b"")
    assert without.digest == work.digest
    results.append([result.result for result in ThreadRunner(0).run(without, deque(range(len(work))))])
    assert results[0] == results[1]


def test_a_survey_writes_nothing_outside_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    penstock.convert(penstock.from_arrays({"rewards": np.arange(3.0)}, [3]), tmp_path / "data")
    work = WorkPlan.make("stats", {"location": str(tmp_path / "data")})
    for wrong in ("../outside", str(tmp_path / "outside")):
        survey = pack({"operation": b"", "indexes": [[wrong, b"x"]]})
        OPENED.close()
        (result,) = ThreadRunner(0).run(replace(work, survey=survey), deque([0]))
        assert "expected places in the cache" in result.error
    assert not (tmp_path / "outside").exists()
