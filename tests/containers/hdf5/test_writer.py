from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.containers.hdf5 import Appender, Dataset, File, Storage, VlenBytes, objects, writer
from penstock.containers.hdf5.encode import Tail
from penstock.errors import DataError, LockedError

Same = Callable[[Path], int]
Episode = Callable[..., dict[str, Any]]
LIBVERS = ["earliest", "latest", ("v108", "v108"), ("v110", "v112")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.hdf5"


def test_episodes_look_as_h5py_would_have_written_them(path: Path, same_as_h5py: Same, episode: Episode) -> None:
    with Appender.create(path, fsync=False) as w:
        for i in range(60):
            w.add_group(f"episode_{i}", episode(i) | {"infos": None}, {"id": i, "total_steps": 20})
            w.commit()
    assert same_as_h5py(path) == 300
    with h5py.File(path) as f:
        one = f["episode_42"]
        assert dict(one.attrs) == {"id": 42, "total_steps": 20}
        assert len(one["infos"]) == 0
        for name, values in episode(42).items():
            np.testing.assert_array_equal(one[name][()], values)
            assert one[name].dtype == values.dtype
            assert one[name].maxshape == (None, *values.shape[1:])
            assert one[name].chunks == values.shape


def test_every_kind_of_value(path: Path, same_as_h5py: Same) -> None:
    arrays = {f"n/{c}": np.arange(12).reshape(4, 3).astype(c) for c in "?bBhHiIqQefd"}
    arrays["big"] = np.arange(5, dtype=">i4")
    arrays["strided"] = np.arange(40.0).reshape(5, 8)[:, ::2]
    arrays["fixed"] = np.array([b"ab", b"c"])
    shapes = {f"s{i}": np.zeros(shape) for i, shape in enumerate([(0,), (0, 3), (5, 0), (), (1, 1, 1, 1)])}
    texts = {"texts": ["a", "é", ""] * 3000, "jpeg": VlenBytes([b"abc", b"", b"x" * 200_000]), "no texts": []}
    attrs = {
        "int": -1, "seed": 2**64 - 1, "float": 2.5, "str": "hello é", "no": False, "array": np.arange(3),
        "texts": ["x", "yé"], "bytes": b"abc", "empty": "", "flags": np.array([True, False]), "é": np.float32(1),
    }  # fmt: skip
    with Appender.create(path, fsync=False) as w:
        w.add_group("all", arrays | shapes | texts | {"number": 3}, attrs, {"texts": {"mean": 3.0}, "n": {"x": "y"}})
    assert same_as_h5py(path) == len(arrays) + len(shapes) + len(texts) + 1
    with h5py.File(path) as f:
        for name, values in (arrays | shapes).items():
            np.testing.assert_array_equal(f["all"][name][()], values)
        assert [t.decode() for t in f["all/texts"][()]] == texts["texts"]
        assert [v.tobytes() for v in f["all/jpeg"][()]] == texts["jpeg"]
        found = f["all"].attrs
        assert (found["str"], found["seed"], found["no"]) == ("hello é", np.uint64(2**64 - 1), np.False_)
        assert found["texts"].tolist() == ["x", "yé"]
        assert (f["all/texts"].attrs["mean"], f["all/n"].attrs["x"]) == (3.0, "y")


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 300), st.integers(0, 5), st.integers(1, 2000), st.booleans(), st.sampled_from("?bHiqefd"))
def test_any_chunking_reads_back(
    tmp_path_factory: pytest.TempPathFactory, rows: int, width: int, chunk_bytes: int, gzip: bool, dtype: str
) -> None:
    path = tmp_path_factory.mktemp("h") / "a.hdf5"
    values = np.arange(rows * width).reshape(rows, width).astype(dtype)
    storage = Storage("gzip" if gzip else None, chunk_bytes=chunk_bytes)
    with Appender.create(path, fsync=False) as w:
        w.add_group("g", {"x": values}, storage=storage)
    with h5py.File(path) as theirs, File(path) as ours:
        np.testing.assert_array_equal(theirs["g/x"][()], values)
        x = ours["g/x"]
        assert isinstance(x, Dataset)
        np.testing.assert_array_equal(x.read(), values)
        assert (theirs["g/x"].compression, theirs["g/x"].shuffle) == (("gzip", True) if gzip else (None, False))


