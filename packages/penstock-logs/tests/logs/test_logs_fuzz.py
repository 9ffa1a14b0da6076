"""Some hundred edited logs: values, or an error of penstock. `make fuzz FORMAT=logs` goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from logs.fuzz_targets import targets
from tests.fuzz.cases import check_edited, quick
from tests.fuzz.targets import Target


@pytest.mark.parametrize("target", quick(targets()), ids=lambda target: target.key)
def test_edited_files_give_values_or_errors_of_ours(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    check_edited(target, tmp_path)
