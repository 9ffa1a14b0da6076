"""What of a column store is not read is in its account."""

# pyright: basic

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import penstock
from penstock.core.damage import collected_damage
from penstock.formats.base.format import named
from penstock.formats.base.source import Source
from penstock.testing.accounts import AccountContract, Planted

DATA = penstock.from_arrays({"observations": np.zeros((8, 2)), "rewards": np.arange(5.0)}, lengths=[2, 2, 1])


def damage_last_entry(path: Path) -> None:
    raw = bytearray((path / "episodes").read_bytes())
    raw[-1] ^= 1
    (path / "episodes").write_bytes(raw)


class TestColumns(AccountContract):
    planted: ClassVar[Any] = {
        "file": Planted(lambda path: (path / "notes.bin").touch(), "other-file", "notes.bin"),
        "column": Planted(
            lambda path: (path / "segments/0/cost.values").touch(), "other-file", "segments/0/cost.values"
        ),
        "member": Planted(lambda path: (path / "segments/00").mkdir(), "other-file", "segments/00"),
        "tail": Planted(damage_last_entry, "unreadable", "entry 2"),
        "unfinished": Planted(
            lambda path: (path / ".penstock-unfinished").write_text('{"work": "merge", "episodes": 9}'),
            "unfinished",
            "the merge stopped at 3 of 9",
            refused=True,
        ),
    }
    absent: ClassVar[Any] = {
        "array": "a file is a column",
        "bad first file": "spec.json names every file",
    }

    def write(self, path: Path) -> Path:
        with named("columns").create(path / "store", DATA.spec) as writer:
            writer.write_all(DATA.source.episodes())
        return path / "store"

    def open(self, path: Path, **options: Any) -> Source:
        return penstock.open(path, **options).source

    def test_what_writers_have_open_is_not_left_out(self, tmp_path: Path) -> None:
        """Bytes of an episode that is being written, and episodes that were added after the store was opened."""
        path = self.write(tmp_path)
        with collected_damage() as messages, named("columns").append(path) as writer, self.open(path) as source:
            writer.write(DATA[0])
            with (path / "segments/0/rewards.values").open("ab") as file:
                file.write(b"half a row")
            assert source.account.left_out == ()
            assert source.refresh()
            assert source.account.left_out == ()
        assert messages == []
