"""What of games is left out, in the account, the warning of `open` and the check; and which files tell the format."""

# pyright: basic

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import penstock
from lc0.conftest import GOLDEN
from penstock.containers.tar.writer import END, member
from penstock.errors import DamageWarning, FormatError
from penstock.formats.base.format import recognise
from penstock.formats.base.source import Source
from penstock.testing.accounts import AccountContract, Planted
from penstock_chess.formats.lc0 import ChunkError, open_chunks

V6 = gzip.decompress((GOLDEN / "gz/training.700001.gz").read_bytes())
V5 = gzip.decompress((GOLDEN / "old/v5.gz").read_bytes())


def packed(raw: bytes) -> bytes:
    return gzip.compress(raw, 1, mtime=0)


GAME = packed(V6)
BAD: dict[str, bytes] = {
    "empty": b"",
    "text": b"hello world" * 50,
    "html": b"<html>not found</html>",
    "unknown version": packed(b"\x09" + V6[1:]),
    "cut header": GAME[:5],
    "cut": GAME[:100],
    "cut checksum": GAME[:-8],
    "cut end": GAME[:-2000],
    "gzip of nothing": packed(b""),
    "half record": packed(V6[:4000]),
    "mixed versions": packed(V6 + V5),
}


def archive(*members: tuple[str, bytes]) -> bytes:
    return b"".join([*(member(name, data) for name, data in members), END])


def folder_alone() -> bytes:
    info = tarfile.TarInfo("run/")
    info.type = tarfile.DIRTYPE
    return info.tobuf() + END


GAMES = archive(("training.1.gz", GAME), ("training.2.gz", packed(V5)))


