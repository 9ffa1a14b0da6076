"""`penstock check` on sound and damaged data."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.core.spaces import Box
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format, named
from penstock.replay.journal import JournalEntry, ReplayJournal
from tests.cli.conftest import Call


def test_sound_data(call: Call, recording: Path) -> None:
    answer = call("check", recording)
    assert answer.code == 0
    assert answer.out.strip() == f"{recording} is sound (columns)"
    assert call("check", recording, "--json").json == {
        "path": str(recording),
        "format": "columns",
        "sound": True,
        "findings": [],
    }


def test_a_flipped_byte_is_found(call: Call, recording: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(recording, tmp_path / "damaged"))
    largest = max((p for p in damaged.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    values = bytearray(largest.read_bytes())
    values[len(values) // 2] ^= 1
    largest.write_bytes(values)
    answer = call("check", damaged, "--json")
    assert answer.code == 1
    assert not answer.json["sound"]
    assert {finding["level"] for finding in answer.json["findings"]} == {"error"}
    shown = call("check", damaged)
    assert shown.code == 1
    assert "error" in shown.out


def test_warnings_alone_are_no_failure(call: Call, recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warned(self: object, path: Path) -> Iterator[Finding]:
        yield Finding("unknown-layout", "spec.json", "expected nothing, got something")

    monkeypatch.setattr(type(named("columns")), "check", warned)
    answer = call("check", recording)
    assert answer.code == 0
    assert "spec.json" in answer.out
    assert call("check", recording, "--json").json["sound"]


def test_no_episodes_are_told(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "nothing"
    with named("columns").create(path, penstock.Spec({"rewards": penstock.Field(np.dtype("f4"))}), {}):
        pass
    answer = call("check", path, "--json")
    assert answer.code == 0
    assert [(f["name"], f["message"][:11]) for f in answer.json["findings"]] == [("no-episodes", "no episodes")]
    assert call("check", path, "--fail-on", "warning").code == 1


def test_values_of_any_format(call: Call, tmp_path: Path) -> None:
    spec = penstock.Spec(
        {
            "observations": penstock.Field(np.dtype("f4"), (1,), "boundary"),
            "next_observations": penstock.Field(np.dtype("f4"), (1,)),
            "rewards": penstock.Field(np.dtype("f8")),
            "terminations": penstock.Field(np.dtype("?")),
            "truncations": penstock.Field(np.dtype("?")),
        },
        Box(np.zeros(1), np.full(1, 2.0), np.dtype("f4")),
    )
    columns = {
        "observations": np.array([[0], [1], [5]], "f4"),
        "next_observations": np.array([[2], [5]], "f4"),
        "rewards": np.array([np.inf, 0]),
        "terminations": np.array([True, False]),
        "truncations": np.zeros(2, "?"),
    }
    with named("columns").create(tmp_path / "data", spec) as writer:
        for _ in range(3):
            writer.write(penstock.Episode(spec, columns))
    answer = call("check", tmp_path / "data", "--json")
    assert answer.code == 0
    messages = sorted(finding["message"] for finding in answer.json["findings"] if finding["level"] != "note")
    assert messages == [
        "infinite values in 3 rows of rewards, 3 episodes",
        "next_observations is not the observation of the next step, in 3 steps of 3 episodes",
        "terminations set before the last step, 3 times in 3 episodes",
        "the last step is neither terminated nor truncated, in 3 episodes",
        "the same values as an earlier episode, in 2 episodes",
        "values outside their space in 3 rows of observations, 3 episodes",
    ]
    columns["rewards"] = np.array([np.nan, 0])
    with named("columns").append(tmp_path / "data") as writer:
        writer.write(penstock.Episode(spec, columns))
    answer = call("check", tmp_path / "data", "--deep")
    assert answer.code == 1
    command = f"penstock convert {tmp_path / 'data'} OUT --format columns --where 'id != 3'"
    assert answer.out.splitlines()[-1] == f"without 1 episode that has errors: {command}"
    assert call(*shlex.split(command.replace("OUT", str(tmp_path / "out")))[1:]).code == 0
    assert len(penstock.open(tmp_path / "out")) == 3


def test_numbers_that_are_none_are_the_next_observation_where_both_are(call: Call, tmp_path: Path) -> None:
    spec = penstock.Spec(
        {
            "observations": penstock.Field(np.dtype("f4"), (2,), "boundary"),
            "next_observations": penstock.Field(np.dtype("f4"), (2,)),
        }
    )
    now = np.array([[0, 0], [np.nan, 1], [np.nan, 2]], "f4")
    with named("columns").create(tmp_path / "data", spec) as writer:
        for after in ([[np.nan, 1], [np.nan, 2]], [[np.nan, 1], [2, 2]]):
            columns = {"observations": now, "next_observations": np.array(after, "f4")}
            writer.write(penstock.Episode(spec, columns))
    found = [finding["message"] for finding in call("check", tmp_path / "data", "--json").json["findings"]]
    assert "next_observations is not the observation of the next step, in 1 step of 1 episode" in found


def test_a_format_without_a_check_of_its_own(call: Call, recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(named("columns")), "check", Format.check)
    assert "is sound" in call("check", recording).out


def test_the_format_can_be_named(call: Call, recording: Path) -> None:
    assert "is sound (columns)" in call("check", recording, "--from", "columns").out
    answer = call("check", recording, "--from", "minari")
    assert answer.code in (1, 2)
    assert "is sound" not in answer.out


def test_a_check_of_a_kinds_own_takes_the_options(call: Call, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), actions=np.zeros(4), dones=np.arange(4) == 3)
    names = 'names={"observations": "x"}'
    named_so = ("check", tmp_path / "a.npz", "--from", "demos", "--open", "kind=npz")
    assert call(*named_so, "--open", names).code == 0
    assert call(*named_so).code != 0


def test_repair_lists_mends_and_takes_back(call: Call, recording: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(recording, tmp_path / "damaged"))
    with (damaged / "episodes").open("ab") as file:
        file.write(bytes(20))
    assert "penstock repair: cut 20 bytes off the end" in call("check", damaged).out
    listed = call("repair", damaged, "--plan", "--json")
    assert (listed.code, [each["finding"] for each in listed.json["repairs"]]) == (0, ["torn-tail"])
    assert "mended" in call("repair", damaged, "--out", tmp_path / "copy").out
    assert call("check", tmp_path / "copy", "--json").json["findings"] == []
    answer = call("repair", damaged, "--in-place", "--json")
    assert answer.code == 0
    assert call("check", damaged, "--json").json["findings"] == []
    assert call("repair", damaged, "--undo", answer.json["backups"][0]).code == 0
    assert call("check", damaged, "--json").json["findings"] != []
    assert call("repair", damaged).code == 2


def test_what_repair_cannot_mend_is_an_exit_code(call: Call, recording: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(recording, tmp_path / "damaged"))
    (damaged / "spec.json").with_name("episodes").write_bytes(bytes(48) + (damaged / "episodes").read_bytes()[48:])
    answer = call("repair", damaged, "--plan")
    assert answer.code == 1
    assert "nothing to mend" in answer.out
    assert "unreadable" in answer.out


def test_a_journal_of_a_replay_is_repaired(call: Call, tmp_path: Path) -> None:
    replay = ReplayJournal(tmp_path / "journal")
    replay.write(JournalEntry.arrival(0, 3))
    replay.close()
    check_repair(call, tmp_path / "journal")


def check_repair(call: Call, path: Path) -> None:
    """Half an entry behind those of a journal is cut off, and taken back."""
    whole = path.read_bytes()
    assert call("repair", path, "--in-place", "--json").json["repairs"] == []
    path.write_bytes(whole + b'{"at": 5')
    answer = call("repair", path, "--in-place", "--json").json
    assert [each["change"] for each in answer["repairs"]] == ["cut 8 bytes off the end"]
    assert path.read_bytes() == whole
    call("repair", path, "--undo", answer["backups"][0])
    assert path.read_bytes() == whole + b'{"at": 5'
