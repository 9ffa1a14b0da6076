"""A target that is not finished is no dataset: `open` refuses it, `info` and `check` say how much is there."""

# pyright: basic

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.errors import DamageWarning, FormatError
from penstock.formats.base.account import CONVERSION
from penstock.formats.base.format import available, recognise
from penstock.formats.columns.compact import compact
from penstock.formats.columns.retention import Retention

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden"
EPISODES = 12
TARGETS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "columns": ("general", "columns", {}),
    "columns compressed": ("general", "columns", {"compression": 1}),
    "shards": ("general", "webdataset", {"shard_episodes": 5}),
    "archive.tar": ("general", "webdataset", {}),
    "archive.tgz": ("general", "webdataset", {}),
    "seed shards": ("general", "webdataset", {"layout": "seed", "shard_episodes": 5}),
    "zarr": ("general", "zarr", {"chunk_rows": 8}),
    "zarr 3": ("general", "zarr", {"zarr_format": 3}),
    "rlds": ("general", "rlds", {}),
    "minari hdf5": ("general", "minari", {}),
    "minari arrow": ("general", "minari", {"data_format": "arrow"}),
    "lerobot": ("general", "lerobot", {"fps": 10}),
    **{name: (kind, name, {}) for kind, name in {"games": "lc0", "drive": "l5kit"}.items() if name in available()},
}
KILLS = 2