def test_large_arrays_lie_in_one_piece(path: Path) -> None:
    values = np.random.default_rng(0).random((70_000, 3))
    with Appender.create(path, fsync=False) as w:
        w.add_group("g", {"x": values})
    with File(path) as ours:
        x = ours["g/x"]
        assert isinstance(x, Dataset)
        at = x.flat()
        assert at is not None
        assert at % 8 == 0
        np.testing.assert_array_equal(ours.buffer[at : at + values.nbytes].view(np.float64), values.reshape(-1))


def test_bytes_an_episode_do_not_grow(path: Path, episode: Episode) -> None:
    raw = sum(values.nbytes for values in episode(0).values())
    sizes = [0]
    with Appender.create(path, fsync=False) as w:
        for i in range(3000):
            w.add_group(f"episode_{i}", episode(0), {"id": i, "total_steps": 20, "seed": 3})
            w.commit()
            sizes.append(os.path.getsize(path))
    early, late = (sizes[200] - sizes[0]) / 200 - raw, (sizes[3000] - sizes[2800]) / 200 - raw
    assert early < 4000
    assert late < 4000
    assert late < 1.2 * early


def test_work_an_episode_does_not_grow(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, raw, at: written.append(len(raw)) or whole(fd, raw, at))
    work: list[tuple[int, int]] = []
    for i in range(1000):
        written.clear()
        with (Appender.open if i else Appender.create)(path, fsync=False) as w:
            w.add_group(f"episode_{i}", {"x": np.zeros(3)})
        work.append((len(written), sum(written)))
    assert max(count for count, _ in work[1:]) <= 3
    assert sum(n for _, n in work[900:]) < 1.5 * sum(n for _, n in work[100:200])


@pytest.mark.parametrize("libver", LIBVERS, ids=str)
@pytest.mark.parametrize("track_order", [False, True])
@pytest.mark.parametrize("n", [0, 3, 100])
@pytest.mark.parametrize("outside", [False, True])
def test_files_of_h5py_are_appended_to(path: Path, libver: Any, track_order: bool, n: int, outside: bool) -> None:
    with h5py.File(path, "w", libver=libver, track_order=track_order) as f:
        f.attrs["x"], f.attrs["text"] = 3, "text"
        for i in range(20 if n > 3 else 1):
            f.attrs[f"y{i}"] = np.arange(i)
        for i in range(n):
            f[f"episode_{i}/r"] = np.arange(4.0)
            f[f"episode_{i}"].attrs["id"] = i
        f["soft"] = h5py.SoftLink("/episode_0")
        if outside:
            f["outside"] = h5py.ExternalLink("b.hdf5", "/episode_2")
    for k in range(2):
        with Appender.open(path, fsync=False) as w:
            for i in range(5):
                w.add_group(f"new_{k}_{i}", {"r": np.arange(3.0), "t": ["a", "b"]}, {"id": i})
                w.commit()
            w.set_attrs("/", {"x": 4 + k, "added": "abc"})
    with h5py.File(path, "a") as f:
        assert len(f) == n + 11 + outside
        assert (f.attrs["x"], f.attrs["text"], f.attrs["added"]) == (5, "text", "abc")
        assert all(list(f[f"episode_{i}/r"]) == [0, 1, 2, 3] and f[f"episode_{i}"].attrs["id"] == i for i in range(n))
        assert f["soft"] == f["episode_0"] if n else True
        assert not outside or f.get("outside", getlink=True).filename == "b.hdf5"
        f["by h5py/thing"], f.attrs["h"] = np.arange(3), 3
        f["new_1_2/r"].resize((77,))
    with Appender.open(path, fsync=False) as w:
        w.add_group("last", {"a": np.arange(3)})
    with h5py.File(path) as theirs, File(path) as ours:
        assert set(theirs) == set(ours.root)
        assert theirs["last/a"][2] == 2
        assert ours["new_1_2/r"].shape == (77,)
        assert ours.root.attrs["h"] == 3


