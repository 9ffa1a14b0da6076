"""Episodes are the same for any number of workers of any kind, and whatever fails meanwhile."""

# pyright: basic

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.conversion.difference import difference
from penstock.errors import DataError, FormatError, StateError, WorkerError
from penstock.formats.columns import table as tables
from penstock.formats.columns.table import publish_segment
from penstock.formats.columns.writer import ColumnsWriter, create_store
from penstock.jobs.coordinator import finish_work, missing_jobs, run_share, run_work
from penstock.jobs.operations.record import record_arguments
from penstock.jobs.runners import ProcessRunner, ThreadRunner, run_job
from penstock.jobs.work_plan import WorkPlan
from penstock.recording.checks import RecordingWarning
from penstock.recording.memory import MemoryWriter
from penstock.recording.policies import PolicyWeights
from penstock.recording.rollout_spec import RolloutSpec
from penstock.recording.rollout_worker import RolloutWorker
from penstock.replay.replay import run_of
from tests.jobs import collecting

HERE = "tests.jobs.collecting"
WALK = RolloutSpec(f"{HERE}:Walk-v0", policy=f"{HERE}:noisy_batch", seed=11, n_envs=3, infos=True)
EPISODES, JOB = 30, 4


def plan(out: Path, spec: RolloutSpec = WALK, **more: object) -> WorkPlan:
    return WorkPlan.make("record", record_arguments(spec, out, EPISODES, **{"job_episodes": JOB, **more}))


