"""Arguments that mean the same everywhere: equal names have equal annotations and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import penstock

MEANINGS = {
    "progress": {"bool | None = None"},
    "rank": {"int | None = None"},
    "world": {"int | None = None"},
    "index": {"int"},
    "count": {"int"},
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
