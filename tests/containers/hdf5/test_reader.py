from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.containers.hdf5 import Dataset, File, Group
from penstock.errors import DataError, FormatError

Same = Callable[[Path], int]
LIBVERS = ["earliest", "latest", ("v108", "v108"), ("v110", "v112")]
DTYPES = "?bBhHiIqQefd"


@pytest.fixture(params=[(v, t) for v in LIBVERS for t in (False, True)], ids=str)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    libver, track_order = request.param
    return tmp_path / "a.hdf5", {"libver": libver, "track_order": track_order}


def test_every_dtype_layout_and_filter(written: tuple[Path, dict[str, Any]], same_as_h5py: Same) -> None:
    path, options = written
    rng = np.random.default_rng(0)
    with h5py.File(path, "w", **options) as f:
        for dt in DTYPES:
            a = rng.integers(0, 100, (13, 3)).astype(dt)
            f[f"whole/{dt}"] = a
            f[f"big/{dt}"] = a.astype(a.dtype.newbyteorder(">"))
            f[f"scalar/{dt}"] = a[0, 0]
            f.create_dataset(f"chunks/{dt}", data=a, chunks=(4, 2), maxshape=(None, 3))
            f.create_dataset(f"fixed/{dt}", data=a, chunks=(4, 2))
            f.create_dataset(f"one/{dt}", data=a, chunks=(13, 3))
            f.create_dataset(f"onez/{dt}", data=a, chunks=(13, 3), compression="gzip")
            f.create_dataset(
                f"gzip/{dt}", data=a, chunks=(4, 2), maxshape=(None, None), compression="gzip", shuffle=True,
                fletcher32=True,
            )  # fmt: skip
            lzf = {"compression": "lzf", "chunks": (400, 2), "maxshape": (600, 3)}
            f.create_dataset(f"lzf/{dt}", data=np.repeat(a, 40, 0), **lzf)
            f.attrs["array " + dt], f.attrs["scalar " + dt] = a, a[0, 0]
    assert same_as_h5py(path) == 9 * len(DTYPES)


def test_every_chunk_index(written: tuple[Path, dict[str, Any]], same_as_h5py: Same) -> None:
    path, options = written
    line, plane = np.arange(9000), np.arange(2000)
    with h5py.File(path, "w", **options) as f:
        for name, more in (("plain", {}), ("gzip", {"compression": "gzip"})):
            f.create_dataset(f"{name}/growing", data=line, chunks=(2,), maxshape=(None,), **more)
            f.create_dataset(f"{name}/paged", data=line, chunks=(2,), **more)
            inner = {"chunks": (3, 4), "maxshape": (40, None)}
            f.create_dataset(f"{name}/inner axis", data=plane.reshape(40, 50), **inner, **more)
            middle = {"chunks": (3, 4, 5), "maxshape": (40, None, 33)}
            f.create_dataset(f"{name}/middle axis", data=plane.reshape(10, 10, 20), **middle, **more)
            both = {"chunks": (2, 3), "maxshape": (None, None)}
            f.create_dataset(f"{name}/both axes", data=plane.reshape(40, 50), **both, **more)
            holes = {"chunks": (7, 7), "maxshape": (None, 30), "fillvalue": 5, "dtype": "i4"}
            f.create_dataset(f"{name}/holes", shape=(30, 30), **holes, **more)[8:9, 3:20] = 9
        f.create_dataset("untouched", shape=(30, 30), fillvalue=5.5, dtype="f4")
        f.create_dataset("empty", shape=(0, 5), chunks=True, maxshape=(None, 5), dtype="f4")
        _low_level(f, "compact", lambda create: create.set_layout(h5py.h5d.COMPACT))
        _low_level(f, "implicit", _implicit)
    assert same_as_h5py(path) == 16


def _implicit(create: h5py.h5p.PropDCID) -> None:
    create.set_chunk((3,))
    create.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)