def content(out: Path) -> dict[str, str]:
    """Every file with its digest."""
    files = sorted(path for path in out.rglob("*") if path.is_file())
    return {path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recording of one process, in parts of the same size."""
    folder = tmp_path_factory.mktemp("whole")
    work = plan(folder / "out")
    assert len(work) == 8
    run_work(work, folder / "results")
    assert finish_work(work, folder / "results").episodes == EPISODES
    assert sorted(path.name for path in folder.iterdir()) == ["out", "results"]
    return folder / "out"


def test_an_episode_follows_from_its_seed_and_number(whole: Path) -> None:
    """A loop that shares no code with the worker makes the same episodes."""
    first, stride = (int(n) for n in np.random.default_rng(11).integers(0, 2**31, 2))
    data = penstock.open(whole)
    assert len(data) == EPISODES
    for number, episode in enumerate(data):
        seed = (first + number * (stride | 1)) % 2**31
        assert (episode.metadata["number"], episode.metadata["seed"]) == (number, seed)
        env, rng = collecting.Walk(), np.random.default_rng(np.random.SeedSequence(11, spawn_key=(number,)))
        observation, _ = env.reset(seed=seed)
        for t in range(len(episode)):
            np.testing.assert_array_equal(episode.observations[t], observation)
            action = collecting.noisy(observation, rng)
            np.testing.assert_array_equal(episode.actions[t], action)
            observation, reward, over, _, _ = env.step(action)
            assert (episode.rewards[t], episode.terminations[t]) == (reward, over)
        assert over
        np.testing.assert_array_equal(episode.observations[-1], observation)
    assert len({episode.metadata["seed"] for episode in data}) == EPISODES


@pytest.mark.parametrize(
    ("runner", "n_envs"), [(ThreadRunner(2), 3), (ThreadRunner(3), 1), (ProcessRunner(1), 8), (ProcessRunner(3), 3)]
)
def test_any_number_of_workers(whole: Path, tmp_path: Path, runner: object, n_envs: int) -> None:
    single = {"policy": f"{HERE}:noisy"} if n_envs == 1 else {}
    work = plan(tmp_path / "out", replace(WALK, n_envs=n_envs, **single))
    run_work(work, tmp_path / "results", runner)
    report = finish_work(work, tmp_path / "results")
    assert report.steps == penstock.open(whole).total_steps
    assert {**content(tmp_path / "out"), "metadata.json": ""} == {**content(whole), "metadata.json": ""}
    assert penstock.check(tmp_path / "out", deep=True).sound


def test_array_tasks_and_one_run(whole: Path, tmp_path: Path) -> None:
    work = plan(tmp_path / "out")
    for index in (2, 0, 1):
        assert run_share(work, tmp_path / "results", index, 3).failures == {}
    finish_work(work, tmp_path / "results")
    assert content(tmp_path / "out") == content(whole)
    RolloutWorker(WALK).record(range(EPISODES), tmp_path / "alone")
    alone, parts = penstock.open(tmp_path / "alone"), penstock.open(tmp_path / "out")
    assert (alone.spec, dict(alone.metadata)) == (parts.spec, dict(parts.metadata))
    assert list(difference(alone, parts)) == []
    assert alone.source.fingerprint == parts.source.fingerprint


def test_random_actions_and_other_ranges(tmp_path: Path) -> None:
    spec = RolloutSpec("CartPole-v1", seed=3, n_envs=2)
    RolloutWorker(spec).record(range(20), tmp_path / "alone", format="minari")
    arguments = record_arguments(spec, tmp_path / "out", 12, first=8, job_episodes=5, writer={"compression": 1})
    work = WorkPlan.make("record", arguments)
    run_work(work, tmp_path / "results", ThreadRunner(2))
    finish_work(work, tmp_path / "results")
    alone, parts = penstock.open(tmp_path / "alone"), penstock.open(tmp_path / "out")
    for one, other in zip(alone[8:20], parts, strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
        np.testing.assert_array_equal(one.actions, other.actions)


@pytest.mark.parametrize(("seed", "grow"), [(1, False), (2, True)])
def test_workers_that_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, grow: bool) -> None:
    markers = tmp_path / "markers"
    markers.mkdir()
    monkeypatch.setenv(collecting.MARKERS, str(markers))
    spec = replace(WALK, policy=f"{HERE}:deadly", seed=seed, infos=False)
    work = plan(tmp_path / "out", spec, grow=grow)
    report = run_work(work, tmp_path / "results", ProcessRunner(2))
    assert (report.done, report.failures) == (8, {})
    assert report.lost == len(list(markers.iterdir())) > 0
    finish_work(work, tmp_path / "results")
    monkeypatch.delenv(collecting.MARKERS)
    RolloutWorker(spec).record(range(EPISODES), tmp_path / "alone")
    alone, parts = penstock.open(tmp_path / "alone"), penstock.open(tmp_path / "out")
    numbers = [episode.metadata["number"] for episode in parts]
    assert sorted(numbers) == list(range(EPISODES))
    assert list(difference(alone, parts[np.argsort(numbers)])) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "markers", "out", "results"]


@pytest.mark.parametrize("grow", [False, True])
def test_a_killed_coordinator_goes_on(whole: Path, tmp_path: Path, grow: bool) -> None:
    work = plan(tmp_path / "out", grow=grow)
    work.write(tmp_path / "plan.json")
    script = (
        "import os, signal, sys; from pathlib import Path; from penstock.jobs import WorkPlan, run_work\n"
        "from penstock.jobs.runners import ProcessRunner\n"
        "def on_job(done, total): done >= 3 and os.kill(os.getpid(), signal.SIGKILL)\n"
        "run_work(WorkPlan.read(sys.argv[1]), Path(sys.argv[2]), ProcessRunner(2), on_job=on_job)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "plan.json"), str(tmp_path / "results")]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert 0 < len(missing_jobs(work, tmp_path / "results")) <= 5
    run_work(work, tmp_path / "results", ProcessRunner(2))
    finish_work(work, tmp_path / "results")
    numbers = [episode.metadata["number"] for episode in penstock.open(tmp_path / "out")]
    assert sorted(numbers) == list(range(EPISODES))
    if not grow:
        assert content(tmp_path / "out") == content(whole)


@pytest.mark.parametrize("grow", [False, True])
def test_each_job_twice_at_once(whole: Path, tmp_path: Path, grow: bool) -> None:
    work = plan(tmp_path / "out", grow=grow)
    answers: dict[tuple[int, int], bytes | None] = {}

    def all_jobs(copy: int) -> None:
        for number in range(len(work)):
            answers[copy, number] = run_job(work, number, 0).result

    threads = [threading.Thread(target=all_jobs, args=[copy]) for copy in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(len(work)):
        assert answers[0, number] == answers[1, number] == answers[2, number] is not None
    run_work(work, tmp_path / "results")
    finish_work(work, tmp_path / "results")
    numbers = [episode.metadata["number"] for episode in penstock.open(tmp_path / "out")]
    assert sorted(numbers) == list(range(EPISODES))
    if not grow:
        assert content(tmp_path / "out") == content(whole)


@pytest.mark.parametrize("grow", [False, True])
@pytest.mark.parametrize("function", ["pwrite", "fsync"])
def test_a_full_disk(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, grow: bool) -> None:
    work = plan(tmp_path / "out", grow=grow)
    real, left = getattr(os, function), [0]

    def write(fd: int, *given: object) -> object:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, *given)

    messages: list[str] = []
    for room in range(1, 400, 37):
        left[0] = room
        monkeypatch.setattr(os, function, write)
        try:
            run_work(work, tmp_path / "results")
        except (WorkerError, OSError) as error:  # OSError: of the journal or of a result
            messages.append(str(error))
        monkeypatch.undo()
        if grow and (tmp_path / "out").exists():
            findings = penstock.check(tmp_path / "out", deep=True).findings
            assert {finding.name for finding in findings if finding.level == "error"} == {"unfinished"}
    assert len(messages) > 1
    assert all("No space left" in message for message in messages)
    if function == "fsync":  # the disk has room for the journal
        assert any("(episodes " in message and "of seed 11): OSError" in message for message in messages)
    run_work(work, tmp_path / "results")
    finish_work(work, tmp_path / "results")
    numbers = [episode.metadata["number"] for episode in penstock.open(tmp_path / "out")]
    assert sorted(numbers) == list(range(EPISODES))
    assert penstock.check(tmp_path / "out", deep=True).sound
    if not grow:
        assert content(tmp_path / "out") == content(whole)


def test_publishing_that_is_interrupted_goes_on(whole: Path, tmp_path: Path) -> None:
    """After some files, after all, and after some entries."""
    data = penstock.open(whole)
    episodes, spec, metadata = list(data), data.spec, dict(data.metadata)

    def part_of(name: str, begin: int) -> Path:
        with ColumnsWriter.create(tmp_path / name, spec, metadata) as writer:
            writer.write_all(episodes[begin : begin + 3])
        return tmp_path / name

    for state in ["begin", "linked", "0", "1", "3", "removed"]:
        place = tmp_path / f"store-{state}"
        create_store(place, spec, metadata)
        part = part_of(f"part-{state}", 0)
        publish_segment(part_of(f"other-{state}", 3), place, 5)
        if state not in ("begin", "removed"):
            shutil.copytree(part / "segments/0", place / "segments/7", copy_function=os.link)
        if state == "linked":
            (place / "segments/7/actions.values").unlink()
        entries = int(state) if state.isdigit() else 0
        table = (part / "episodes").read_bytes()
        raw = b"".join(tables.pack(7, *tables.unpack(table, e)[1:]) for e in range(entries))
        with (place / "episodes").open("ab") as file:
            file.write(raw + b"torn")
        for _ in range(2):
            publish_segment(part, place, 7)
            found = list(penstock.open(place))
            assert [episode.metadata["number"] for episode in found] == [3, 4, 5, 0, 1, 2]
            assert penstock.check(place, deep=True).sound
            assert not (part / "segments/0").exists()
    with pytest.raises(StateError, match="expected no other segment 5"):
        publish_segment(part, place, 5)


def test_an_environment_that_fails_names_the_episode(tmp_path: Path) -> None:
    spec = RolloutSpec(f"{HERE}:Fragile-v0", seed=2)
    work = plan(tmp_path / "out", spec)
    with pytest.raises(WorkerError, match=r"job \d \(episodes \d+ to \d+ of seed 2\)") as caught:
        run_work(work, tmp_path / "results", max_failures=0)
    text = str(caught.value)
    assert "at step 19: ZeroDivisionError: the walker fell (" in text
    assert "collecting.py, line " in text
    number = int(text.split("--seed 2 --first ")[1].split(maxsplit=1)[0])
    with pytest.raises(WorkerError, match=f"episode {number} of {HERE}:Fragile-v0 .* failed at step 19"):
        RolloutWorker(spec).record(range(number, number + 1), MemoryWriter())
    report = run_work(work, tmp_path / "results", max_failures=8)
    assert 0 < len(report.failures) < 8
    with pytest.raises(DataError, match="missing are job"):
        finish_work(work, tmp_path / "results")


def test_an_environment_that_hangs(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGALRM)
    spec = RolloutSpec(f"{HERE}:Hanging-v0", step_timeout=0.05)
    with pytest.raises((WorkerError, TimeoutError), match=r"within 0.05 s, got none"):
        RolloutWorker(spec).record(range(1), MemoryWriter())
    with pytest.raises((WorkerError, TimeoutError), match="expected an answer of the environment"):
        record_arguments(spec, tmp_path / "out", 10)
    work = plan(tmp_path / "out", replace(WALK, step_timeout=3600))
    with pytest.raises(WorkerError, match="expected --step-timeout with --runner processes or ray"):
        run_work(work, tmp_path / "results", ThreadRunner(2))
    assert signal.getsignal(signal.SIGALRM) is before


def test_an_environment_without_seeds(tmp_path: Path) -> None:
    with pytest.warns(RecordingWarning, match="to repeat an episode after a reset with the same seed"):
        work = plan(tmp_path / "out", RolloutSpec(f"{HERE}:Unseeded-v0"))
    run_work(work, tmp_path / "results", ProcessRunner(2))
    finish_work(work, tmp_path / "results")
    numbers = [episode.metadata["number"] for episode in penstock.open(tmp_path / "out")]
    assert numbers == list(range(EPISODES))


def test_a_learner_follows_and_publishes_weights(tmp_path: Path) -> None:
    """Each job is made with the version before it, and any episode can be made again from number and version."""
    weights = PolicyWeights(tmp_path / "weights")
    weights.publish(0, b"1.0")
    spec = replace(WALK, policy=f"{HERE}:linear", weights=str(weights.folder), infos=False)
    work = plan(tmp_path / "out", spec, grow=True)
    replay = penstock.Replay(tmp_path / "out", capacity=10_000, seed=1)
    seen: list[int] = []

    def learn(done: int, _: int) -> None:
        if done:
            batch = replay.sample(16)
            assert batch["observations"].shape == (16, 3)
            seen.append(run_of(replay).contents.episodes)
            there = done * JOB
            if there < EPISODES:
                with pytest.raises(FormatError, match=f"the recording stopped at {there} of {EPISODES} episodes"):
                    penstock.open(tmp_path / "out")
            assert len(penstock.open(tmp_path / "out", allow_unfinished=True)) == min(there, EPISODES)
            weights.publish(done, str(1 / (1 + done)).encode())

    run_work(work, tmp_path / "results", ProcessRunner(1), on_job=learn)
    finish_work(work, tmp_path / "results")
    assert seen == [JOB, 2 * JOB, 3 * JOB, 4 * JOB, 5 * JOB, 6 * JOB, 7 * JOB, EPISODES]
    data = penstock.open(tmp_path / "out")
    versions = [episode.metadata["policy_version"] for episode in data]
    assert versions == [number // JOB for number in range(EPISODES)]
    for number in (0, 13, 29):
        again = tmp_path / f"again-{number}"
        PolicyWeights(again).publish(versions[number], str(1 / (1 + versions[number])).encode())
        RolloutWorker(replace(spec, weights=str(again), n_envs=2)).record(
            range(number, number + 1), writer := MemoryWriter()
        )
        np.testing.assert_array_equal(writer.episodes[0].observations, data[number].observations)


def test_a_replay_that_removes_old_files(tmp_path: Path) -> None:
    work = plan(tmp_path / "out", replace(WALK, infos=False), grow=True)
    replay = penstock.Replay(tmp_path / "out", capacity=50, keep_steps=60)

    def look(done: int, _: int) -> None:
        if done:
            replay.sample(4)

    run_work(work, tmp_path / "results", on_job=look)
    assert finish_work(work, tmp_path / "results").episodes == EPISODES
    numbers = [episode.metadata["number"] for episode in penstock.open(tmp_path / "out")]
    assert 0 < len(numbers) < EPISODES
    assert numbers == list(range(EPISODES - len(numbers), EPISODES))
    assert len(list((tmp_path / "out/segments").iterdir())) < len(work)


def test_a_version_that_comes_while_episodes_are_open(tmp_path: Path) -> None:
    """Episodes keep the version that they began with, and nothing of another one."""
    weights = PolicyWeights(tmp_path / "weights")
    weights.publish(0, b"1.0")
    spec = replace(WALK, policy=f"{HERE}:linear", weights=str(weights.folder), infos=False)

    def publish(number: int, total: float, steps: int) -> None:
        weights.publish(number + 1, str(1 / (number + 2)).encode())

    RolloutWorker(spec).record(range(20), writer := MemoryWriter(), on_episode=publish)
    versions = [episode.metadata["policy_version"] for episode in writer.episodes]
    assert versions[:3] == [0, 0, 0]
    assert len(set(versions)) > 5
    for episode, version in zip(writer.episodes, versions, strict=True):
        again = tmp_path / "again" / str(episode.id)
        PolicyWeights(again).publish(version, str(1 / (version + 1)).encode())
        number = episode.metadata["number"]
        RolloutWorker(replace(spec, weights=str(again))).record(range(number, number + 1), alone := MemoryWriter())
        np.testing.assert_array_equal(alone.episodes[0].observations, episode.observations)
        np.testing.assert_array_equal(alone.episodes[0].actions, episode.actions)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected files such as 00000001\.weights"):
        PolicyWeights(tmp_path / "none").newest()
    with pytest.raises(DataError, match="expected a policy as module:function for the weights"):
        RolloutWorker(RolloutSpec("CartPole-v1", weights="weights"))
    with pytest.raises(DataError, match="expected a path for a target that is written in parts"):
        record_arguments(WALK, "memory://out", 10)
    with pytest.raises(DataError, match="expected episodes and job_episodes of at least 1"):
        record_arguments(WALK, tmp_path / "out", 10, job_episodes=0)
    with pytest.raises(FileExistsError):
        plan(tmp_path)
    work = plan(tmp_path / "out")
    changed = replace(work, fingerprint="other")
    with pytest.raises(StateError, match="the data and the function of the work plan"):
        changed.opened()


def test_hidden_and_foreign_files_are_no_versions(tmp_path: Path) -> None:
    for name in (".step_9.pt", "readme", "step_3.pt", "step_12.pt", "best.pt"):
        (tmp_path / name).write_bytes(b"")
    assert PolicyWeights(tmp_path).newest() == (12, tmp_path / "step_12.pt")
