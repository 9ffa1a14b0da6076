"""`penstock warmup`: the types of all kernels."""

from __future__ import annotations

import inspect
import json
from importlib import import_module

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.kernels import compiled, jit, warmup
from penstock.kernels.compiler import type_of

STATED = [name for name, _ in warmup.signatures() if name in jit.KERNELS]


def test_every_kernel_has_types() -> None:
    for file in compiled.FILES:
        module = import_module(f"penstock.kernels.{file}")
        kernels = {name for name, value in vars(module).items() if hasattr(value, "py_func")}
        own = {name for name in kernels if getattr(module, name).py_func.__module__.endswith((file, "_reference"))}
        missing = {f"{file}.{name}" for name in own} - set(warmup.SIGNATURES)
        assert not missing


def test_kernels_of_each_package_are_collected() -> None:
    assert "penstock.kernels.spans._paint" in STATED
    assert all(jit.KERNELS[name].signatures for name in STATED)


def test_types_have_as_many_arguments_as_their_kernel() -> None:
    for name, signatures in warmup.SIGNATURES.items():
        file, _, function = name.partition(".")
        kernel = getattr(import_module(f"penstock.kernels.{file}"), function)
        arguments = len(inspect.signature(kernel.py_func).parameters)
        assert {len(signature.split()) for signature in signatures} == {arguments}, name
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