def _low_level(f: h5py.File, name: str, change: Callable[[Any], None]) -> None:
    create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    change(create)
    space = h5py.h5s.create_simple((7,))
    d = h5py.h5d.create(f.id, name.encode(), h5py.h5t.NATIVE_INT32, space, create)
    d.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(7, dtype=np.int32))


def test_texts_sequences_and_compounds(written: tuple[Path, dict[str, Any]], same_as_h5py: Same) -> None:
    path, options = written
    with h5py.File(path, "w", **options) as f:
        f["texts"] = ["abc", "é" * 50, ""] * 5
        f.create_dataset("texts in chunks", data=["a", "é" * 50, ""] * 9, chunks=(7,), dtype=h5py.string_dtype())
        for name, dtype in (("bytes", np.uint8), ("floats", np.float64)):
            d = f.create_dataset(name, (9,), dtype=h5py.vlen_dtype(dtype), compression="gzip")
            for i in range(8):
                d[i] = np.arange(i * 30, dtype=dtype)
        f["fixed"] = np.array([b"abc", b"de"])
        kinds = np.dtype([("a", "i4"), ("b", ">f8"), ("c", "i2", (2,)), ("d", "S3")])
        f["compound"] = np.array([(1, 2.5, (1, 2), b"x"), (3, 4.5, (3, 4), b"yz")], kinds)
        f["complex"] = np.array([1 + 2j, 3])
        f["named type"] = np.dtype("f4")
        f.create_dataset("of named type", (4,), dtype=f["named type"])
        at = f["fixed"].attrs
        at["s"], at["several"], at["fixed"], at["seed"] = "hello", ["a", "bé"], np.bytes_("abc"), np.uint64(2**64 - 1)
        at["yes"], at["flags"] = True, np.array([True, False])
        at.create("named", 3.0, dtype=f["named type"])
    assert same_as_h5py(path) == 8


def test_groups_of_every_size(written: tuple[Path, dict[str, Any]], same_as_h5py: Same) -> None:
    path, options = written
    with h5py.File(path, "w", **options) as f:
        for n in (0, 1, 8, 9, 300):
            ordered = f.create_group(f"ordered {n}", track_order=True)
            plain = f.create_group(f"plain {n}")
            for i in reversed(range(n)):
                ordered.create_group(f"é{i}")
                plain[f"n{i}"] = np.int8(1)
                plain.attrs[f"a{i}"] = f"value {i}" * i
        long = f.create_group("long names")
        for i in range(12):
            long.create_group("x" * (400 * i + 1))
        f["soft"] = h5py.SoftLink("/plain 8/n3")
        f["hard"] = f["plain 8"]
        f["outside"] = h5py.ExternalLink("other.hdf5", "/there")
    assert same_as_h5py(path) == 8 + 1 + 8 + 9 + 300 + 1


def test_large_attributes(tmp_path: Path, same_as_h5py: Same) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w", libver="latest") as f:
        f.attrs["huge"] = np.arange(100_000)
        f.attrs["none"] = h5py.Empty("f4")
        f["x"] = 1
    with File(path) as ours:
        assert ours.root.attrs["none"] is None
        np.testing.assert_array_equal(ours.root.attrs["huge"], np.arange(100_000))


