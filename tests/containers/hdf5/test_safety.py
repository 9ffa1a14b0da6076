from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from penstock.containers.hdf5 import Appender, Dataset, File, Group
from penstock.errors import ChecksumError, FormatError


def _sample(path: Path, libver: str) -> bytes:
    with h5py.File(path, "w", libver=libver) as f:
        f.attrs["a"], f.attrs["b"] = "text", np.arange(4)
        for i in range(12):
            g = f.create_group(f"episode_{i}")
            g.attrs["id"] = i
        g["r"], g["t"] = np.arange(20.0), ["a", "bc"]
        growing = {"chunks": (7,), "maxshape": (None,)}
        g.create_dataset("z", data=np.arange(100), compression="gzip", shuffle=True, **growing)
        g.create_dataset("f", data=np.arange(50), chunks=(9,), fletcher32=True)
        g.create_dataset("l", data=np.zeros(500, "i4"), chunks=(90,), compression="lzf")
        g.create_dataset("b", data=np.zeros((20, 3), bool), chunks=True, maxshape=(None, 3))
        g.create_dataset("p", data=np.arange(60).reshape(6, 10), chunks=(2, 3), maxshape=(None, None))
        g["c"] = np.array([(1, 2.0)], dtype=[("x", "i2"), ("y", "f8", (2,))])
        g["soft"] = h5py.SoftLink("/episode_0")
        f.create_dataset("fill", shape=(10**6,), chunks=(10**4,), fillvalue=3, dtype="i4")
    return path.read_bytes()


def _visit(path: Path) -> int:
    """Read whatever can be read; the number of objects that are malformed."""
    bad = 0

    def attempt(action: Callable[[], object]) -> object:
        nonlocal bad
        try:
            return action()
        except FormatError as error:
            bad += 1 if error.path == str(path) else 1 << 20
        except KeyError:
            bad += 1
        return None

    def look(here: Group | Dataset, depth: int) -> None:
        for name in attempt(lambda: list(here.attrs)) or ():
            attempt(lambda name=name: here.attrs[name])
        if isinstance(here, Dataset):
            attempt(here.flat)
            attempt(lambda: here.fill)
            attempt(here.read if here.kind in ("array", "string") else here.read_list)
            return
        for name in attempt(lambda: list(here.links)) or ():
            child = attempt(lambda name=name: here[name])
            if isinstance(child, Group | Dataset) and depth < 4:
                look(child, depth + 1)

    file = attempt(lambda: File(path))
    if isinstance(file, File):
        look(file.root, 0)
        attempt(lambda: list(file.root.walk()))
    return bad


def _damage(raw: bytes, rng: random.Random) -> bytes:
    out = bytearray(raw)
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        at, how = rng.randrange(len(out) - 8), rng.random()
        if how < 0.4:
            out[at] ^= 1 << rng.randrange(8)
        elif how < 0.7:
            out[at] = rng.choice([0, 255, 127, 128, 1])
        elif how < 0.9:
            word = rng.choice([2**64 - 1, 0, 2**63 - 1, rng.randrange(len(out))])
            struct.pack_into("<Q", out, at, word)
        elif how < 0.98:
            out[at : at + 4] = rng.randbytes(4)
        else:
            del out[at + 8 :]
            out += bytes(max(16 - len(out), 0))
    return bytes(out)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("checksums", [True, False])
