"""What the reader of archives does not use is in its account; messages say what is wrong with the samples."""

# pyright: basic

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

import penstock
from penstock.containers.tar import END, member
from penstock.core.damage import collected_damage
from penstock.errors import FormatError
from penstock.formats.base.format import recognise
from penstock.formats.base.source import Source
from penstock.formats.webdataset.streaming import ShardStream
from penstock.testing.accounts import AccountContract, Leftover, Planted

CHUNK = member("training.1.gz", b"\x1f\x8b")
HTML = b"<!doctype html><title>404</title>" * 30


def archive(*keys: str) -> bytes:
    return b"".join(member(f"{key}.cls", b"%d" % n) for n, key in enumerate(keys)) + END


def appended(name: str, raw: bytes) -> Any:
    def plant(path: Path) -> None:
        with (path / name if name else path).open("ab") as file:
            file.write(raw)

    return plant


def written(name: str, raw: bytes) -> Any:
    return lambda path: (path / name).write_bytes(raw)


class TestFolder(AccountContract):
    planted: ClassVar[Mapping[Leftover, Planted]] = {
        "file": Planted(written("labels.bin", b"1"), "other-file", "labels.bin"),
        "member": Planted(written("s3.tar", archive("e") [:-1024] + member("names", b"a") + END), "other-file", "s3.tar: names"),
        "column": Planted(
            written("s3.tar", b"".join(member(f"{i}.json", b'{"v": %s}' % v) for i, v in enumerate((b"1", b'"a"'))) + END),
            "other-length",
            "",
            refused=True,
        ),
        "tail": Planted(appended("s1.tar", b"tail"), "behind-the-end", "s1.tar: byte"),
        "bad first file": Planted(written("s0.tar", HTML), "bad-file", "s0.tar"),
    }
    absent: ClassVar[Mapping[Leftover, str]] = {
        "array": "members are arrays",
        "unfinished": "the mark of a conversion is read by `open` for all formats",
    }

    def write(self, path: Path) -> Path:
        for name, keys in (("s1", "ab"), ("s2", "cd")):
            (path / f"{name}.tar").write_bytes(archive(*keys))
        return path

    def open(self, path: Path, **options: Any) -> Source:
        return penstock.open(path, **options).source
