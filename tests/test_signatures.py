"""Arguments that mean the same everywhere: equal names have equal annotations and defaults."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import penstock
import penstock_mirrors
from penstock.plan.schedule import StopWord

MEANINGS = {
    "progress": {"bool | None = None"},
    "rank": {"int | None = None"},
    "world": {"int | None = None"},
    "index": {"int", "int = 0"},
    "count": {"int", "int = 1"},
    "threads": {"int | None = None"},
    "memory": {"int | None = None"},
    "drop_last": {"bool = False"},
}


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public functions, constructors and methods of the names that `penstock` exports."""
    for name in penstock.__all__:
        value = getattr(penstock, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for method, function in inspect.getmembers(value, inspect.isfunction):
                if not method.startswith("_") or method == "__init__":
                    yield f"{name}.{method}", function


@pytest.mark.parametrize("argument", MEANINGS)
def test_arguments_of_one_name_have_one_meaning(argument: str) -> None:
    found: dict[str, str] = {}
    for name, function in functions():
        parameter = inspect.signature(function).parameters.get(argument)
        if parameter is not None:
            default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
            found[name] = f"{parameter.annotation}{default}"
    assert found
    assert set(found.values()) <= MEANINGS[argument], found


OF_TRAINERS = ("penstock.loading.grain", "penstock_mirrors.torchrl")  # whose libraries only `make trainers` installs


def literals(hint: Any) -> Iterator[Any]:
    """The values of all `Literal` in a type hint."""
    for inner in get_args(hint):
        yield from literals(inner) if get_origin(hint) is not Literal else [inner]


def everything() -> Iterator[tuple[str, Any]]:
    """All functions and classes that have an argument or a field `stop`, in all modules of penstock and its mirrors."""
    roots = (penstock, penstock_mirrors)
    for module in (each for root in roots for each in pkgutil.walk_packages(root.__path__, f"{root.__name__}.")):
        if module.name.rpartition(".")[2] == "__main__" or module.name in OF_TRAINERS:
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if getattr(value, "__module__", None) != module.name:
                continue
            if inspect.isfunction(value):
                yield f"{module.name}.{name}", value
            elif inspect.isclass(value):
                yield from ((f"{module.name}.{name}", part) for part in (value, *vars(value).values()))


def test_stop_has_one_set_of_words() -> None:
    words: dict[str, set[Any]] = {}
    for name, value in everything():
        is_field = inspect.isclass(value) and dataclasses.is_dataclass(value)
        if "stop" in getattr(value, "__annotations__", {}) and (is_field or inspect.isfunction(value)):
            words[name] = set(literals(get_type_hints(value)["stop"]))
    used = {name: given for name, given in words.items() if given}
    assert len(used) >= 5
    assert set().union(*used.values()) == set(get_args(StopWord))
