"""Tests of the account of every format, to subclass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import pytest

from penstock.core.damage import collected_damage
from penstock.errors import FormatError
from penstock.formats.base.account import Account, LeftOut
from penstock.formats.base.source import Source

Leftover = Literal["file", "array", "member", "column", "tail", "bad first file", "unfinished"]
LEFTOVERS: tuple[Leftover, ...] = get_args(Leftover)


@dataclass(frozen=True)
class Planted:
    """A leftover that a test adds to a dataset."""

    plant: Callable[[Path], object]
    reason: str
    where: str
    refused: bool = False


class AccountContract(ABC):
    """The tests that the account of every format must pass, for pytest.

    Derive a class whose name starts with `Test`. Define `write`, `open`, and `planted`: a leftover of each kind. Kinds
    that the format cannot have are in `absent`, each with the reason.
    """

    planted: ClassVar[Mapping[Leftover, Planted]] = {}
    absent: ClassVar[Mapping[Leftover, str]] = {}

    @abstractmethod
    def write(self, path: Path) -> Path:
        """Write a small sound dataset below an empty folder."""

    @abstractmethod
    def open(self, path: Path, **options: Any) -> Source:
        """Open a dataset as `penstock.open` does, with its warning about what was left out."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run the test of a leftover for every kind."""
        if "kind" in metafunc.fixturenames:
            metafunc.parametrize("kind", self.planted)

    def test_every_kind_of_leftover_has_a_test_or_a_reason(self) -> None:
        """Either the test plants it, or a sentence says why the format cannot have it."""
        missing = [kind for kind in LEFTOVERS if kind not in self.planted and not self.absent.get(kind)]
        if missing or self.planted.keys() & self.absent.keys():
            raise AssertionError(f"expected each of {LEFTOVERS} in one of `planted` and `absent`; missing: {missing}")

    def test_nothing_is_left_out_of_a_sound_dataset(self, tmp_path: Path) -> None:
        """No entry that may hold data, and no warning."""
        path = self.write(tmp_path)
        with collected_damage() as messages, self.open(path) as source:
            assert [entry for entry in source.account.left_out if entry.level != "note"] == []
        assert messages == []

    def test_a_leftover_is_named(self, kind: Leftover, tmp_path: Path) -> None:
        """By the account, also from the index in the cache, and by the warning; or by the error of a
        refused dataset.
        """
        path, planted = self.write(tmp_path), self.planted[kind]
        planted.plant(path)
        if planted.refused:
            with pytest.raises(FormatError) as caught:
                self.open(path).close()
            assert planted.where in str(caught.value)
            return
        for _ in ("indexed", "from the cache"):
            with collected_damage() as messages, self.open(path) as source:
                entries = [entry for entry in source.account.left_out if planted.where in entry.where]
                assert [entry.reason for entry in entries] == [planted.reason], source.account
                assert Account.from_json(source.account.to_json()) == source.account
            self._warned(entries, messages)

    def _warned(self, entries: list[LeftOut], messages: list[str]) -> None:
        """One warning if an entry may hold data."""
        serious = [entry for entry in entries if entry.level != "note"]
        assert len(messages) == bool(serious), messages
        assert all(entry.where in messages[0] for entry in serious)
