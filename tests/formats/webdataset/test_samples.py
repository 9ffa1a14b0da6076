"""Archives of the webdataset library's kind: extensions, grouping, shards, the index, the cache."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path
from typing import Any

import cbor2
import msgpack
import numpy as np
import pytest
from PIL import Image

import penstock
from penstock.containers.pickle import loads
from penstock.containers.tar import END, member
from penstock.errors import DataError, FormatError, SpecError, UnsafeDataError
from penstock.formats.webdataset import FORMAT, shards, source
from penstock.formats.webdataset.content import index_file
from penstock.formats.webdataset.source import ShardSource


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def png(array: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(array).save(out, "PNG")
    return out.getvalue()


def write(path: Path, entries: dict[str, bytes]) -> Path:
    path.write_bytes(b"".join(member(name, raw) for name, raw in entries.items()) + END)
    return path


def records(n: int, first: int = 0) -> dict[str, bytes]:
    rng = np.random.default_rng(first)
    found: dict[str, bytes] = {}
    for i in range(first, first + n):
        told = {"x": i, "deep": {"y": [i, i + 1]}, "note": f"n{i}", "odd": None if i % 2 else 1}
        found |= {
            f"{i:04d}.a.npy": npy(np.full((2, 3), i, "f4")),
            f"{i:04d}.ragged.npy": npy(np.arange(i % 5)),
            f"{i:04d}.b.npz": npz(left=np.arange(3) + i, right=np.ones(2)),
            f"{i:04d}.json": json.dumps(told).encode(),
            f"{i:04d}.cls": str(i).encode(),
            f"{i:04d}.txt": f"héllo {i}".encode(),
            f"{i:04d}.mp": msgpack.packb({"m": i, "raw": b"x" * i}),
            f"{i:04d}.cbor": cbor2.dumps({"c": i / 2}),
            f"{i:04d}.png": png(rng.integers(256, size=(4, 5, 3), dtype=np.uint8)),
            f"{i:04d}.more.npy.gz": gzip.compress(npy(np.array(i))),
            f"{i:04d}.BIN": bytes(i),
        }
    return found


def test_every_extension(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", records(12))
    with ShardSource(path, images="rgb") as found:
        assert (found.layout, len(found)) == ("samples", 12)
        kinds = {name: (field.dtype.str, field.shape, field.align, field.kind) for name, field in found.spec.items()}
        assert kinds == {
            "a.npy": ("<f4", (2, 3), "step", "array"),
            "ragged.npy": ("<i8", (), "episode", "ragged"),
            "b.npz/left": ("<i8", (3,), "step", "array"),
            "b.npz/right": ("<f8", (2,), "step", "array"),
            "json/x": ("<i8", (), "step", "array"),
            "json/deep/y": ("<i8", (2,), "step", "array"),
            "json/note": ("|u1", (), "episode", "text"),
            "cls": ("<i8", (), "step", "array"),
            "txt": ("|u1", (), "episode", "text"),
            "mp/m": ("<i8", (), "step", "array"),
            "mp/raw": ("|u1", (), "episode", "ragged"),
            "cbor/c": ("<f8", (), "step", "array"),
            "png": ("|u1", (4, 5, 3), "step", "array"),
            "more.npy.gz": ("<i8", (), "step", "array"),
            "bin": ("|u1", (), "episode", "ragged"),
        }
        assert [(entry.where, entry.reason) for entry in found.account.left_out] == [("json/odd", "other-length")]
        seven = found.episode(7).columns
        assert seven["a.npy"].tolist() == np.full((1, 2, 3), 7).tolist()
        assert seven["ragged.npy"][0].tolist() == [0, 1]
        assert (seven["b.npz/left"].tolist(), seven["json/deep/y"].tolist()) == ([[7, 8, 9]], [[7, 8]])
        assert (seven["json/note"].strings(), seven["txt"].strings()) == (["n7"], ["héllo 7"])
        assert (seven["mp/raw"].blobs(), seven["bin"].blobs()) == ([b"x" * 7], [bytes(7)])
        assert (seven["cbor/c"].tolist(), seven["more.npy.gz"].tolist()) == ([3.5], [7])
        assert seven["png"].tobytes() == np.asarray(Image.open(io.BytesIO(records(12)["0007.png"]))).tobytes()
        assert found.sample(8)["json"]["odd"] == 1


def test_images_stay_encoded_by_default(tmp_path: Path) -> None:
    entries = {f"{i}.png": png(np.full((4 + i, 5, 3), i, "u1")) for i in range(3)}
    with ShardSource(write(tmp_path / "a.tar", entries)) as found:
        assert found.episode(1).columns["png"].blobs() == [entries["1.png"]]
    with pytest.raises(FormatError, match="one shape"):
        ShardSource(tmp_path / "a.tar", images="rgb")
    with pytest.raises(DataError, match="images"):
        ShardSource(tmp_path / "a.tar", images="bgr")


def test_samples_are_not_merged_across_archives(tmp_path: Path) -> None:
    write(tmp_path / "s-9.tar", {"a/x.cls": b"1"})
    write(tmp_path / "s-10.tar", {"a/x.cls": b"2", "b/x.cls": b"3", "__skip__/x.cls": b"9", "README": b"no dot"})
    for path in (tmp_path, tmp_path / "s-{9..10}.tar", tmp_path / "s-{9,10}.tar"):
        data = penstock.open(path)
        assert data.steps()[:]["cls"].tolist() == [1, 2, 3]
    with pytest.raises(FileNotFoundError):
        penstock.open(tmp_path / "s-{8..10}.tar")


def test_chosen_extensions(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", {"0.cls": b"1", "0.txt": b"a", "1.cls": b"2"})
    with pytest.raises(FormatError, match="extensions"):
        ShardSource(path)
    with ShardSource(path, extensions=["cls"]) as found:
        assert list(found.spec) == ["cls"]
    with pytest.raises(FormatError, match=r"expected the extensions \['npy'\]"):
        ShardSource(path, extensions=["npy"])


BAD = {
    "not an npy": {"0.npy": b"x" * 200},
    "an npy of objects": {"0.npy": npy(np.array([{}], object))},
    "an npy that is too short": {"0.npy": npy(np.arange(9))[:-1]},
    "an npy with a shape that lies": {"0.npy": npy(np.arange(9)).replace(b"(9,)", b"(8,)")},
    "a huge npy": {"0.npy": npy(np.zeros((1, 1))).replace(b"(1, 1)", b"(9999999, 9999999)"[:6])},
    "not json": {"0.json": b"{"},
    "deep json": {"0.json": b"[" * 100_000},
    "not a number": {"0.cls": b"one"},
    "a long number": {"0.cls": b"9" * 5000},
    "not msgpack": {"0.mp": b"\xc1"},
    "cut msgpack": {"0.mp": b"\xdd\xff\xff\xff\xff"},
    "not cbor": {"0.cbor": b"\xff"},
    "cut cbor": {"0.cbor": b"\x9b" + b"\x7f" * 8},
    "not an npz": {"0.npz": b"PK\3\4"},
    "not gzip": {"0.npy.gz": b"\x1f\x8bx"},
    "not utf-8": {"0.txt": b"\xff"},
    "a pickle that calls": {"0.pkl": b"cos\nsystem\n(S'true'\ntR."},
    "twice": {"0.cls": b"1", "0.CLS": b"2"},
    "arrays of other kinds": {"0.npy": npy(np.zeros((2, 2))), "1.npy": npy(np.zeros((2, 3)))},
    "no samples": {"README": b"none"},
}


@pytest.mark.parametrize("what", BAD)
def test_bad_members_are_format_errors_with_their_place(what: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", BAD[what])
    with pytest.raises(FormatError, match=r"a\.tar") as caught:
        ShardSource(path)
    if what != "no samples":
        assert "at byte" in str(caught.value)
    assert [finding.level for finding in FORMAT.check(path)] == ["error"]


def test_a_gzip_bomb_in_a_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.formats.webdataset.decoders.UNPACKED", 1000)
    path = write(tmp_path / "a.tar", {"0.npy.gz": gzip.compress(npy(np.zeros(1000)))})
    with pytest.raises(UnsafeDataError, match="at most 1000 bytes"):
        ShardSource(path)


def test_decoded_values_have_a_limit(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", records(4))
    with pytest.raises(FormatError, match="raise decoded_bytes"):
        ShardSource(path, decoded_bytes=100)


def test_the_index_is_kept_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "WORTH", 1)
    path = write(tmp_path / "a.tar", records(12))
    with ShardSource(path) as found:
        expected = [found.sample(i).keys() for i in range(12)], found.fingerprint, found.spec.fingerprint
        values = found.episode(5).columns
    place = index_file(path).path
    good = place.read_bytes()

    def same() -> None:
        with ShardSource(path) as found:
            assert ([found.sample(i).keys() for i in range(12)], found.fingerprint, found.spec.fingerprint) == expected
            for name, value in found.episode(5).columns.items():
                assert np.array_equal(getattr(value, "values", value), getattr(values[name], "values", values[name]))
            assert [entry.where for entry in found.account.left_out] == ["json/odd"]

    walks: list[object] = []
    monkeypatch.setattr(source, "read", lambda *a, read=source.read: walks.append(a) or read(*a))
    same()
    assert walks == []
    for damage in (good[:-1], good[:200], b"", good[:100] + b"?" + good[101:], good.replace(b"3\n", b"4\n", 1)):
        place.write_bytes(damage)
        same()
    assert len(walks) == 5
    assert place.read_bytes() == good
    state = path.stat()
    write(path, records(12, first=1))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    with ShardSource(path) as found:
        assert found.episode(0).columns["cls"].tolist() == [1]


@pytest.mark.parametrize("cached", ["/proc/nowhere", ""])
def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: str) -> None:
    monkeypatch.setattr(source, "WORTH", 1)
    monkeypatch.setenv("PENSTOCK_CACHE", cached)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    path = write(tmp_path / "a.tar", records(3))
    with ShardSource(path) as found:
        assert len(found) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar"]


def test_the_cache_is_bounded_and_used_again(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    for i in range(3):
        path = write(tmp_path / f"{i}.tar", {"0.bin": bytes(10_000)})
        (tmp_path / f"{i}.tgz").write_bytes(gzip.compress(path.read_bytes()))
    held = []
    for i in range(3):
        held.append(shards.plain(tmp_path / f"{i}.tgz", folder, 25_000))
        assert held[i].tobytes() == (tmp_path / f"{i}.tar").read_bytes()
    kept = {p.stat().st_ino for p in folder.iterdir()}
    assert len(kept) == 2
    assert held[0][:5].tobytes() == b"0.bin"  # what was removed stays mapped
    shards.plain(tmp_path / "1.tgz", folder, 25_000)
    assert {p.stat().st_ino for p in folder.iterdir()} == kept
    with pytest.raises(UnsafeDataError, match="cache_bytes"):
        shards.plain(tmp_path / "0.tgz", folder, 9_000)
    assert not list(folder.glob(".*"))


def test_a_damaged_copy_of_a_packed_archive_is_made_again(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", {"0.bin": bytes(2000)})
    (packed := tmp_path / "a.tgz").write_bytes(gzip.compress(path.read_bytes()))
    shards.plain(packed, tmp_path / "cache")
    (copy,) = (tmp_path / "cache").iterdir()
    good = copy.read_bytes()
    for damaged in (b"", good[:512], good[:-1], path.read_bytes(), good + good):
        copy.unlink()  # who has it mapped keeps what it reads
        copy.write_bytes(damaged)
        assert shards.plain(packed, tmp_path / "cache").tobytes() == path.read_bytes()
        assert copy.read_bytes() == good


def test_what_is_no_shard_is_not_recognised(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"x" * 1000)
    assert not FORMAT.recognises(tmp_path / "a.tar")
    assert not FORMAT.recognises(tmp_path)
    assert not FORMAT.recognises(tmp_path / "missing")
    assert FORMAT.locate("no-{0..1}.tar") is None


def test_the_same_episodes_give_the_same_bytes(tmp_path: Path) -> None:
    from penstock.testing.examples import RAGGED

    for name in ("a", "b"):
        with FORMAT.create(tmp_path / name, RAGGED.spec, {"x": 1}, shard_episodes=2) as writer:
            writer.write_all(RAGGED.episodes())
    left, right = (sorted((tmp_path / name).glob("*.tar")) for name in ("a", "b"))
    assert len(left) == 2
    assert [p.read_bytes() for p in left] == [p.read_bytes() for p in right]


def test_columns_the_layouts_have_no_place_for(tmp_path: Path) -> None:
    number = penstock.Field(np.dtype("f8"))
    with pytest.raises(SpecError, match="differ"):
        FORMAT.create(tmp_path / "a.tar", penstock.Spec({"A": number, "a": number}))
    with pytest.raises(SpecError, match="layout 'seed'"):
        FORMAT.create(tmp_path / "a.tar", penstock.Spec({"a": number}), layout="seed")
    with pytest.raises(DataError, match="layout"):
        FORMAT.create(tmp_path / "a.tar", penstock.Spec({"a": number}), layout="pickle")
    with pytest.raises(DataError, match=r"ends with \.tar\.zst"):
        FORMAT.create(tmp_path / "a.tgz", penstock.Spec({"a": number}), compression="zstd")
    assert list(tmp_path.iterdir()) == []


def test_pickles_that_we_write_are_read_as_data_and_by_python(tmp_path: Path) -> None:
    import pickle

    from penstock.formats.webdataset.seed_writer import dumps

    values = [
        None,
        True,
        -1,
        255,
        256,
        65536,
        1 << 40,
        -(1 << 70),
        0.5,
        "é" * 300,
        b"x" * 300,
        [1, [2]],
        (),
        (1,),
        (1, 2, 3, 4),
    ]
    values += [{}, {"a": {"b": np.float32(1)}}, np.int64(3), np.bool_(True)]
    for value in values:
        assert pickle.loads(dumps(value)) == value
        assert loads(dumps(value)) == value
    for array in (np.arange(6, dtype=">i2").reshape(2, 3), np.zeros((0, 3), "c8"), np.ones((300, 2), "?")):
        for read in (pickle.loads, loads):
            found = read(dumps(array))
            assert (found.dtype.newbyteorder("="), found.shape) == (array.dtype.newbyteorder("="), array.shape)
            np.testing.assert_array_equal(found, array)
    with pytest.raises(DataError):
        dumps(object())


def test_chunks_of_a_chess_engine_are_not_claimed(tmp_path: Path) -> None:
    """Tars of other things are left to their own formats; what must not be read is claimed, to say why."""
    folder = bytearray(member("training-run1/", b""))
    chunks = b"".join(member(f"training-run1/training.{i}.gz", gzip.compress(b"x")) for i in range(3))
    cases = {
        chunks + END: False,
        bytes(folder) + chunks + END: False,
        gzip.compress(chunks + END): False,
        member("README", b"no dot") + END: False,
        member("README", b"no dot") + member("0.npy.gz", b"x") + END: True,
        member("__meta__/a.json", b"{}") + member("a.cls", b"1") + END: True,
        member("a/training.json", b"{}") + END: True,
        END: True,
        b"": False,
        gzip.compress(b""): False,
    }
    for i, (raw, expected) in enumerate(cases.items()):
        path = tmp_path / str(i)
        path.write_bytes(raw)
        assert FORMAT.recognises(path) is expected, i
    (tmp_path / "chunks").mkdir()
    (tmp_path / "chunks" / "a.tar").write_bytes(chunks + END)
    assert not FORMAT.recognises(tmp_path / "chunks")


def test_an_extension_that_only_passed_over_names_have(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", {"0.cls": b"1", "__skip__/x.bin": b"?", "1.cls": b"2"})
    with ShardSource(path) as found:
        assert list(found.spec) == ["cls"]