def test_user_block(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w", userblock_size=1024) as f:
        f["a"] = np.arange(100.0)
        f.create_dataset("b", data=np.arange(100), chunks=(30,))
    with File(path) as ours:
        assert _dataset(ours, "a").read().sum() == 4950
        np.testing.assert_array_equal(_dataset(ours, "b").read(25, 70), np.arange(25, 70))
        at = _dataset(ours, "a").flat()
        assert at is not None
        np.testing.assert_array_equal(ours.buffer[at : at + 800].view(np.float64), np.arange(100.0))


def _dataset(file: File, name: str) -> Dataset:
    found = file[name]
    assert isinstance(found, Dataset)
    return found


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_the_byte_map_is_that_of_h5py(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w", libver=libver) as f:
        data = np.arange(60).reshape(10, 6)
        f.create_dataset("x", data=data, chunks=(4, 5), maxshape=(None, 6), compression="gzip")
        f.create_dataset("flat", data=data, chunks=(16, 6), maxshape=(None, 6))
    with File(path) as ours, h5py.File(path) as theirs:
        tiles = _dataset(ours, "x").tiles()
        assert len(tiles) == theirs["x"].id.get_num_chunks() == 6
        for i in range(6):
            info = theirs["x"].id.get_chunk_info_by_coord(tuple(int(o) for o in tiles.origin[i]))
            assert (tiles.offset[i], tiles.nbytes[i], tiles.filter_mask[i]) == (info.byte_offset, info.size, 0)
        assert _dataset(ours, "x").flat() is None
        assert _dataset(ours, "flat").flat() == theirs["flat"].id.get_chunk_info(0).byte_offset


def test_values_of_variable_length_as_columns(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as f:
        f["t"] = ["one", "", "three"]
    with File(tmp_path / "a.hdf5") as ours:
        values, offsets = _dataset(ours, "t").read_vlen(1)
        assert (values.tobytes(), offsets.tolist()) == (b"three", [0, 0, 5])
        with pytest.raises(DataError, match="use read_list"):
            _dataset(ours, "t").read()


def test_what_lies_flat_is_read_without_a_copy(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as f:
        f.create_dataset("x", data=np.arange(100.0), chunks=(100,), maxshape=(None,))
    with File(tmp_path / "a.hdf5") as ours:
        rows = _dataset(ours, "x").read(10, 20)
        assert np.shares_memory(rows, ours.buffer)
        assert not rows.flags.writeable
    assert rows[0] == 10.0  # lives on after closing


def test_walk_meets_every_dataset_once(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as f:
        f["a/b/c"], f["a/d"], f["e"] = 1, 2, 3
        f["a/b/round"] = f["a"]
        f["a/type"] = np.dtype("f4")
        f["again"] = h5py.SoftLink("/e")
    with File(tmp_path / "a.hdf5") as ours:
        assert [d.name for d in ours.root.walk()] == ["/a/b/c", "/a/d", "/again", "/e"]  # by a soft link too


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as f:
        f["x"] = 1
        f["circle"], f["dangling"] = h5py.SoftLink("/circle"), h5py.SoftLink("/nothing")
        f["outside"] = h5py.ExternalLink("../../etc/passwd", "/")
        f["type"] = np.dtype("f4")
    with File(tmp_path / "a.hdf5") as ours:
        for name in ("nothing", "x/y", "dangling"):
            with pytest.raises(KeyError):
                ours[name]
        for name, message in (("circle", "soft links"), ("outside", "not followed"), ("type", "named datatype")):
            with pytest.raises(FormatError, match=message):
                ours[name]
        assert "dangling" in ours.root
        assert ours.root.links["dangling"].path == "/nothing"


def of_type(f: h5py.File, kind: h5py.h5t.TypeID) -> h5py.h5d.DatasetID:
    """A dataset `x` of a type that NumPy does not have."""
    return h5py.h5d.create(f.id, b"x", kind, h5py.h5s.create_simple((3,)))


def bfloat16() -> h5py.h5t.TypeFloatID:
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    return kind


def narrow(kind: h5py.h5t.TypeID) -> h5py.h5t.TypeID:
    kind.set_precision(3)
    return kind


@pytest.mark.parametrize("kind", ["STD_B8LE", "STD_B16BE", "STD_B32LE", "STD_B64BE"])
def test_bit_fields_are_numbers_as_h5py_reads_them(tmp_path: Path, kind: str) -> None:
    """PyTables stores booleans so."""
    path, values = tmp_path / "a.hdf5", np.array([0, 1, 255], "u1")
    with h5py.File(path, "w") as f:
        stored = getattr(h5py.h5t, kind)
        rows = values.astype(f"{'>' if kind.endswith('BE') else '<'}u{stored.get_size()}")
        of_type(f, stored).write(h5py.h5s.ALL, h5py.h5s.ALL, rows, mtype=stored)
    with File(path) as ours, h5py.File(path) as theirs:
        read = _dataset(ours, "x").read()
        np.testing.assert_array_equal(read, values)
        assert read.dtype == theirs["x"].dtype


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("opaque", lambda f: f.create_dataset("x", data=np.array([b"ab"], "V2"))),
        ("reference", lambda f: f.create_dataset("x", (1,), h5py.ref_dtype)),
        ("long double", lambda f: f.create_dataset("x", (1,), np.longdouble)),
        ("bfloat16 of 16 bits", lambda f: of_type(f, bfloat16())),
        ("integer of 3 bits", lambda f: of_type(f, narrow(h5py.h5t.STD_I8LE.copy()))),
        ("scaleoffset", lambda f: f.create_dataset("x", data=np.arange(9), chunks=(3,), scaleoffset=True).name),
        ("virtual", lambda f: f.create_virtual_dataset("x", h5py.VirtualLayout((3,), "i4"))),
        ("other files", lambda f: f.create_dataset("x", (3,), "i4", external=[("raw.bin", 0, 12)])),
        ("inside another", lambda f: f.create_dataset("x", (1,), [("a", h5py.string_dtype())])),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, name: str, make: Callable[[h5py.File], Any]) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as f:
        make(f)
    with File(path) as ours, pytest.raises(FormatError, match=name) as caught:
        _dataset(ours, "x").read()
    assert caught.value.path == str(path)
    assert "/x" in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as f:
        f["x"] = np.arange(1000)
    whole = path.read_bytes()
    for raw, message in ((b"", "no HDF5 signature"), (b"x" * 9000, "no HDF5 signature"), (whole[:-1], "cut short")):
        path.write_bytes(raw)
        with pytest.raises(FormatError, match=message):
            File(path)


def test_rows_outside_and_closed_files(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as f:
        f["x"] = np.arange(10)
    ours = File(tmp_path / "a.hdf5")
    x = _dataset(ours, "x")
    for start, stop in ((-1, 3), (0, 11), (5, 4)):
        with pytest.raises(DataError, match="rows within 0 to 10"):
            x.read(start, stop)
    ours.close()
    with pytest.raises(DataError, match="closed"):
        x.read()


def test_pickled_and_read_by_threads(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as f:
        for i in range(40):
            f[f"g{i}/x"] = np.full(50, i)
            f[f"g{i}/t"] = [str(i)] * 9
    ours = pickle.loads(pickle.dumps(File(tmp_path / "a.hdf5")))

    def total(i: int) -> int:
        return int(_dataset(ours, f"g{i}/x").read().sum()) + len(b"".join(_dataset(ours, f"g{i}/t").read_list()))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(total, list(range(40)) * 5)) == [50 * i + 9 * len(str(i)) for i in range(40)] * 5


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_chunked_array_reads_as_h5py_reads_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, n)) for n in shape)
    limits = tuple(data.draw(st.sampled_from([None, n, n + 5])) for n in shape)
    compression = data.draw(st.sampled_from([None, "gzip", "lzf"]))
    options = {"shuffle": data.draw(st.booleans()), "fletcher32": data.draw(st.booleans())}
    path = tmp_path_factory.mktemp("h") / "a.hdf5"
    values = np.random.default_rng(0).integers(0, 3, shape).astype(data.draw(st.sampled_from(DTYPES)))
    with h5py.File(path, "w", libver=data.draw(st.sampled_from(LIBVERS))) as f:
        f.create_dataset("x", data=values, chunks=chunks, maxshape=limits, compression=compression, **options)
    start = data.draw(st.integers(0, shape[0]))
    stop = data.draw(st.integers(start, shape[0]))
    with File(path) as ours:
        np.testing.assert_array_equal(_dataset(ours, "x").read(start, stop), values[start:stop])


def test_groups_are_mappings(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as f:
        f["g/x"] = 1
    with File(tmp_path / "a.hdf5") as ours:
        assert len(ours.root) == 1
        group = dict(ours.root.items())["g"]
        assert isinstance(group, Group)
        assert (group.name, repr(group), group.get("y")) == ("/g", "Group('/g', 1 links)", None)
