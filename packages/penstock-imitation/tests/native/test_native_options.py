"""Options of the kinds of native demonstrations: those that each says, and an error that names the kind for others."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from penstock.formats.demos.source import Kind
from penstock_imitation.formats.native import FORMAT
from penstock_imitation.formats.native.atari import AtariKind
from tests.cli.conftest import Call, call

__all__ = ["call"]

ATARI = Path(__file__).parents[4] / "tests" / "golden" / "ilr" / "native" / "atari" / "pong_synth.npz"


@pytest.mark.parametrize("kind", FORMAT.kinds, ids=lambda kind: kind.name)
def test_a_kind_says_what_its_reader_takes(kind: Kind, tmp_path: Path) -> None:
    read = getattr(inspect.getmodule(type(kind)), f"read_{kind.name}")
    taken = [p.name for p in inspect.signature(read).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert sorted(kind.options) == sorted(taken)
    for ask in (FORMAT.open, FORMAT.check):
        with pytest.raises(TypeError, match=rf"the kind '{kind.name}' has no option 'nothing'; .*'{kind.options[0]}'"):
            ask(tmp_path, kind=kind.name, nothing=1)


def test_a_check_takes_the_options_of_opening() -> None:
    assert list(FORMAT.check(ATARI, kind="atari", frames="stack")) == []
    with pytest.raises(Exception, match="frames"):
        list(FORMAT.check(ATARI, frames="nonsense"))


def test_demonstrations_are_opened_once_with_the_options(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    inner = AtariKind.open

    def counted(self: AtariKind, path: Path, **options: object) -> object:
        opened.append(options)
        return inner(self, path, **options)

    monkeypatch.setattr(AtariKind, "open", counted)
    assert call("check", ATARI, "--open", "frames=newest").code == 0
    assert opened == [{"frames": "newest"}]
    answer = call("check", ATARI, "--open", "frame=newest")
    assert answer.code == 2
    assert "'frames'" in answer.err
