"""The stages by their names, from one place, and nothing loaded before it is used."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import penstock_live
from tests.test_architecture import HEAVY, exported, loaded_by

NAMES = penstock_live.__all__


def test_names_agree() -> None:
    assert sorted(NAMES) == NAMES == exported(Path(penstock_live.__file__).with_suffix(".pyi"))
    assert set(NAMES) <= set(dir(penstock_live))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_and_says_what_it_is_by_example(name: str) -> None:
    value = getattr(penstock_live, name)
    assert value.__name__ == name
    document = inspect.getdoc(value)
    assert document
    plain = {"ChunkFunctions", "Rejected", "QueueClosed", "Inlet", "Stream", "LiveOptions"}
    assert ">>> " in document or name in plain


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="attribute nothing"):
        _ = penstock_live.nothing


def test_the_package_loads_nothing_by_itself() -> None:
    loaded = loaded_by("import penstock_live")
    assert {name for name in loaded if name.startswith("penstock")} == {"penstock_live"}
    assert loaded & (HEAVY | {"numpy"}) == set()