def test_h5py_appends_to_our_files(path: Path, same_as_h5py: Same, episode: Episode) -> None:
    with Appender.create(path, fsync=False) as w:
        for i in range(100):
            w.add_group(f"episode_{i}", episode(i), {"id": i})
    with h5py.File(path, "a") as f:
        f["episode_5/rewards"].resize((2000,))
        f["episode_5/rewards"][20:] = np.arange(1980)
        f["episode_6"].attrs["new"] = "text"
        for i in range(50):
            f["episode_7"][f"d{i}"] = i
            f.create_group(f"episode_5x{i}")
        del f["episode_8"]
    assert same_as_h5py(path) == 100 * 5 - 5 + 50
    with Appender.open(path, fsync=False) as w:
        for i in range(30):
            w.add_group(f"episode_8x{i}", episode(i))
    assert same_as_h5py(path) == 100 * 5 - 5 + 50 + 150


def test_attributes_are_replaced_one_by_one(path: Path, same_as_h5py: Same, episode: Episode) -> None:
    with Appender.create(path, fsync=False) as w:
        for i in range(20):
            w.add_group(f"episode_{i}", episode(i), {"id": i, "name": "a"})
        w.set_attrs("episode_3", {"id": 77})  # still uncommitted
        w.commit()
        w.set_attrs("episode_3", {"extra": "x"})
        w.set_attrs("", {"total_episodes": 20})
    assert same_as_h5py(path) == 100
    with h5py.File(path) as f:
        assert dict(f["episode_3"].attrs) == {"id": 77, "name": "a", "extra": "x"}
        assert dict(f["episode_4"].attrs) == {"id": 4, "name": "a"}
        assert dict(f.attrs) == {"total_episodes": 20}


def test_a_root_with_external_links_is_added_to(path: Path, episode: Episode) -> None:
    with h5py.File(path, "w") as f:
        f.create_group("episode_0").create_dataset("x", data=np.arange(2))
        for i in range(1, 200):
            f[f"episode_{i}"] = h5py.ExternalLink("additional_data_0.hdf5", f"/episode_{i}")
    sizes: list[int] = []
    for i in range(200, 300):
        with Appender.open(path, fsync=False) as w:
            w.add_group(f"episode_{i}", {"x": np.arange(3)})
        sizes.append(os.path.getsize(path))
    assert sizes[-1] - sizes[-2] == sizes[50] - sizes[49]
    with Appender.open(path, fsync=False) as w:
        w.set_attrs("episode_0", {"id": 5})
    with h5py.File(path, "a") as f:
        assert len(f) == 300
        assert (f["episode_299/x"][1], f["episode_0"].attrs["id"]) == (1, 5)
        assert f.get("episode_150", getlink=True).path == "/episode_150"
        f["more"] = h5py.ExternalLink("c.hdf5", "/d")
    with File(path) as ours:
        assert (len(ours.root), ours.root.links["more"].file) == (301, "c.hdf5")


def test_a_reader_keeps_the_state_it_opened(path: Path, episode: Episode) -> None:
    with Appender.create(path, fsync=False) as w:
        w.add_group("episode_0", episode(0))
        w.commit()
        before = File(path)
        for i in range(1, 40):
            w.add_group(f"episode_{i}", episode(i))
            w.commit()
            with h5py.File(path) as theirs:  # reads next to the open writer
                assert len(theirs) == i + 1
        assert list(before.root) == ["episode_0"]
        rewards = before["episode_0/rewards"]
        assert isinstance(rewards, Dataset)
        np.testing.assert_array_equal(rewards.read(), episode(0)["rewards"])


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        ({"a": np.zeros(3), "a/b": np.zeros(3)}, "below a dataset"),
        ({"a/b": np.zeros(3), "a": np.zeros(3)}, "both a dataset and a group"),
        ({"a": np.zeros(3), "a//b": np.zeros(3)}, "below a dataset|expected a path"),
        ({"": np.zeros(3)}, "expected a path"),
        ({"a": np.zeros(3, complex)}, "a: arrays of dtype complex128"),
        ({"a": np.array([object()])}, "a: arrays of dtype object"),
        ({"a": ["x", 3]}, "a: expected an array"),
        ({"a": ["x\0y"]}, "zero character"),
    ],
)
def test_values_that_cannot_be_stored(path: Path, datasets: dict[str, Any], message: str) -> None:
    with Appender.create(path, fsync=False) as w:
        with pytest.raises(DataError, match=message):
            w.add_group("g", datasets)
        assert "g" not in w
        w.add_group("g", {"x": np.zeros(1)})
    with h5py.File(path) as f:
        assert list(f["g"]) == ["x"]


