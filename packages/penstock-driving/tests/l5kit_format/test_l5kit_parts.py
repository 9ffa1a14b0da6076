"""Logs of parts have the bytes of a log of one run, whether or not it is known how many agents are before a part."""

# pyright: basic

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from l5kit_format.conftest import Make
from penstock.data.chosen import ChosenDataset
from penstock.formats.base.format import named
from penstock.formats.base.writer import PartStart
from penstock.jobs.coordinator import finish_work, run_work
from penstock.jobs.runners import ThreadRunner
from penstock.jobs.work_plan import WorkPlan
from penstock_driving.formats.l5kit import L5KitWriter

CHUNKS = {"scenes": 4, "frames": 16, "agents": 32, "traffic_light_faces": 32}


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def log(make: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scenes of very different numbers of frames and agents, the first without agents, one longer than a chunk."""
    rng = np.random.default_rng(5)
    path = tmp_path_factory.mktemp("log") / "drive.zarr"
    with L5KitWriter.create(path) as writer:
        for number, frames in enumerate([2, 1, 70, 1, 3, 9, 2, 30, 1]):
            most = 1 if number == 0 else 6
            counts, faces = rng.integers(0, most, frames).tolist(), rng.integers(0, most, frames).tolist()
            writer.write_scene(*make(number, counts, faces))
    return path


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("options", [{"chunk_rows": CHUNKS}, {"layout": "npy"}])
def test_parts_have_the_bytes_of_one_run(log: Path, options: dict[str, Any], known: bool, tmp_path: Path) -> None:
    l5kit = named("l5kit")
    parts: list[Path] = []
    with penstock.open(log) as data:
        with l5kit.create(tmp_path / "alone", data.spec, {"a": 1}, **options) as writer:
            writer.write_all(data)
        source: Any = data.source
        for first, last in ((0, 2), (2, 3), (3, 6), (6, 9)):
            step = int(source.offsets[first])
            values = {path: int(source.value_offsets(path)[step]) for path in data.spec if data.spec[path].ragged}
            parts.append(tmp_path / "parts" / str(first))
            parts[-1].parent.mkdir(exist_ok=True)
            start = PartStart(first, step, values if known else {})
            with l5kit.begin_part(parts[-1], data.spec, {"a": 1}, start, **options) as writer:
                writer.write_all(data[e] for e in range(first, last))
            with l5kit.open_part(parts[-1]) as part:
                assert len(part) == last
                for e in range(first, last):
                    np.testing.assert_array_equal(part.episode(e).columns["timestamp"], data[e].columns["timestamp"])
                    read, kept = (each.columns["agents/centroid"] for each in (part.episode(e), data[e]))
                    np.testing.assert_array_equal(read.values, kept.values)
                    np.testing.assert_array_equal(read.offsets, kept.offsets)
    l5kit.join_parts(parts, tmp_path / "out", tmp_path / "out")
    l5kit.join_parts(parts, tmp_path / "out", tmp_path / "out")  # as after a kill at the very end
    assert files_of(tmp_path / "out") == files_of(tmp_path / "alone")


@pytest.mark.parametrize("options", [{"chunk_rows": CHUNKS}, {"layout": "npy"}])
def test_a_conversion_in_parts_has_the_bytes_of_one_run(log: Path, options: dict[str, Any], tmp_path: Path) -> None:
    arguments = {**ChosenDataset(str(log)).arguments(), "out": str(tmp_path / "out"), "to": "l5kit", "writer": options}
    work = WorkPlan.make("convert", arguments, range_bytes=4000)
    assert len(work) > 2
    run_work(work, tmp_path / "results", ThreadRunner(2))
    finish_work(work, tmp_path / "results")
    penstock.convert(log, tmp_path / "alone", format="l5kit", options=options)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "alone")
