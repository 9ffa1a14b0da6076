"""Where episodes of flat files end: the table of names, for HDF5 and `.npz`, and what may be an end and is not used."""

# pyright: basic

from __future__ import annotations

import json
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.core.damage import collected_damage
from penstock.errors import ArgumentError, DamageWarning, FormatError
from penstock.formats.base.ends import END_NAMES, MEANINGS, MarkArray, find_ends, may_mark
from penstock.formats.demos import FORMAT

PAGE = Path(__file__).parents[2] / "docs/formats/demos.md"
LENGTHS = (5, 4, 6)
ENDS = np.cumsum(LENGTHS)
N = int(ENDS[-1])
LAST = np.isin(np.arange(N), ENDS - 1)
TERMINALS = np.arange(N) == ENDS[1] - 1  # the others ran out of time
WITHIN = np.concatenate([np.arange(length) for length in LENGTHS])
MARKS = {
    "truncation": (LAST & ~TERMINALS, LAST.astype("f4")),
    "done": (LAST, LAST.astype("f4")[:, None]),
    "not done": (~LAST,),
    "end": (LAST, LAST.astype("i8"), ENDS, ENDS - 1),
    "start": (np.roll(LAST, 1), np.array([0, *ENDS[:-1]])),
    "id": (np.repeat([0, 1, 2], LENGTHS), np.repeat([7.0, 3.0, 9.0], LENGTHS)),
    "step": (WITHIN, WITHIN + 1),
    "lengths": (np.array(LENGTHS),),
    "offsets": (np.array([0, *ENDS]),),
    "cuts": (ENDS[:-1],),
}


def steps(**arrays: Any) -> dict[str, Any]:
    rows = np.arange(N, dtype="f4")
    return {"observations": rows[:, None], "actions": rows[:, None], "rewards": rows, **arrays}


