"""Large tables of plans are files that processes share: equal to tables in memory, made once, and never needed."""

# pyright: basic

from __future__ import annotations

import errno
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.files import arrays, user_cache
from penstock.files.mapping import mapping_of
from penstock.kernels import locate
from penstock.plan import episodes, weighted

LENGTHS = np.random.default_rng(0).integers(0, 9, 200)


@pytest.fixture
def data() -> penstock.EpisodeDataset:
    steps = int(LENGTHS.sum())
    observations = np.arange(steps + len(LENGTHS))
    columns = {"observations": observations, "actions": np.arange(steps)}
    return penstock.from_arrays(columns, lengths=LENGTHS)


@pytest.fixture
def sharing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Tables of any size are shared and mapped."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(arrays, "MAPPED", 0)
    for module in (locate, episodes, weighted):
        monkeypatch.setattr(module, "SHARED_BYTES", 0)
    return tmp_path / "cache" / "plan-tables"


PLANS: dict[str, Callable[[penstock.EpisodeDataset], penstock.MapDataset]] = {
    "where": lambda data: data.filter("total_steps > 3").windows(2).shuffle(1),
    "split": lambda data: data.split(0.7, 0.3, seed=3)[1].windows(2, pad="zero"),
    "take": lambda data: data[np.arange(150)[::-1]].steps().shuffle(0),
    "goals": lambda data: data.steps().goals("random", seed=4),
    "goals of a split": lambda data: data.split(0.7, 0.3)[0].steps().goals("random"),
    "weighted": lambda data: data.steps().weighted(np.arange(data.total_steps) % 13),
    "weighted, random": lambda data: data.steps().weighted(np.arange(data.total_steps) % 13, draw="random"),
}


def drawn(samples: penstock.MapDataset) -> Any:
    return samples.plan.fingerprint, len(samples), {k: v.tolist() for k, v in samples[:].items()}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_with_shared_tables_is_equal(
    name: str, data: penstock.EpisodeDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = drawn(PLANS[name](data))
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(arrays, "MAPPED", 0)
    for module in (locate, episodes, weighted):
        monkeypatch.setattr(module, "SHARED_BYTES", 0)
    assert drawn(PLANS[name](data)) == expected
    files = {path: path.stat().st_ino for path in (tmp_path / "cache").rglob("*.penstock-table")}
    samples = PLANS[name](data)
    assert drawn(samples) == expected
    assert drawn(pickle.loads(pickle.dumps(samples))) == expected
    assert {path: path.stat().st_ino for path in (tmp_path / "cache").rglob("*.penstock-table")} == files
    assert (len(files) == 0) == (name == "goals")


def test_tables_of_chosen_episodes_are_mapped(data: penstock.EpisodeDataset, sharing: Path) -> None:
    chosen = data.filter("total_steps > 3")
    assert all(mapping_of(getattr(chosen.episodes, name)) for name in ("source", "index", "start", "length"))
    assert len(list(sharing.glob("*.penstock-table"))) == 1
    assert len(pickle.dumps(chosen.episodes)) < 8 * len(chosen) + len(pickle.dumps(data.episodes)) + 1000


def test_one_of_many_makes_a_table(sharing: Path) -> None:
    made: list[int] = []
    begin = threading.Barrier(8)
    results: list[Any] = [None] * 8

    def ask(number: int) -> None:
        begin.wait(60)
        results[number] = user_cache.shared_arrays("a table", lambda: made.append(number) or {"x": np.arange(5)})["x"]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(made) == 1
    assert [result.tolist() for result in results] == [[0, 1, 2, 3, 4]] * 8


def test_a_table_whose_maker_fails_is_made_by_the_next(sharing: Path) -> None:
    def killed() -> dict[str, Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        user_cache.shared_arrays("a table", killed)
    assert user_cache.shared_arrays("a table", lambda: {"x": np.arange(2)})["x"].tolist() == [0, 1]


KILLED = """
import sys, numpy as np
from penstock.files.user_cache import shared_arrays

def make():
    print("making", flush=True)
    sys.stdin.read()

shared_arrays("a table", make)
"""


def test_a_process_that_is_killed_while_it_makes_a_table_leaves_no_lock(sharing: Path) -> None:
    maker = subprocess.Popen([sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == b"making\n"
        maker.kill()
    assert user_cache.shared_arrays("a table", lambda: {"x": np.arange(2)})["x"].tolist() == [0, 1]


@pytest.mark.parametrize("what", ["full", "read-only", "damaged", "cut"])
def test_a_table_that_cannot_be_kept_is_made_in_memory(
    what: str, data: penstock.EpisodeDataset, sharing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = drawn(PLANS["split"](data))
    if what == "full":

        def full(*args: Any, **options: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(user_cache, "write_arrays", full)
        for file in sharing.glob("*.penstock-table"):
            file.unlink()
    elif what == "read-only":
        monkeypatch.setenv("PENSTOCK_CACHE", "/proc/nothing")  # no folder can be made there
    else:
        for file in sharing.glob("*.penstock-table"):
            raw = file.read_bytes()
            file.unlink()  # earlier plans have it mapped
            file.write_bytes(raw[:-1] if what == "cut" else raw[:-70] + b"?" + raw[-69:])
    assert drawn(PLANS["split"](data)) == expected
