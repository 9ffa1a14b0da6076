"""Conversions in parts to a URL: the files of one run, complete or not there, and no objects left over."""

# pyright: basic

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.conversion.certificate import Certificate
from penstock.errors import DataError, FormatError, RemoteError, WorkerError
from penstock.jobs.coordinator import ResultFolder, finish_work, run_share, run_work
from penstock.jobs.operation import OPENED
from penstock.jobs.runners import ThreadRunner, run_job
from penstock.jobs.work_plan import WorkPlan
from penstock.locations.location import MARKER
from tests.forking import Forks
from tests.jobs.cases import CASES, Case, Inputs
from tests.jobs.crashing import task_of
from tests.locations.clock import without_waiting
from tests.locations.s3 import KEY, SECRET, Bucket, Request, Stores, bucket_on
from tests.locations.server import serving

CONVERT = {name: case for name, case in CASES.items() if case.operation == "convert"}
KILLS = 4
Expected = Callable[[str], Mapping[str, bytes]]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    without_waiting(monkeypatch)
    return tmp_path / "cache"


@pytest.fixture
def bucket(stores: Stores, machine: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return bucket_on(stores, monkeypatch.setenv)


def plan_to(url: str, case: Case, inputs: Inputs, folder: Path) -> tuple[WorkPlan, str]:
    """A work plan whose target is below a URL, and the name of the target."""
    name = Path(case.arguments(inputs, folder)["out"]).name
    arguments = {**case.arguments(inputs, folder), "out": f"{url}/{name}"}
    work = WorkPlan.make(case.operation, arguments, range_bytes=2 * case.range_bytes)
    assert len(work) > 2
    return work, name


def to_another_machine(machine: Path) -> None:
    """Forget what this machine has: its cache, and the data that are open."""
    OPENED.close()
    shutil.rmtree(machine, ignore_errors=True)


def save(objects: Mapping[str, bytes], folder: Path) -> None:
    """Write objects as files."""
    for name, content in objects.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@pytest.mark.parametrize("name", CONVERT)
def test_each_format_has_the_bytes_of_one_run(
    name: str, inputs: Inputs, expected: Expected, bucket: Bucket, machine: Path, tmp_path: Path
) -> None:
    work, out = plan_to(f"{bucket.url}/set", CONVERT[name], inputs, tmp_path)
    results = tmp_path / "results"
    numbers = [*range(len(work)), *random.Random(name).sample(range(len(work)), 1)]
    random.Random(name).shuffle(numbers)
    for number in numbers:  # each on a machine of its own, one of them twice
        assert run_job(work, number, 0).error == ""
        to_another_machine(machine)
    for task in range(2):
        assert run_share(work, results, task, 2).failures == {}
    assert not any(each.startswith(f"set/{out}/") or each == f"set/{out}" for each in bucket.names())
    assert len([each for each in bucket.names() if ".parts/" in each]) == len(work)
    to_another_machine(machine)
    url = f"{bucket.url}/set/{out}"
    report = finish_work(work, results)
    assert (str(report.out), report.status) == (url, "converted")
    assert not [each for each in bucket.names() if ".parts" in each or MARKER in each]
    assert not [path for path in (machine / "uploads").rglob("*") if path.is_file()]
    assert Certificate.read(url).to_json() == report.certificate.to_json()
    save({each.removeprefix("set/"): bucket.get(each) for each in bucket.names()}, tmp_path)
    assert CONVERT[name].outcome(report, tmp_path) == expected(name)
    late = run_job(work, 0, 0)
    assert f"expected nothing at {url}" in late.error
    assert not [each for each in bucket.names() if ".parts" in each]
    assert (finish_work(work, results).status, run_work(work, results).earlier) == ("complete", len(work))


def test_a_process_that_is_killed_at_any_change_goes_on_there_or_on_another_machine(
    inputs: Inputs, expected: Expected, machine: Path, tmp_path: Path
) -> None:
    name = "convert to columns"
    chosen = random.Random(5)
    with serving({}) as site:
        work, _ = plan_to(f"{site.url}/set", CONVERT[name], inputs, tmp_path)
        work.write(tmp_path / "plan")
        forks = Forks("tests.jobs.crashing")
        kills = 0
        while (code := forks.run(task_of(tmp_path, chosen.randint(1, 90) if kills < KILLS else 0))) < 0:
            assert code == -signal.SIGKILL
            kills += 1
            if chosen.random() < 0.5:
                to_another_machine(machine)
        forks.close()
        assert (code, kills > 1) == (0, True)
        assert not [each for each in site.objects if ".parts" in each or MARKER in each]
        assert not [path for path in (machine / "uploads").rglob("*") if path.is_file()]
        save({each.removeprefix("set/"): content for each, content in site.objects.items()}, tmp_path)
    assert CONVERT[name].outcome(None, tmp_path) == expected(name)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_merge_that_fails_at_any_request_leaves_nothing_to_open_and_goes_on(
    elsewhere: bool, inputs: Inputs, expected: Expected, bucket: Bucket, machine: Path, tmp_path: Path
) -> None:
    name = "convert to minari, hdf5"
    work, out = plan_to(bucket.url, CONVERT[name], inputs, tmp_path)
    run_work(work, tmp_path / "results", ThreadRunner(2))
    failed = 0
    while True:
        left = [failed]

        def refuse(request: Request, left: list[int] = left) -> int | None:
            left[0] -= request.method in ("PUT", "DELETE", "POST")
            return 403 if left[0] < 0 else None

        bucket.stores.fault = refuse
        try:
            finish_work(work, tmp_path / "results")
        except RemoteError:
            failed += 1
        else:
            break
        finally:
            bucket.stores.fault = lambda _: None
        there = [each for each in bucket.names() if each.startswith(f"{out}/")]
        if not there or f"{out}/{MARKER}" in there:
            with pytest.raises((FileNotFoundError, RemoteError)):
                penstock.open(f"{bucket.url}/{out}")
        if elsewhere:
            to_another_machine(machine)
    assert failed > 2
    assert not [each for each in bucket.names() if ".parts" in each]
    save({each: bucket.get(each) for each in bucket.names()}, tmp_path)
    assert CONVERT[name].outcome(None, tmp_path) == expected(name)


def test_parts_that_changed_or_are_gone_are_made_again(
    inputs: Inputs, expected: Expected, bucket: Bucket, machine: Path, tmp_path: Path
) -> None:
    name = "convert to columns"
    work, _ = plan_to(bucket.url, CONVERT[name], inputs, tmp_path)
    results = tmp_path / "results"
    run_work(work, results, ThreadRunner(0))
    parts = [each for each in bucket.names() if ".parts/" in each]
    flipped = bytearray(bucket.get(parts[0]))
    flipped[len(flipped) // 2] ^= 1
    for number, content in enumerate((bytes(flipped), b"other bytes", b"", bytes(5000))):
        to_another_machine(machine)
        bucket.put({parts[number % 2]: content})
        with pytest.raises(FormatError, match=r"got others, which were deleted; run the same .* - in s3://.*\.parts/"):
            finish_work(work, results)
        with pytest.raises(DataError, match=r"missing are job \d+ .*; run these again"):
            finish_work(work, results)
        assert run_share(work, results, 0, 1).done == 1
    bucket.put({parts[2]: b"damaged before another copy of its job"})
    assert run_job(work, 2, 0).error == ""
    to_another_machine(machine)
    work.opened().has_part(ResultFolder(results, work).get(0) or b"")  # lists the parts
    bucket.delete(parts[1])
    with pytest.raises(DataError, match=r"expected the part s3://.*, got nothing; run the same command or task again"):
        finish_work(work, results)
    assert run_work(work, results).done == 1
    finish_work(work, results)
    save({each: bucket.get(each) for each in bucket.names()}, tmp_path)
    assert CONVERT[name].outcome(None, tmp_path) == expected(name)


def test_the_command_writes_by_processes_and_shows_no_credentials(
    bucket: Bucket, inputs: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = CliRunner()
    url = f"{bucket.url}/demo"
    command = ["convert", str(inputs.robot), url, "--jobs", "2", "--range-bytes", "20000"]
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    endpoint = ["--storage", f"endpoint_url={bucket.stores.url}"]
    refused = runner.invoke(app, [*command, *endpoint, "--storage", f"secret={SECRET}"])
    assert refused.exit_code == 2
    assert SECRET not in refused.output
    assert "storage options without credentials, got ['secret']" in refused.output.replace("\n", " ")
    planned = runner.invoke(app, [*command, *endpoint, "--plan", str(tmp_path / "plan.json")])
    assert planned.exit_code == 0, planned.output
    written = "".join(path.read_bytes().decode("latin-1") for path in tmp_path.glob("plan.json*"))
    assert SECRET not in written
    assert KEY not in written
    for status in ("converted", "was complete before"):
        done = runner.invoke(app, [*command, *endpoint])
        assert done.exit_code == 0, done.output
        assert f"{url} (columns) {status}" in done.output.replace("\n", " ")
    OPENED.close()
    with penstock.open(url, storage_options={"endpoint_url": bucket.stores.url}) as data:
        assert len(data) == 9


def test_what_is_at_the_url_is_refused_before_any_work(
    inputs: Inputs, bucket: Bucket, machine: Path, tmp_path: Path
) -> None:
    case = CONVERT["convert to columns"]
    bucket.put({"out/notes.txt": b"mine"})
    with pytest.raises(FileExistsError, match="expected nothing at"):
        plan_to(bucket.url, case, inputs, tmp_path)
    bucket.put({f"out/{MARKER}": b"{}"})
    with pytest.raises(RemoteError, match="got an upload that was not finished"):
        plan_to(bucket.url, case, inputs, tmp_path)
    assert sorted(bucket.names()) == ["out/notes.txt", f"out/{MARKER}"]
    for name in bucket.names():
        bucket.delete(name)
    with pytest.raises(DataError, match="expected a URL without a user and a query"):
        plan_to(f"{bucket.url}/a?token=1&b=", case, inputs, tmp_path)
    work, _ = plan_to(bucket.url, case, inputs, tmp_path)
    bucket.stores.fault = lambda request: 403 if request.method in ("PUT", "POST") else None
    with pytest.raises(WorkerError, match=r"failed job: job 0 .*refuses access"):
        run_work(work, tmp_path / "results", ThreadRunner(0))
    assert bucket.names() == []


def test_memory_of_one_process_is_a_store_too(inputs: Inputs, machine: Path, tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}"
    work, _ = plan_to(url, CONVERT["convert to webdataset"], inputs, tmp_path)
    run_work(work, tmp_path / "results", ThreadRunner(2))
    finish_work(work, tmp_path / "results")
    with penstock.open(f"{url}/out") as data, penstock.open(inputs.recording) as source:
        np.testing.assert_array_equal(data[13].columns["actions"], source[13].columns["actions"])