def test_calls_that_make_no_sense(path: Path) -> None:
    with Appender.create(path, fsync=False) as w:
        w.add_group("g")
        for call, message in (
            (lambda: w.add_group("g"), "already in"),
            (lambda: w.add_group("a/b"), "name of a group of the root"),
            (lambda: w.set_attrs("h", {}), "not in"),
            (lambda: w.add_group("h", dataset_attrs={"x": {}}), "not among the datasets"),
            (lambda: w.set_attrs("g", {"x": None}), "attribute 'x'"),
            (lambda: w.set_attrs("g", {"x": np.zeros(9000)}), "too large"),
            (lambda: w.set_attrs("g", {"": 1}), "name for an attribute"),
        ):
            with pytest.raises(DataError, match=message):
                call()
    with pytest.raises(DataError, match="closed"):
        w.add_group("h")
    with pytest.raises(DataError, match="already holds data"):
        Appender.create(path)
    with h5py.File(path.with_name("u.hdf5"), "w", userblock_size=512):
        pass
    with pytest.raises(DataError, match="user block"):
        Appender.open(path.with_name("u.hdf5"))
    with h5py.File(path.with_name("p.hdf5"), "w", fs_strategy="page"):
        pass
    with pytest.raises(DataError, match="file options"):
        Appender.open(path.with_name("p.hdf5"))


def test_an_error_inside_the_block_commits_nothing(path: Path) -> None:
    def fail() -> None:
        with Appender.create(path, fsync=False) as w:
            w.add_group("g")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with h5py.File(path) as f:
        assert len(f) == 0


def test_one_writer_at_a_time(path: Path) -> None:
    with Appender.create(path, fsync=False) as w:
        with pytest.raises(LockedError, match="another writer"):
            Appender.open(path, wait=False)
        with pytest.raises(OSError, match="lock"):
            h5py.File(path, "a")
        w.add_group("g")
    with h5py.File(path, "a"), pytest.raises(LockedError, match="libhdf5"):
        Appender.open(path, wait=False)
    with Appender.open(path, wait=False, fsync=False) as w:
        assert "g" in w


@pytest.mark.parametrize("seed", range(6))
def test_a_group_from_a_template_has_the_bytes_of_one_that_is_encoded(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    block = replace(writer.NEW, leaf_k=int(rng.integers(1, 6)), internal_k=int(rng.integers(2, 6)))
    names = rng.permutation(["a", "b/c", "b/d/e", "ö", *(f"n{i}" for i in range(20))])[: 3 + 4 * seed].tolist()
    start = int(rng.integers(0, 1 << 48))  # not a multiple of 8
    for _ in range(3):
        values: dict[str, Any] = {"infos": None}
        for name in names:  # in the last case with some of no rows, for which there is no template
            shape = (rng.integers(int(seed < 5), 9), *rng.integers(1, 4, rng.integers(3)))
            values[name] = rng.integers(0, 2, shape).astype(str(rng.choice(["?", "i8", "u2", "f4", "f2", "S3"])))
        attrs = {"id": np.int64(-3), "mean": 0.5, "big": np.uint64(2**63), "α": np.float64("nan")}
        found: list[tuple[int, bytes]] = []
        for limit in (0, objects.TEMPLATE_BYTES):
            monkeypatch.setattr(objects, "TEMPLATE_BYTES", limit)
            tail = Tail(-1, start)
            group = objects.ObjectWriter(tail, block, Storage())
            found.append((group.group(values, attrs | ({"note": "text"} if seed == 4 else {}), {}), tail.take()))
            monkeypatch.undo()
        assert found[0] == found[1]
        start += len(found[0][1])
