"""What `check` finds: bad chunks by reason, games whose positions do not follow one another, odd values."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.containers.tar.writer import END, member
from penstock_chess.formats.lc0 import FORMAT, FRAME, RECORDS, open_chunks, packed_chunk
from penstock_chess.formats.lc0.check import broken_history, oddities, policy_faults


def frames(golden: Path) -> Any:
    file = open_chunks(golden / "gz" / "training.700001.gz")
    assert file is not None
    return file.load(0)


@pytest.mark.parametrize("folder", ["gz", "tar", "v7", "old", "formats"])
def test_sound_games_have_no_findings(golden: Path, folder: str) -> None:
    assert list(FORMAT.check(golden / folder)) == []
    for file in (golden / folder).iterdir():
        assert list(FORMAT.check(file)) == []


def test_bad_chunks_are_named_with_their_reason(golden: Path, tmp_path: Path) -> None:
    good = (golden / "gz" / "training.700001.gz").read_bytes()
    parts = {"a.gz": good, "b.gz": good[:-8] + bytes(8), "c.gz": good[:100], "d.gz": gzip.compress(b"1234567890")}
    whole = b"".join(member(name, data) for name, data in parts.items())
    (tmp_path / "games.tar").write_bytes(whole + member("e.gz", good)[:2000])
    (tmp_path / "empty.gz").write_bytes(b"")
    found = sorted(
        (f.message.split(":")[0], f.where.split(" in ")[0].rpartition("/")[2]) for f in FORMAT.check(tmp_path)
    )
    assert found == [
        ("crc", "b.gz"),
        ("empty", "empty.gz"),
        ("truncated", "c.gz"),
        ("truncated", "games.tar"),
        ("version", "d.gz"),
    ]
    assert {f.level for f in FORMAT.check(tmp_path)} == {"error"}


def test_nothing_to_check_is_said(tmp_path: Path) -> None:
    (finding,) = FORMAT.check(tmp_path)
    assert (finding.level, finding.message) == ("warning", "there are no chunks here")
    (tmp_path / "a.tar").write_bytes(END)
    assert len(list(FORMAT.check(tmp_path))) == 1


@pytest.mark.parametrize("t", [1, 5, 78])
def test_a_frame_that_is_missing_or_exchanged_is_found(golden: Path, tmp_path: Path, t: int) -> None:
    whole = frames(golden)
    assert not broken_history(whole).any()
    if t < 78:
        without = np.delete(whole, t, 0)
        assert np.flatnonzero(broken_history(without)).tolist() == [t - 1]
    changed = whole.copy()
    changed.view(FRAME)[t, 0]["planes"][13] ^= np.uint64(1)
    assert np.flatnonzero(broken_history(changed))[0] == t - 1
    (tmp_path / "a.gz").write_bytes(packed_chunk(changed))
    findings = list(FORMAT.check(tmp_path / "a.gz"))
    assert [f.level for f in findings] == ["warning"]
    assert f"first frame {t}" in findings[0].message


ODD: dict[str, tuple[str, Callable[[Any], None]]] = {
    "input_format": ("input_format", lambda r: r["input_format"].__setitem__(3, 6)),
    "policy above 1": ("probabilities", lambda r: r["probabilities"].__setitem__((3, 7), 1.5)),
    "policy below 0": ("probabilities", lambda r: r["probabilities"].__setitem__((3, 7), -0.5)),
    "castling": ("castling", lambda r: r["castling_us_oo"].__setitem__(3, 2)),
    "side": ("castling", lambda r: r["side_to_move_or_enpassant"].__setitem__(3, 2)),
    "plies": ("plies_left", lambda r: r["plies_left"].__setitem__(3, -1)),
    "q": ("best_q, best_d", lambda r: r["best_q"].__setitem__(3, 1.01)),
    "d": ("root_q, root_d", lambda r: r["root_d"].__setitem__(3, -0.01)),
    "sum": ("result_q, result_d", lambda r: r["result_d"].__setitem__(3, 0.5)),
    "index": ("played_idx", lambda r: r["played_idx"].__setitem__(3, 1858)),
}


@pytest.mark.parametrize("kind", ODD)
def test_values_outside_their_ranges_are_found(golden: Path, kind: str) -> None:
    name, change = ODD[kind]
    changed = frames(golden)
    change(changed.view(FRAME)[:, 0])
    assert list(oddities(changed)) == [f"{name} is outside its range in 1 frames, first frame 3"]


POLICIES: dict[str, tuple[str, float, str]] = {
    "NaN": ("nan", np.nan, "are NaN and name no move"),
    "zero": ("invalid-value", 0.0, "name no move"),
    "illegal": ("invalid-value", -1.0, "name no move"),
    "double": ("invalid-value", 2.0, "do not add up to 1"),
}


@pytest.mark.parametrize("kind", POLICIES)
def test_policies_that_cannot_be_learned_are_found(golden: Path, tmp_path: Path, kind: str) -> None:
    """glinscott/leela-chess#471: clients wrote NaN where they divided by no visits."""
    name, value, message = POLICIES[kind]
    changed = frames(golden)
    policy = changed.view(FRAME)[:, 0]["probabilities"]
    for t in (3, 40):
        policy[t, policy[t] >= 0] = value if kind != "double" else value * policy[t, policy[t] >= 0]
    (tmp_path / "a.gz").write_bytes(packed_chunk(changed))
    report = penstock.check(tmp_path / "a.gz", deep=True, progress=False)
    assert f"probabilities {message} in 2 frames, first frame 3" in {
        f.message for f in report.findings if f.name == name
    }
    assert report.sound == (name != "nan")
    changed.view(FRAME)[:, 0]["planes"] = 0  # frames without pieces have no moves
    assert not [fault for fault in policy_faults(changed) if "name no move" in fault[1]]


def test_values_that_are_missing_are_no_findings(golden: Path) -> None:
    changed = frames(golden)
    rows = changed.view(FRAME)[:, 0]
    for name in ("orig_q", "orig_d", "q_st", "d_st"):
        rows[name] = np.nan
    rows["probabilities"][0, :5] = np.nan
    rows["best_idx"] = 65535
    assert list(oddities(changed)) == []
    assert list(policy_faults(changed)) == []
    assert RECORDS[7] is FRAME
