"""`penstock warmup`: the types of all kernels."""

from __future__ import annotations

import inspect
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.errors import MissingExtraError
from penstock.kernels import jit, warmup
from penstock.kernels.compiler import type_of

STATED = [name for name, _ in warmup.signatures()]


def test_kernels_of_each_package_are_collected() -> None:
    for package in warmup.packages():
        assert any(name.startswith(f"{package}.") for name in STATED)
    assert "penstock.kernels.spans._paint" in STATED
    assert all(jit.KERNELS[name].signatures for name in STATED)


def test_every_folder_of_kernels_is_collected() -> None:
    roots = [Path(penstock.__file__).parents[1], *Path(penstock.__file__).parents[2].glob("packages/*/src")]
    folders = {".".join(each.relative_to(root).parts) for root in roots for each in root.rglob("kernels")}
    assert {each for each in folders if find_spec(each.partition(".")[0]) is not None} == set(warmup.packages())


def test_types_have_as_many_arguments_as_their_kernel() -> None:
    for name in STATED:
        arguments = len(inspect.signature(jit.KERNELS[name].function).parameters)
        assert {len(signature.split()) for signature in jit.KERNELS[name].signatures} == {arguments}, name


def test_kernels_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [(name, text) for name, text in warmup.signatures() if name.endswith(("._lookup3", ".permute_in"))]
    assert len(few) == 2
    monkeypatch.setattr(warmup, "signatures", lambda: few)
    CliRunner().invoke(app, ["warmup"])
    again = CliRunner().invoke(app, ["warmup", "--json"])
    assert json.loads(again.stdout) == {"kernels": len(few), "compiled": 0}


def test_another_word_for_a_type_is_an_error() -> None:
    with pytest.raises(ValueError, match="a type such as"):
        type_of("i8[C2]")


def test_without_numba_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup.library, "is_compiled", lambda *_: False)
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'penstock\[jit\]'"):
        warmup.compile_all(1)