def adding(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes(content)


def tail(path: Path) -> None:
    with (path / "games.tar").open("ab") as file:
        file.write(b"signed by me" * 99)


class TestFolder(AccountContract):
    planted: ClassVar[Any] = {
        "file": Planted(adding("notes.bin", b"\0\1"), "other-file", "notes.bin"),
        "member": Planted(
            adding("a.tar", archive(("a.gz", GAME), ("b.txt", b"no game"))), "damaged-part", "b.txt in a"
        ),
        "tail": Planted(tail, "behind-the-end", "games.tar: byte"),
        "bad first file": Planted(adding("a.gz", b""), "bad-file", "a.gz"),
        "unfinished": Planted(
            adding(".penstock-unfinished", b'{"work": "conversion", "episodes": 9}'),
            "unfinished",
            "3 of 9",
            refused=True,
        ),
    }
    absent: ClassVar[Any] = dict.fromkeys(("array", "column"), "all records have the same columns")

    def write(self, path: Path) -> Path:
        (folder := path / "games").mkdir()
        (folder / "games.tar").write_bytes(GAMES)
        (folder / "training.9.gz").write_bytes(GAME)
        return folder

    def open(self, path: Path, **options: Any) -> Source:
        return penstock.open(path, **options).source


class TestArchive(AccountContract):
    planted: ClassVar[Any] = {
        "member": Planted(lambda path: path.write_bytes(archive(("a", GAME), ("b", b"x" * 9))), "damaged-part", "b in"),
        "tail": Planted(lambda path: tail(path.parent), "behind-the-end", "byte"),
        "unfinished": Planted(
            lambda path: (path.parent / ".games.tar.penstock-unfinished").write_text('{"work": "copy", "episodes": 9}'),
            "unfinished",
            "2 of 9",
            refused=True,
        ),
    }
    absent: ClassVar[Any] = dict.fromkeys(("file", "array", "column", "bad first file"), "one archive of games")

    def write(self, path: Path) -> Path:
        (path / "games.tar").write_bytes(GAMES)
        return path / "games.tar"

    def open(self, path: Path, **options: Any) -> Source:
        return penstock.open(path, **options).source


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("name", ["training.0.gz", "training.999.gz", "training.0.tar"])
def test_a_bad_file_is_named_wherever_it_sorts_and_the_others_are_games(tmp_path: Path, kind: str, name: str) -> None:
    for i in range(1, 4):
        (tmp_path / f"training.{i}.gz").write_bytes(GAME)
    (tmp_path / name).write_bytes(BAD[kind])
    for where in (tmp_path, f"{tmp_path}/*.*", sorted(tmp_path.iterdir())):
        with pytest.warns(DamageWarning, match=name):
            opened = penstock.open(where)
        with opened as games:
            assert len(games) == 3
            assert "planes" in games.spec
            assert [(entry.where, entry.reason) for entry in games.source.account.left_out] == [(name, "bad-file")]
    report = penstock.check(tmp_path, progress=False)
    assert [(finding.name, finding.where) for finding in report.findings if finding.level == "error"] == [
        ("bad-file", name)
    ]


@pytest.mark.parametrize(
    ("first", "errors"),
    [
        (END, []),
        (bytes(10240), []),
        (archive(("LICENSE", b"ODbL")), []),
        (archive(("._training.1.gz", b"resource fork")), []),
        (folder_alone(), []),
        (b"", ["bad-file"]),
        (GAMES[:300], ["bad-file"]),
        (archive(("notes.txt", b"text"), ("b.txt", b"text")), ["damaged-part", "damaged-part"]),
    ],
    ids=["no member", "zeros", "license", "hidden", "folder", "empty", "cut", "documents"],
)
@pytest.mark.parametrize("name", ["a.tar", "z.tar"])
def test_an_archive_without_games_does_not_change_the_others(
    tmp_path: Path, first: bytes, errors: list[str], name: str, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "games.tar").write_bytes(GAMES)
    (tmp_path / name).write_bytes(first)
    with penstock.open(tmp_path) as games:
        assert (len(games), "planes" in games.spec) == (2, True)
        entries = [entry for entry in games.source.account.left_out if entry.level != "note"]
    assert [entry.reason for entry in entries] == errors
    assert len(recwarn) == bool(errors)


@pytest.mark.parametrize("kind", ["tar.gz", "tgz", "tar.bz2", "tar.xz"])
@pytest.mark.parametrize("inner", [GAME, V6], ids=["packed", "plain"])
def test_an_archive_that_is_compressed_as_a_whole_is_refused_by_name(tmp_path: Path, kind: str, inner: bytes) -> None:
    """LeelaChessZero/lczero-training#135 asks for them; opened as something else, they are a sample of gzip files."""
    compress = {"tar.gz": packed, "tgz": packed, "tar.bz2": bz2.compress, "tar.xz": lzma.compress}[kind]
    path = tmp_path / f"run.{kind}"
    path.write_bytes(compress(archive(*((f"run/training.{i}", inner) for i in range(3)))))
    for where in (path, tmp_path):
        with pytest.raises(FormatError, match=rf"compressed as a whole; decompress it first, to a .tar.*run\.{kind}"):
            penstock.open(where)
    with pytest.raises(ChunkError, match="compressed as a whole"):  # as live data read it
        load_first(path)
    (tmp_path / "training.1.gz").write_bytes(GAME)
    with pytest.warns(DamageWarning, match=f"run.{kind}"):
        assert len(penstock.open(tmp_path)) == 1


def load_first(path: Path) -> None:
    file = open_chunks(path)
    assert file is not None
    file.load(0)


def test_what_else_is_in_a_folder_of_games_is_in_the_account(tmp_path: Path) -> None:
    (tmp_path / "training.1.gz").write_bytes(GAME)
    (tmp_path / "training.2.gz").write_bytes(GAME + b"signed")
    (tmp_path / "README.md").write_text("games")
    (tmp_path / ".DS_Store").write_bytes(b"\0")
    (tmp_path / "older").mkdir()
    (tmp_path / "games.tar").write_bytes(archive(("LICENSE", b"ODbL"), ("a", GAME), ("._a", b"fork")))
    (tmp_path / "more.tar").write_bytes(archive(("LICENSE", b"ODbL"), ("b", GAME)))
    with pytest.warns(DamageWarning, match="older/"):
        opened = penstock.open(tmp_path)
    with opened as games:
        assert len(games) == 4
        entries = {(entry.where, entry.reason, entry.count) for entry in games.source.account.left_out}
    assert entries == {
        ("training.2.gz", "behind-the-end", 6),
        ("older/", "other-file", 1),
        ("README.md", "document", 1),
        (".DS_Store", "hidden", 1),
        ("LICENSE in games.tar", "document", 2),
        ("._a in games.tar", "hidden", 1),
    }


def test_a_folder_of_other_archives_is_not_one_of_games(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for i in range(2):
            for suffix in ("cls", "txt"):
                info = tarfile.TarInfo(f"{i}.{suffix}")
                info.size = 1
                tar.addfile(info, io.BytesIO(b"1"))
    for i in range(9):
        (tmp_path / f"{i}.tar").write_bytes(buffer.getvalue())
    (tmp_path / "4.tar").write_bytes(GAMES)
    assert type(penstock.open(tmp_path / "0.tar").source).__name__ == "ShardSource"
    assert recognise(tmp_path)[0].name == "webdataset"


def test_chunks_of_a_path_as_text(tmp_path: Path) -> None:
    (tmp_path / "training.1.gz").write_bytes(GAME)
    file = open_chunks(str(tmp_path / "training.1.gz"))
    assert file is not None
    assert len(file.load(0)) == len(V6) // 8356
