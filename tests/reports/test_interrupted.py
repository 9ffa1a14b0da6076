"""Reports of writing that was interrupted."""

# pyright: basic

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.errors import FormatError
from penstock.formats.base.format import named
from penstock.jobs import WorkPlan, finish_work, run_work
from penstock.jobs.coordinator import ResultFolder
from tests.reports.reported import report

EPISODES = 10
FORMATS: dict[str, dict[str, Any]] = {
    "columns": {},
    "webdataset": {"shard_episodes": 4},
    "rlds": {},
    "lerobot": {"fps": 10},
}


class Interrupted(BaseException):
    """Stands for Ctrl-C, which pytest takes for itself."""


def data() -> penstock.EpisodeDataset:
    steps = 3 * EPISODES
    columns = {
        "observations": np.arange(2.0 * steps, dtype="f4").reshape(steps, 2),
        "actions": np.zeros((steps, 2), "f4"),
        "rewards": np.arange(float(steps)),
    }
    return penstock.from_arrays(columns, lengths=[3] * EPISODES)


def stop_at(episode: int, error: type[BaseException] = Interrupted) -> Any:
    def stop(done: int, steps: int, nbytes: int) -> None:
        if done == episode:
            raise error("the source failed")

    return stop


@report("mosaicml/streaming#335", "a conversion that stopped before its end is not opened as a dataset")
@report("mosaicml/streaming#261", "a conversion that failed goes on where it stopped")
@report("mosaicml/streaming#737", "a conversion that was resumed has the bytes of one that was not interrupted")
@report("Lightning-AI/litData#137", "a crash late in a conversion does not cost the work before it")
@report("mozilla/DeepSpeech#445", "a conversion that was killed in the middle resumes, and nothing is missing after it")
@pytest.mark.parametrize("format", FORMATS)
def test_a_conversion_that_stopped_is_refused_and_resumed(format: str, tmp_path: Path) -> None:
    how: dict[str, Any] = {"format": format, "options": FORMATS[format]}
    penstock.convert(data(), tmp_path / "source")
    with pytest.raises(Interrupted):
        penstock.convert(tmp_path / "source", tmp_path / "out", on_episode=stop_at(6), **how)
    with pytest.raises(FormatError, match=rf"stopped at 6 of {EPISODES} episodes.*run the same command again"):
        penstock.open(tmp_path / "out")
    again = penstock.convert(tmp_path / "source", tmp_path / "out", **how)
    assert (again.status, again.resumed_at) == ("resumed", 6)
    penstock.convert(tmp_path / "source", tmp_path / "whole", **how)
    with penstock.open(tmp_path / "out") as resumed, penstock.open(tmp_path / "whole") as whole:
        for one, other in zip(resumed, whole, strict=True):
            for path in ("observations", "rewards"):
                np.testing.assert_array_equal(np.asarray(one.columns[path]), np.asarray(other.columns[path]))


@report("google/zoekt#11", "a first shard is not taken for the dataset when writing the second one fails")
def test_an_error_in_the_second_shard_leaves_no_dataset(tmp_path: Path) -> None:
    how: dict[str, Any] = {"format": "webdataset", "options": FORMATS["webdataset"]}
    with pytest.raises(OSError, match="the source failed"):
        penstock.convert(data(), tmp_path / "out", on_episode=stop_at(5, OSError), **how)
    for place in (tmp_path / "out", tmp_path / "out/shard-000000.tar", f"{tmp_path}/out/*.tar"):
        with pytest.raises(FormatError, match="the conversion stopped"):
            penstock.open(place)


@report("huggingface/lerobot#2495", "an exception while recording leaves a dataset with every saved episode")
@report("LightwheelAI/leisaac#129", "Ctrl-C while recording leaves Parquet files that can be read")
@report("huggingface/lerobot#3522", "after a crash, recording goes on in the same dataset")
@report("huggingface/lerobot#4561", "episodes that were saved before a writer was closed are in the metadata")
@pytest.mark.parametrize("killed", [False, True])
def test_a_lerobot_recording_that_was_interrupted_keeps_its_episodes(killed: bool, tmp_path: Path) -> None:
    path = tmp_path / "recording"

    def record() -> None:
        with named("lerobot").create(path, data().spec, fps=10) as writer:
            for episode in data()[:4]:
                writer.write(episode)
            if killed:  # nothing behind this point happens in a process that is killed
                shutil.copytree(path, tmp_path / "killed")
            raise Interrupted

    with pytest.raises(Interrupted):
        record()
    place = tmp_path / "killed" if killed else path
    with penstock.open(place) as recorded:
        assert len(recorded) == 4
        assert np.array_equal(recorded[3].rewards, data()[3].rewards)
    with named("lerobot").append(place) as writer:
        writer.write(data()[4])
    with penstock.open(place) as recorded:
        assert [float(episode.rewards[0]) for episode in recorded] == [0.0, 3.0, 6.0, 9.0, 12.0]


@report("openmc-data-storage/openmc_data#33", "what a killed job left half-written is not taken for its result")
@report("Hebbian-Robotics/hflow#303", "a job that runs again reuses complete parts and no others")
def test_half_a_part_is_made_again_and_whole_ones_are_used(tmp_path: Path) -> None:
    place = str(penstock.convert(data(), tmp_path / "source").out)
    arguments = {"location": place, "out": str(tmp_path / "out"), "to": "columns"}
    work = WorkPlan.make("convert", arguments, range_bytes=200)
    assert len(work) > 2
    run_work(work, tmp_path / "results")
    results = ResultFolder(tmp_path / "results", work)
    results.path(1).write_bytes(results.path(1).read_bytes()[:-1])
    (part,) = (tmp_path / "out.parts").glob("*/000000000000-*")
    shutil.rmtree(part)
    again = run_work(work, tmp_path / "results")
    assert (again.done, again.earlier) == (2, len(work) - 2)
    assert finish_work(work, tmp_path / "results").certificate.lossless
    assert len(penstock.open(tmp_path / "out")) == EPISODES