class Interrupted(BaseException):
    """As `KeyboardInterrupt`, which pytest takes for itself."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sources")
    steps = 3 * EPISODES
    columns = {
        "observations": np.arange(4.0 * EPISODES, dtype="f4")[:, None],
        "actions": np.zeros((steps, 2), "f4"),
        "rewards": np.arange(float(steps)),
        "terminations": np.arange(steps) % 3 == 2,
        "truncations": np.zeros(steps, np.bool_),
    }
    data = penstock.from_arrays(columns, lengths=[3] * EPISODES)
    penstock.convert(data, folder / "general", certificate=False)
    if "lc0" in TARGETS:
        games = penstock.open(GOLDEN / "lc0/gz")[[0] * EPISODES]
        penstock.convert(games, folder / "games", format="lc0", certificate=False)
    if "l5kit" in TARGETS:
        drive = penstock.open(GOLDEN / "l5kit/single.zarr")[[0] * EPISODES]
        penstock.convert(drive, folder / "drive", certificate=False)
    return {name: folder / name for name in ("general", "games", "drive")}


@pytest.fixture(scope="module")
def forks(sources: dict[str, Path]) -> Generator[subprocess.Popen[str]]:
    """A process without threads that forks off one process for each conversion."""
    tasks = [task_of(sources, name, Path(name.replace(" ", "-"))) for name in TARGETS]
    command = [sys.executable, "-m", "tests.conversion.interrupted", *map(json.dumps, tasks)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, text=True, cwd=ROOT, stdin=pipe, stdout=pipe) as process:
        yield process


def task_of(sources: dict[str, Path], name: str, out: Path, die: int = 0) -> dict[str, Any]:
    source, format, options = TARGETS[name]
    return {"source": str(sources[source]), "out": str(out), "format": format, "options": options, "die": die}


def converted(forks: subprocess.Popen[str], task: dict[str, Any]) -> tuple[int, int]:
    """Exit code, and number of changes."""
    assert forks.stdin is not None
    assert forks.stdout is not None
    forks.stdin.write(json.dumps(task) + "\n")
    forks.stdin.flush()
    code, changes = map(int, forks.stdout.readline().split())
    return code, changes


def interrupt(data: Any, out: Path, after: int = 5, **how: Any) -> None:
    """Convert, and stop after some episodes."""

    def stop(done: int, steps: int, nbytes: int) -> None:
        if done == after:
            raise Interrupted

    with pytest.raises(Interrupted):
        penstock.convert(data, out, on_episode=stop, **how)


@pytest.mark.parametrize("name", TARGETS)
def test_a_killed_conversion_leaves_no_dataset_with_fewer_episodes(
    name: str, sources: dict[str, Path], forks: subprocess.Popen[str], tmp_path: Path
) -> None:
    """Whichever change it was killed before, from the first one to the last one, which removes the mark."""
    place = name.replace(" ", "-")
    _, changes = converted(forks, task_of(sources, name, tmp_path / "whole" / place))
    chosen = random.Random(name)
    refused = 0
    for die in {*range(changes - 2, changes + 1), *(chosen.randint(1, changes) for _ in range(KILLS))}:
        out = tmp_path / str(die) / place
        assert converted(forks, task_of(sources, name, out, die))[0] == -signal.SIGKILL
        try:
            with penstock.open(out) as data:
                assert len(data) == EPISODES
                assert die > changes - 2  # the target was closed
        except (FormatError, FileNotFoundError) as error:
            refused += f"of {EPISODES} episodes" in str(error)
        assert converted(forks, task_of(sources, name, out))[0] == 0
        with penstock.open(out) as whole:
            assert len(whole) == EPISODES
            assert whole.source.account.left_out == ()
        assert not list(out.parent.rglob("*.penstock*unfinished"))
    assert refused


@pytest.mark.parametrize("name", [name for name in TARGETS if name != "archive.tgz"])
def test_open_info_check_and_the_catalogue_name_an_interrupted_conversion(
    name: str, sources: dict[str, Path], tmp_path: Path
) -> None:
    source, format, options = TARGETS[name]
    out = tmp_path / "all" / name.replace(" ", "-")
    interrupt(sources[source], out, format=format, options=options)
    with pytest.raises(FormatError, match=rf"stopped at [05] of {EPISODES} episodes.*run the same command again"):
        penstock.open(out)
    with pytest.raises(FormatError, match="allow_unfinished=True"):
        penstock.convert(out, tmp_path / "copy")
    report = penstock.check(out, progress=False)
    assert (report.sound, report.findings[0].name) == (False, "unfinished")
    for command in (["info", str(out)], ["check", str(out)], ["info", str(out.parent)]):
        answer = CliRunner().invoke(app, command, prog_name="penstock", env={"COLUMNS": "200"})
        assert "run the same command again" in " ".join(answer.output.replace("│", " ").split()), answer.output
        assert answer.exit_code == 1 or command[0] == "info"
    with penstock.open(out, allow_unfinished=True) as part:
        copy = penstock.convert(part, tmp_path / "copy", allow_empty=True)
        assert any(note.level == "left out" and "stopped at" in note.message for note in copy.notes)
    moved = shutil.move(out.parent, tmp_path / "moved")
    with pytest.raises(FormatError, match="stopped at"):
        penstock.open(Path(moved) / out.name)
    penstock.convert(sources[source], Path(moved) / out.name, format=format, options=options)
    assert len(penstock.open(Path(moved) / out.name)) == EPISODES


def test_a_merge_that_was_interrupted(sources: dict[str, Path], tmp_path: Path) -> None:
    def stop(done: int, steps: int, nbytes: int) -> None:
        if done == EPISODES + 1:
            raise Interrupted

    both = {"a": sources["general"], "b": sources["general"]}
    with pytest.raises(Interrupted):
        penstock.merge(both, tmp_path / "out", on_episode=stop)
    with pytest.raises(FormatError, match=rf"stopped at {EPISODES + 1} of {2 * EPISODES} episodes"):
        penstock.open(tmp_path / "out")
    penstock.merge(both, tmp_path / "out")
    assert len(penstock.open(tmp_path / "out")) == 2 * EPISODES


def test_a_target_that_is_copied_to_a_url_stays_unfinished(sources: dict[str, Path], tmp_path: Path) -> None:
    interrupt(sources["general"], tmp_path / "out")
    store = fsspec.filesystem("memory")
    store.put(str(tmp_path / "out"), "/half/out", recursive=True)
    try:
        with pytest.raises(FormatError, match="stopped at 5 of 12 episodes"):
            penstock.open("memory://half/out")
    finally:
        store.rm("/half", recursive=True)


def test_overwriting_and_finished_targets_have_no_mark(sources: dict[str, Path], tmp_path: Path) -> None:
    for name in ("out", "out.tar"):
        interrupt(sources["general"], tmp_path / name)
        penstock.convert(penstock.open(sources["general"])[[1, 2]], tmp_path / name, overwrite=True)
        assert len(penstock.open(tmp_path / name)) == 2


def test_a_target_without_the_mark_is_known_by_its_metadata(sources: dict[str, Path], tmp_path: Path) -> None:
    """As earlier versions left them, and copies without hidden files. A warning: somebody may have removed episodes."""
    interrupt(sources["general"], tmp_path / "out")
    (tmp_path / "out/.penstock-unfinished").unlink()
    with pytest.warns(DamageWarning, match="stopped at 5 of 12 episodes"):
        assert len(penstock.open(tmp_path / "out")) == 5
    assert penstock.check(tmp_path / "out", progress=False).findings[0].name == "unfinished"
    with penstock.open(tmp_path / "out", allow_unfinished=True) as data:
        assert len(data) == 5


def test_a_part_that_was_asked_for_is_not_unfinished(sources: dict[str, Path], tmp_path: Path) -> None:
    penstock.convert(sources["general"], tmp_path / "shards", format="webdataset", options={"shard_episodes": 5})
    assert len(penstock.open(tmp_path / "shards/shard-000001.tar")) == 5
    assert len(penstock.open(str(tmp_path / "shards/shard-{000000..000001}.tar"))) == 10
    assert len(penstock.open(sources["general"], episodes=3)) == 3
    shutil.copytree(sources["general"], tmp_path / "kept")
    with penstock.open(tmp_path / "kept") as data, recognise(tmp_path / "kept")[0].append(tmp_path / "kept") as writer:
        Retention.begin(tmp_path / "kept", 6)
        for episode in data:
            writer.write(episode)
    Retention(tmp_path / "kept", 1).trim()
    compact(sources["general"], tmp_path / "compact")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(penstock.open(tmp_path / "kept")) < EPISODES
        assert CONVERSION not in penstock.open(tmp_path / "compact").metadata


def test_a_mark_of_other_content_is_an_error(sources: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(sources["general"], tmp_path / "out")
    for content in ("", "[]", "{}", '{"work": "conversion", "episodes": null}'):
        (tmp_path / "out/.penstock-unfinished").write_text(content)
        with pytest.raises(FormatError, match="penstock-unfinished"):
            penstock.open(tmp_path / "out")
