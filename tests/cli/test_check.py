"""`penstock check` on sound and damaged data."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.formats.base.format import Finding, named
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
        yield Finding("warning", "spec.json", "expected nothing, got something")

    monkeypatch.setattr(type(named("columns")), "check", warned)
    answer = call("check", recording)
    assert answer.code == 0
    assert "spec.json" in answer.out
    assert call("check", recording, "--json").json["sound"]
