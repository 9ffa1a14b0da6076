"""`penstock formats`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.cli.formats import describe
from penstock.formats.base.format import Format, available
from penstock.formats.base.source import Source
from tests.cli.conftest import Call


class ReadOnly(Format):
    name, description = "read-only", "nothing but reading"

    def recognises(self, path: Path) -> bool:
        return False

    def open(self, path: Path, **options: Any) -> Source:
        raise FileNotFoundError(path)


def test_every_format_is_listed(call: Call) -> None:
    told = call("formats", "--json").json
    assert [entry["name"] for entry in told] == list(available())
    shown = call("formats").out
    assert all(name in shown for name in available())


def test_abilities_are_those_that_were_written() -> None:
    assert describe(ReadOnly()) == {
        "name": "read-only",
        "description": "nothing but reading",
        "writes": False,
        "appends": False,
        "checks": False,
    }
    assert describe(available()["columns"])["writes"]
