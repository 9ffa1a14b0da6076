"""Work in parts whose process is killed at any change of a file, or whose disk is full, goes on to the same bytes."""

# pyright: basic

from __future__ import annotations

import errno
import os
import pickle
import random
import shutil
import signal
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import DataError, WorkerError
from penstock.jobs.coordinator import finish_work, missing_jobs, run_share, run_work
from penstock.jobs.operation import OPENED
from penstock.jobs.runners import ThreadRunner
from tests.forking import Forks
from tests.jobs.cases import CASES, Inputs
from tests.jobs.crashing import task_of

WRITING = [name for name in CASES if name.split()[0] in ("convert", "map", "reshard", "cache", "check", "record")]
OUTPUTS = {"out", "out.certificate.json", "plan", "plan.survey", "derived", "packs"}
PLACES = "episodes|archives|front of|wrist of|hand of"
MOST_KILLS = 3
# Whose end is killed at each of its last changes: a folder, a file, columns of a cache, and data that grow.
THOROUGH = ["convert to columns", "convert to minari, hdf5", "cache", "record --grow"]
Expected = Callable[[str], Mapping[str, bytes]]
MOST_CHANGES = {"check --deep": 4, "cache": 30}


@pytest.fixture(scope="module")
def forks() -> Generator[Forks]:
    forks = Forks("tests.jobs.crashing")
    yield forks
    forks.close()


class FullDisk:
    """Refuses to make files and folders below `root`, and to write to them, after some calls. `results` has space."""

    def __init__(self, root: Path, results: Path, calls: int, patch: pytest.MonkeyPatch) -> None:
        self.root, self.results, self.calls = str(root), str(results), calls
        for name in ("open", "mkdir", "pwrite", "pwritev"):
            patch.setattr(os, name, self.guarded(getattr(os, name)))

    def guarded(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(place: Any, *args: Any, **options: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else os.fspath(place)
            makes = real.__name__ != "open" or args[0] & os.O_CREAT
            if makes and path.startswith(self.root) and not path.startswith(self.results):
                self.calls -= 1
                if self.calls < 0:
                    raise OSError(errno.ENOSPC, "No space left on device", path)
            return real(place, *args, **options)

        return call


@pytest.mark.parametrize("name", WRITING)
def test_a_process_that_is_killed_at_any_change_goes_on(
    name: str, forks: Forks, inputs: Inputs, expected: Expected, tmp_path: Path
) -> None:
    work = CASES[name].plan(inputs, tmp_path)
    work.write(tmp_path / "plan")
    chosen = random.Random(name)
    kills = 0
    most = MOST_CHANGES.get(name, 60)
    while (code := forks.run(task_of(tmp_path, chosen.randint(1, most) if kills < MOST_KILLS else 0))) < 0:
        assert code == -signal.SIGKILL
        kills += 1
    assert kills > 1
    assert missing_jobs(work, tmp_path / "results") == []
    assert code == 0
    assert CASES[name].outcome(finish_work(work, tmp_path / "results"), tmp_path) == expected(name)


@pytest.mark.parametrize("name", CASES)
def test_a_command_that_is_killed_while_it_ends_sees_that_its_work_is_finished(
    name: str, forks: Forks, inputs: Inputs, expected: Expected, tmp_path: Path
) -> None:
    """Also after the target is complete: while the staging folder and the results are removed, and after that."""
    folder, range_bytes = tmp_path / "work", CASES[name].range_bytes
    folder.mkdir()
    work = CASES[name].plan(inputs, folder)
    work.write(folder / "plan")
    run_work(work, folder / "results")
    shutil.copytree(folder, tmp_path / "before")

    def command(die: int) -> int:
        more = {"changes": str(tmp_path / "changes"), "outcome": str(tmp_path / "outcome")}
        return forks.run(task_of(folder, die, range_bytes=range_bytes, case=name, **more))

    assert command(0) == 0
    changes = int((tmp_path / "changes").read_text())
    last = min(changes, 4 if name in THOROUGH else 2)
    chosen = random.Random(name).sample(range(1, changes - last + 1), min(changes - last, last // 2))
    for die in [*chosen, *range(changes - last + 1, changes + 1)]:
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "before", folder)
        assert command(die) == -signal.SIGKILL
        ended = not (folder / "results").exists()  # after the result was shown
        assert ended == (die == changes)
        assert command(0) == 0
        assert pickle.loads((tmp_path / "outcome").read_bytes()) == expected(name)
        left = {path.name for path in folder.iterdir()} - OUTPUTS
        assert ended or not left, left


@pytest.mark.parametrize("name", [name for name in WRITING if name not in ("check --deep", "record --grow")])
def test_a_full_disk_fails_jobs_and_the_next_run_goes_on(
    name: str, inputs: Inputs, expected: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = CASES[name].plan(inputs, tmp_path)
    results = tmp_path / "results"
    OPENED.close()
    with monkeypatch.context() as patch:
        FullDisk(tmp_path, results, random.Random(name).randint(3, 12), patch)
        with pytest.raises(WorkerError, match=rf"failed job: job \d+ \(({PLACES}) .*[Nn]o space") as caught:
            run_work(work, results, ThreadRunner(0))
    assert not (tmp_path / "out").exists()
    failed = int(str(caught.value).partition(": job ")[2].split()[0])
    assert missing_jobs(work, results) == list(range(failed, len(work)))
    assert run_work(work, results, ThreadRunner(0)).done == len(work) - failed
    assert CASES[name].outcome(finish_work(work, results), tmp_path) == expected(name)


@pytest.mark.parametrize("name", [name for name in WRITING if name != "check --deep"])
def test_parts_that_are_gone_are_made_again_and_late_tasks_find_the_work_finished(
    name: str, inputs: Inputs, expected: Expected, tmp_path: Path
) -> None:
    work, results = CASES[name].plan(inputs, tmp_path), tmp_path / "results"
    run_work(work, results)
    folder = next(tmp_path.glob("out*.parts/*"), None) or next(tmp_path.glob("derived/*/parts"))
    parts = sorted((folder / "archives" if (folder / "archives").exists() else folder).iterdir())
    for part in random.Random(name).sample(parts, min(len(parts), 2)):
        shutil.rmtree(part) if part.is_dir() else part.unlink()
    if name != "record --grow":  # whose episodes are in the dataset already
        with pytest.raises(DataError, match=rf"missing are job \d+ \(({PLACES})"):
            finish_work(work, results)
        assert run_share(work, results, 0, 1).done > 0
    assert CASES[name].outcome(finish_work(work, results), tmp_path) == expected(name)
    shutil.rmtree(results)
    OPENED.close()
    if name != "cache":  # whose parts are not made again, either
        assert (run_share(work, results, 0, 1).earlier, run_work(work, results).earlier) == (len(work), len(work))
        assert CASES[name].outcome(finish_work(work, results), tmp_path) == expected(name)
    assert CASES[name].outcome(None, tmp_path) == expected(name)
    assert not list(tmp_path.glob("*.parts"))