def test_damage_is_an_error_or_a_value(
    tmp_path: Path, libver: str, checksums: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rng = tmp_path / "a.hdf5", random.Random(f"{libver} {checksums}")
    raw = _sample(path, libver)
    assert _visit(path) == 0
    if not checksums:  # so that damage gets past them, into the parsers
        for module in ("image", "messages", "heap", "btree", "chunks"):
            monkeypatch.setattr(f"penstock.containers.hdf5.{module}.verify", lambda *_: None)
    bad = 0
    for _ in range(500):
        path.write_bytes(_damage(raw, rng))
        found = _visit(path)
        assert found < 1 << 20  # every error names the file
        bad += found > 0
    assert bad > 50


def _only(path: Path, name: str = "x") -> Dataset:
    found = File(path)[name]
    assert isinstance(found, Dataset)
    return found


def _patched(path: Path, old: bytes, new: bytes) -> None:
    raw = path.read_bytes()
    assert raw.count(old) >= 1
    path.write_bytes(raw.replace(old, new))


def test_a_shape_that_the_file_cannot_back(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as f:
        f["x"] = np.arange(12345)
    _patched(path, struct.pack("<QQ", 12345, 12345), struct.pack("<QQ", 1 << 40, 1 << 40))
    with pytest.raises(FormatError, match="expected 8796093022208 bytes"):
        _only(path)


def test_missing_chunks_cannot_claim_all_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as f:
        f.create_dataset("x", shape=(1 << 45,), chunks=(1024,), dtype="f8")
    x = _only(path)
    assert x.read(1 << 40, (1 << 40) + 100).tolist() == [0.0] * 100
    with pytest.raises(FormatError, match="cannot come from"):
        x.read()


def test_a_chunk_that_inflates_without_end(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as f:
        d = f.create_dataset("x", (1000,), "u1", chunks=(1000,), compression="gzip")
        with h5py.File(tmp_path / "b.hdf5", "w") as g:
            big = g.create_dataset("x", data=np.zeros(1 << 20, "u1"), chunks=(1 << 20,), compression="gzip")
            d.id.write_direct_chunk((0,), big.id.read_direct_chunk((0,))[1])
    with pytest.raises(FormatError, match="does not end within"):
        _only(path).read()


def test_trees_that_run_in_a_circle(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    with Appender.create(path, fsync=False) as w:
        for i in range(200):
            w.add_group(f"episode_{i}")
    with File(path) as ours:
        tree = struct.unpack_from("<Q", next(m.body for m in ours.root.messages if m.kind == 0x11))[0]
    raw = bytearray(path.read_bytes())
    assert raw[tree + 5] > 0
    struct.pack_into("<Q", raw, tree + 32, tree)  # the first child is the root itself
    path.write_bytes(raw)
    with File(path) as ours, pytest.raises(FormatError, match="circle"):
        list(ours.root)


def test_header_blocks_that_run_in_a_circle(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as f:
        for i in range(30):
            f.attrs[f"a{i}"] = i
    raw = bytearray(path.read_bytes())
    at = raw.index(struct.pack("<HHB3x", 0x10, 16, 0), 96)
    start, length = struct.unpack_from("<QQ", raw, at + 8)
    struct.pack_into("<HHB3xQQ", raw, start, 0x10, 16, 0, start, length)
    path.write_bytes(raw)
    with pytest.raises(FormatError, match="circle"):
        File(path)


def test_texts_that_share_their_bytes_a_million_times(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    with Appender.create(path, fsync=False) as w:
        w.add_group("g", {"x": ["y" * 60_000] * 2})
    with File(path) as ours:
        x = ours["g/x"]
        assert isinstance(x, Dataset)
        at = x.flat()
        assert at is not None
        raw = bytearray(path.read_bytes())
    raw[at + 16 : at + 32] = raw[at : at + 16]  # both refer to the same text: still less than the file
    path.write_bytes(raw)
    assert len(_only(path, "g/x").read_list()) == 2
    struct.pack_into("<I", raw, at, 1 << 31)
    path.write_bytes(raw)
    with pytest.raises(FormatError, match="claim more than"):
        _only(path, "g/x").read_list()


def test_flipped_bits_are_found_where_there_is_a_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=np.arange(50), chunks=(50,), fletcher32=True)
        at = f["x"].id.get_chunk_info(0).byte_offset
    raw = bytearray(path.read_bytes())
    raw[at + 9] ^= 4
    path.write_bytes(raw)
    with pytest.raises(ChecksumError, match="fletcher32"):
        _only(path).read()
    with h5py.File(path, "w", libver="latest") as f:
        f["x"] = 1
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"OHDR") + 20] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ChecksumError, match="object header"):
        File(path)