def write(path: Path, arrays: dict[str, Any]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
        return path
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


def joined(data: Any, column: str) -> Any:
    return np.concatenate([episode.columns[column] for episode in data])


@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
@pytest.mark.parametrize("name", [name for name, meaning in END_NAMES.items() if meaning in MARKS])
def test_a_name_of_the_table_ends_episodes(tmp_path: Path, name: str, suffix: str) -> None:
    for i, marks in enumerate(MARKS[END_NAMES[name]]):
        path = write(tmp_path / f"{i}{suffix}", steps(terminals=TERMINALS, **{name: marks}))
        with penstock.open(path) as data:
            assert [len(episode) for episode in data] == list(LENGTHS)
            np.testing.assert_array_equal(joined(data, "terminations"), TERMINALS)
            assert (joined(data, "truncations") | TERMINALS).tolist() == LAST.tolist()
            assert f"`{name}`" in data.source.account.ends
            assert data.source.account.left_out == ()
            assert (name in data.spec) == (END_NAMES[name] in ("id", "step") or name == "truncations")
        assert pickle.loads(pickle.dumps(data.source)).account == data.source.account


@pytest.mark.parametrize("name", [name for name, meaning in END_NAMES.items() if meaning == "termination"])
def test_terminations_alone_end_episodes_and_say_so(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "a.npz", steps(**{name: TERMINALS}))
    with penstock.open(path) as data:
        assert [len(episode) for episode in data] == [9, 6]
        assert data.source.account.ends == f"episodes end where `{name}` is true"
    shown = CliRunner().invoke(app, ["info", str(path)], env={"COLUMNS": "200"})
    assert f"episodes end where `{name}` is true" in shown.output


ALL, NONE = LAST, np.zeros(N, bool)
MEANT = {  # what is in the file, and the terminations
    "dones of either kind": ({"dones": LAST, "truncateds": LAST & ~TERMINALS}, TERMINALS),
    "dones that are terminations": ({"dones": TERMINALS, "timeouts": LAST}, TERMINALS),
    "dones alone": ({"dones": LAST}, LAST),
    "masks as in RLPD": ({"dones": LAST, "masks": 1.0 - TERMINALS}, TERMINALS),
    "masks as in IQL": ({"dones_float": LAST.astype("f4"), "masks": 1.0 - TERMINALS}, TERMINALS),
    "a mask of padding": ({"dones": LAST, "masks": np.arange(N) != 2}, LAST),
    "only truncations": ({"truncateds": LAST}, NONE),
    "ends of either kind": ({"is_last": LAST}, NONE),
    "terminal of Gymnasium": ({"terminated": TERMINALS, "truncated": LAST & ~TERMINALS}, TERMINALS),
    "flags of episodes": ({"terminal": np.array([0, 1, 0]), "episode_ends": ENDS}, TERMINALS),
}


@pytest.mark.parametrize("case", MEANT)
def test_terminations_do_not_cut_bootstrapping_at_time_limits(tmp_path: Path, case: str) -> None:
    marks, terminations = MEANT[case]
    with penstock.open(write(tmp_path / "a.npz", steps(**marks))) as data:
        assert [len(episode) for episode in data] == list(LENGTHS)
        np.testing.assert_array_equal(joined(data, "terminations"), terminations)
        assert ((joined(data, "truncations") | terminations) == LAST).all()


def test_text_tells_episodes_apart(tmp_path: Path) -> None:
    """It is no column, which is another entry of the account."""
    path = write(tmp_path / "a.npz", steps(terminals=TERMINALS, episode_id=np.repeat(["b", "a", "c"], LENGTHS)))
    with pytest.warns(DamageWarning, match="left out 1 array: episode_id .expected numbers"):
        data = penstock.open(path)
    assert [len(episode) for episode in data] == list(LENGTHS)


def test_terminals_without_rewards_are_ends_as_in_ogbench(tmp_path: Path) -> None:
    arrays = steps(terminals=LAST, qpos=np.zeros((N, 2)))
    del arrays["rewards"]
    with penstock.open(write(tmp_path / "a.npz", arrays)) as data:
        assert not joined(data, "terminations").any()
        assert [len(episode) for episode in data] == list(LENGTHS)
    with penstock.open(tmp_path / "a.npz", ends={"terminals": "termination"}) as data:
        np.testing.assert_array_equal(joined(data, "terminations"), LAST)


@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
def test_next_observations_that_do_not_follow_end_episodes_if_nothing_else_does(tmp_path: Path, suffix: str) -> None:
    after = np.arange(1, N + 1, dtype="f4")[:, None]
    after[ENDS - 1] += 100
    arrays = steps(terminals=TERMINALS, next_observations=after)
    with penstock.open(write(tmp_path / f"a{suffix}", arrays)) as data:
        assert [len(episode) for episode in data] == list(LENGTHS)
        assert data.spec["observations"].align == "boundary"
        assert [int(episode.columns["observations"][-1, 0]) for episode in data] == (ENDS + 100).tolist()
        assert "next observation" in data.source.account.ends
    arrays["next_observations"] = after.astype("f8")  # of another dtype, which is not compared
    with penstock.open(write(tmp_path / f"b{suffix}", arrays)) as data:
        assert [len(episode) for episode in data] == [9, 6]


UNUSED = {
    "flag": (LAST, "last steps"),
    "flag8": (LAST.astype("u1"), "last steps"),
    "first": (np.roll(LAST, 1), "first steps"),
    "trajectory_boundary": (LAST & (np.arange(N) < N - 1), "name of a flag"),
    "run": (np.repeat([3, 4, 8], LENGTHS), "id of an episode"),
    "infos/timeouts": (LAST & ~TERMINALS, "last steps"),
}
HARMLESS = {
    "success": np.arange(N) >= N - 4,
    "gripper": (np.arange(N) // 3) % 2,
    "constant": np.ones(N),
    "at_known_ends": TERMINALS,
    "clock": np.arange(N) * 2,
    "score": np.array([0, 1, 1, 2, 2, 0, 1, 1, 1, 0, 0, 0, 1, 2, 3]),
    "float": np.arange(N) / 3,
    "pair": np.zeros((N, 2), bool),
}


@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
@pytest.mark.parametrize("name", UNUSED)
def test_what_may_be_an_end_and_is_not_used_is_a_warning(tmp_path: Path, name: str, suffix: str) -> None:
    flag, reason = UNUSED[name]
    path = write(tmp_path / f"a{suffix}", steps(terminals=TERMINALS, **{name: flag}))
    with pytest.warns(DamageWarning, match=f"{name} .*{reason}.*'unused'"), penstock.open(path) as data:
        assert data.source.account.ends == f"episodes end where `terminals` is true; `{name}` is not used"
    assert [f.name for f in penstock.check(path, progress=False).findings] == ["unused-end"]
    meaning = {"first": "start", "run": "id"}.get(name, "end")
    with penstock.open(path, ends={name: meaning}) as data:
        assert [len(episode) for episode in data] == list(LENGTHS)
    with penstock.open(path, ends={name: "unused"}) as data:
        assert [len(episode) for episode in data] == [9, 6]
        assert name in data.spec


@pytest.mark.parametrize("suffix", [".npz", ".hdf5"])
def test_other_columns_are_no_ends(tmp_path: Path, suffix: str) -> None:
    with penstock.open(write(tmp_path / f"a{suffix}", steps(terminals=TERMINALS, **HARMLESS))) as data:
        assert [len(episode) for episode in data] == [9, 6]


def test_stated_rows_decide_alone_and_flags_within_are_named(tmp_path: Path) -> None:
    lost = LAST | (np.arange(N) == 2)  # a life, for example
    path = write(tmp_path / "a.npz", steps(dones=lost, episode_ends=ENDS))
    with pytest.warns(DamageWarning, match="dones .marks further ends"), penstock.open(path) as data:
        assert [len(episode) for episode in data] == list(LENGTHS)


def test_a_second_id_is_named_and_a_damaged_array_is_not_read(tmp_path: Path) -> None:
    ids = {"episode_id": np.repeat([0, 1], [9, 6]), "traj_ids": np.repeat([1, 0, 2], LENGTHS)}
    with pytest.warns(DamageWarning, match="traj_ids .changes within episodes"):
        assert len(penstock.open(write(tmp_path / "a.npz", steps(**ids)))) == 2
    with pytest.warns(DamageWarning, match="traj_ids .changes within episodes"):
        assert len(penstock.open(write(tmp_path / "b.npz", steps(lengths=[9, 6], traj_ids=ids["traj_ids"])))) == 2

    def damaged(start: int, stop: int) -> Any:
        raise FormatError("expected deflated bytes")

    marks = {"x": MarkArray((N,), np.dtype("i8"), damaged), "terminals": MarkArray.of(TERMINALS)}
    assert find_ends(marks, N, path="a").left_out == ()


def test_ids_and_step_numbers_tell_recordings_apart(tmp_path: Path) -> None:
    twice = {"traj_ids": np.repeat([0, 1, 0], LENGTHS), "timesteps": WITHIN}
    with penstock.open(write(tmp_path / "a.npz", steps(**twice))) as data:
        assert [len(episode) for episode in data] == list(LENGTHS)
        assert data.source.account.ends == "episodes end where `traj_ids` changes or where `timesteps` starts again"
    del twice["timesteps"]
    with pytest.raises(FormatError, match="traj_ids 0 at row 0 and again at row 9"):
        penstock.open(write(tmp_path / "b.npz", steps(**twice)))
    falls = WITHIN.copy()
    falls[3] = 1
    with pytest.warns(DamageWarning, match="timesteps .falls at row 3 within an episode; sort"):
        penstock.open(write(tmp_path / "c.npz", steps(timesteps=falls))).close()


@pytest.mark.parametrize("name", ["ends", "last", "index", "step", "episode_id", "masks", "episode_lengths"])
def test_names_that_other_arrays_have_too_refuse_nothing(tmp_path: Path, name: str) -> None:
    flag = END_NAMES[name] in ("end", "start")
    for i, array in enumerate((np.arange(N), np.full(N, 2.5), np.full((N, 3), 1))):
        path = write(tmp_path / f"{i}.npz", steps(terminals=TERMINALS, **{name: array}))
        with collected_damage() as messages:
            opened = penstock.open(path)
        assert ["has the name of a flag, and (3,) values" in message for message in messages] == [True] * (
            flag and i == 2
        )
        with opened as data:
            assert data.source.steps == N
            assert (len(data) == 2) == (name != "episode_id" or i > 0)


def test_options_are_checked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npz", steps(terminals=TERMINALS))
    for suffix in (".npz", ".hdf5"):
        path = write(tmp_path / f"a{suffix}", steps(terminals=TERMINALS))
        with pytest.raises(ArgumentError, match=r"among .*'truncation'.*, got 'stop'"):
            penstock.open(path, ends={"terminals": "stop"})
        with pytest.raises(ArgumentError, match=r"arrays among \['terminals'|'actions'.*, got 'gone'"):
            penstock.open(path, ends={"gone": "end"})


def test_large_arrays_of_other_values_are_not_read() -> None:
    read: list[tuple[int, int]] = []

    def rows(start: int, stop: int) -> Any:
        read.append((start, stop))
        return np.arange(start, stop) % 7

    ends = find_ends({"x": MarkArray((1 << 20,), np.dtype("i8"), rows)}, 1 << 20, path="a", lengths=None)
    assert (ends.sentence, read) == ("", [(0, 4096)])
    assert may_mark("x", MarkArray.of(np.zeros(1)), np.array([0, 1])) == ""


def test_the_page_has_each_name_with_its_meaning_and_a_source() -> None:
    section = PAGE.read_text("utf-8").split("## Where episodes end")[1].split("| meaning | an array")[0]
    listed: dict[str, str] = {}
    for row in re.findall(r"^\| (`.*)$", section, re.MULTILINE):
        names, meaning, source = (cell.strip() for cell in row.strip("|").split("|")[:3])
        assert source
        listed |= {name: meaning.strip('"`') for name in re.findall(r"`([^`]+)`", names)}
    assert listed == dict(END_NAMES)
    assert {*END_NAMES.values(), "unused"} == {*MEANINGS}


def test_the_account_is_json(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        path = write(tmp_path / "a.npz", steps(terminals=TERMINALS, flag=LAST))
        shown = CliRunner().invoke(app, ["info", str(path), "--json"])
    (entry,) = json.loads(shown.output)["account"]["left_out"]
    assert (entry["where"], entry["reason"]) == ("flag", "unused-end")
    assert FORMAT.open(path).account.to_json() == json.loads(shown.output)["account"]
