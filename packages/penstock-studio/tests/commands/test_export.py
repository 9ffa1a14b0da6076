"""`penstock export`: files, refusals, columns. Recordings are read back in `tests/browser`."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Call, without_rerun


def test_the_extra_is_named(call: Call, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rerun", None)
    answer = call("export", recording, "-o", tmp_path / "a.rrd")
    assert answer.code == 2
    assert "penstock-studio[rerun]" in answer.err.replace("\n", "")
    assert list(tmp_path.glob("*.rrd")) == []


def test_columns_are_sent_whole(call: Call, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rerun = without_rerun()
    monkeypatch.setitem(sys.modules, "rerun", rerun)
    out = tmp_path / "a.rrd"
    answer = call("export", recording, "--episode", -1, "-o", out, "--json")
    assert (answer.code, answer.json["episode"]) == (0, 3)
    assert answer.json["left_out"] == {}
    assert out.read_bytes() == b"recording"
    sent = {each.args[0] for each in rerun.RecordingStream.return_value.send_columns.call_args_list}
    assert {"actions", "rewards"} <= sent
    for each in rerun.Scalars.columns.call_args_list:
        assert np.isfinite(each.kwargs["scalars"]).all()
    assert call("export", recording, "-o", out).code == 2  # it exists
    assert call("export", recording, "-o", tmp_path / "a.png").code == 2
    assert call("export", recording, "--episode", 4, "-o", tmp_path / "b.rrd").code == 2


def test_pages_of_one_file(call: Call, recording: Path, tmp_path: Path) -> None:
    """They load nothing, also from the folder beside them, and run nothing."""
    out = tmp_path / "a.html"
    answer = call("export", recording, "-o", out)
    assert (answer.code, answer.out.split(": ")[1]) == (0, f"dataset of {recording}\n")
    assert "steps of an episode" in out.read_text()
    assert "the first" not in out.read_text()
    assert call("export", recording, "-o", out).code == 2  # it exists
    assert call("export", recording, "--episode", 2, "-o", tmp_path / "b.html", "--json").json["episode"] == 2
    for page in tmp_path.glob("*.html"):
        text = page.read_text()
        assert "default-src 'none'" in text
        assert "<script" not in text
        assert all(f'{name}="data:' in text or f"{name}=" not in text for name in ("src", "href"))
    assert call("export", recording, "--episode", 4, "-o", tmp_path / "c.html").code == 2
    assert not (tmp_path / "c.html").exists()
