"""Options of every kind: those that it says, and an error that names the kind for any other."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.formats.demos import FORMAT
from penstock.formats.demos.source import Kind

KINDS = FORMAT.kinds


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_kind_says_what_its_reader_takes(kind: Kind) -> None:
    module = inspect.getmodule(type(kind))
    read = getattr(module, f"read_{kind.name}", kind.open)
    taken = [p.name for p in inspect.signature(read).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert sorted(kind.options) == sorted(taken)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_another_option_is_refused_by_name(kind: Kind, tmp_path: Path) -> None:
    message = rf"the kind '{kind.name}' has no option 'nothing'; .*'{kind.options[0]}'"
    for ask in (FORMAT.open, FORMAT.check):
        with pytest.raises(TypeError, match=message):
            ask(tmp_path, kind=kind.name, nothing=1)


def test_left_out_is_there_where_something_is(tmp_path: Path) -> None:
    columns: dict[str, Any] = {"observations": np.zeros((4, 2)), "actions": np.zeros(4), "dones": np.arange(4) == 3}
    np.savez(tmp_path / "a.npz", **columns)
    np.savez(tmp_path / "b.npz", **columns, name=np.array(["text"]))
    with FORMAT.open(tmp_path / "a.npz", kind="npz") as source:
        assert not source.account.left_out
    with FORMAT.open(tmp_path / "b.npz", kind="npz") as source:
        assert [(each.where, each.reason) for each in source.account.left_out] == [("name", "unsupported-dtype")]
