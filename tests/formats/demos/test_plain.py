"""Plain `.npz` files under the names of several libraries, and archives that lie."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.containers.npz import NpzArchive
from penstock.errors import ChecksumError, DamageWarning, FormatError, UnknownFormatError, UnsafeDataError
from penstock.formats.base.format import named, recognise
from penstock.formats.demos import FORMAT
from penstock.formats.demos.plain import PlainKind

MINARI = Path(__file__).parents[2] / "golden" / "minari"
LENGTHS = (5, 1, 12, 3)
ENDS = np.cumsum(LENGTHS)
N = int(ENDS[-1])


def values(boundary=False, seed=0):
    """Observations, actions and rewards of four episodes."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(N + 4 * boundary, 3)).astype("f4")
    return {"obs": rows, "acts": rng.integers(5, size=N), "rews": rng.normal(size=N)}


def flags(*episodes):
    """True at the last steps of these episodes."""
    out = np.zeros(N, bool)
    out[ENDS[list(episodes)] - 1] = True
    return out


def saved(path, compressed=False, **arrays):
    (np.savez_compressed if compressed else np.savez)(path, **arrays)
    return path


LAYOUTS = {
    "minari": ("observations", "actions", "rewards", {"terminations": flags(0, 2), "truncations": flags(1, 3)}),
    "d4rl": ("observations", "actions", "rewards", {"terminals": flags(0, 2), "timeouts": flags(1, 3)}),
    "imitation": ("obs", "acts", "rews", {"terminal": np.array([1, 0, 1, 0], bool), "indices": ENDS[:-1]}),
    "il-representations": ("states", "actions", "rews", {"dones": flags(0, 2), "lengths": np.array(LENGTHS)}),
    "diffusion policy": ("state", "action", "reward", {"done": flags(0, 2), "episode_ends": ENDS}),
    "baselines": ("obs", "actions", "rewards", {"dones": flags(0, 2), "episode_starts": np.roll(flags(0, 1, 2, 3), 1)}),
    "offsets": ("obs", "actions", "rewards", {"dones": flags(0, 2), "offsets": np.array([0, *ENDS])}),
}


@pytest.mark.parametrize("compressed", [False, True], ids=["stored", "deflated"])
@pytest.mark.parametrize("boundary", [False, True], ids=["steps", "boundaries"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_names_say_what_arrays_are(tmp_path, layout, boundary, compressed):
    obs, acts, rews, ends = LAYOUTS[layout]
    parts = values(boundary)
    arrays = {obs: parts["obs"], acts: parts["acts"], rews: parts["rews"], **ends}
    path = saved(tmp_path / "f.npz", compressed, **arrays)
    assert recognise(path)[0].name == "demos"
    assert FORMAT.kind_at(path).name == "npz"
    with FORMAT.open(path) as source:
        assert list(source.spec) == ["observations", "actions", "rewards", "terminations", "truncations"]
        assert source.spec["observations"].align == ("boundary" if boundary else "step")
        assert source.offsets.tolist() == [0, *ENDS]
        found = list(source.episodes())
        np.testing.assert_array_equal(np.concatenate([e.columns["observations"] for e in found]), parts["obs"])
        np.testing.assert_array_equal(np.concatenate([e.actions for e in found]), parts["acts"])
        np.testing.assert_array_equal(np.concatenate([e.terminations for e in found]), flags(0, 2))
        np.testing.assert_array_equal(np.concatenate([e.truncations for e in found]), flags(1, 3))
        again = pickle.loads(pickle.dumps(source))
        assert again.fingerprint == source.fingerprint
        np.testing.assert_array_equal(again.episode(2).rewards, found[2].rewards)


def test_it_is_a_dataset(tmp_path):
    path = saved(tmp_path / "f.npz", **values(True), lengths=LENGTHS)
    assert penstock.open(path).windows(3, pad="zero").shuffle(seed=3)[:7]["observations"].shape == (7, 3, 3)


@pytest.mark.parametrize("follow", [True, False])
def test_next_observations_that_follow_are_no_column(tmp_path, follow):
    parts = values(True)
    kept = np.delete(parts["obs"], ENDS + np.arange(4), axis=0)
    after = np.delete(parts["obs"], [0, *(ENDS + np.arange(4) + 1)[:-1]], axis=0)
    after[7] += not follow
    path = saved(tmp_path / "f.npz", **(parts | {"obs": kept}), next_obs=after, lengths=LENGTHS)
    with FORMAT.open(path) as source:
        if follow:
            found = np.concatenate([e.columns["observations"] for e in source.episodes()])
            np.testing.assert_array_equal(found, parts["obs"])
            assert "next_observations" not in source.spec
        else:
            assert source.spec["observations"].align == source.spec["next_observations"].align == "step"
            np.testing.assert_array_equal(source.episode(2).columns["next_observations"], after[6:18])


def test_other_arrays_are_columns_if_their_rows_fit(tmp_path):
    others = {
        "image": np.zeros((N, 4, 4), "u1"),
        "potential": np.arange(N + 4.0),
        "task": np.arange(4),
        "short": np.zeros(2),
        "version": np.array(3),
        "words": np.array(["a"] * N),
        "objects": np.array([{}] * N),
        "structure": np.zeros(N, [("a", "i4")]),
        "../up": np.zeros(N),
        "deep/x": np.zeros(N),
        "deep": np.zeros(N),
    }
    with FORMAT.open(saved(tmp_path / "f.npz", **values(), lengths=LENGTHS, **others)) as source:
        aligned = {path: source.spec[path].align for path in source.spec if path in others}
        assert aligned == {"image": "step", "potential": "boundary", "task": "episode", "deep/x": "step"}
        reasons = {entry.where: entry.reason for entry in source.account.left_out}
        wrong = dict.fromkeys(("words", "objects", "structure"), "unsupported-dtype")
        unnamed = dict.fromkeys(("../up", "deep"), "unused-array")
        assert reasons == {**wrong, **unnamed, "short": "other-length"}
        assert source.metadata == {"version": 3}
        assert source.episode(3).columns["task"].tolist() == [3]


def test_names_can_be_said(tmp_path):
    parts = values()
    arrays = {"x": parts["obs"], "u": parts["acts"], "obs": parts["obs"] + 1, "ends": ENDS}
    path = saved(tmp_path / "f.npz", **arrays)
    assert not PlainKind().recognises(path)
    said = {"observations": "x", "actions": "u", "episode_ends": "ends"}
    with FORMAT.open(path, kind="npz", names=said) as source:
        np.testing.assert_array_equal(source.episode(0).observations, parts["obs"][:5])
        assert source.spec["obs"].align == "step"
    with pytest.raises(FormatError, match="an array 'gone'"):
        FORMAT.open(path, kind="npz", names={**said, "rewards": "gone"})
    with pytest.raises(TypeError, match="'reward'"):
        FORMAT.open(path, kind="npz", names={"reward": "x"})
    with pytest.raises(FormatError, match=r"'actions': \['actions', 'action', 'acts', 'act', 'acs', 'ac'\].*`names`"):
        FORMAT.open(path, kind="npz")


def test_lengths_can_be_said(tmp_path):
    path = saved(tmp_path / "f.npz", **values())
    with pytest.raises(FormatError, match=r"'episode_ends'.*'terminations'.*`lengths`"):
        FORMAT.open(path)
    assert FORMAT.open(path, lengths=LENGTHS).offsets.tolist() == [0, *ENDS]
    with pytest.raises(FormatError, match=f"{N} steps together"):
        FORMAT.open(path, lengths=[1, 2])


def test_one_row_more_is_one_episode(tmp_path):
    parts = values()
    with FORMAT.open(saved(tmp_path / "f.npz", obs=np.zeros((N + 1, 2)), acts=parts["acts"])) as source:
        assert source.offsets.tolist() == [0, N]
        assert source.episode(0).truncations.tolist() == [False] * (N - 1) + [True]


AMBIGUOUS = {
    "two names": ({"observations": np.zeros((N, 3))}, "one array for observations"),
    "ends that disagree": ({"episode_ends": ENDS, "offsets": np.array([0, 4, N])}, "to agree"),
    "lengths that do not add up": ({"lengths": np.array([1, 2])}, "lengths"),
    "negative lengths": ({"lengths": np.array([N + 3, -3])}, "lengths"),
    "fractions": ({"lengths": np.array([N / 2, N / 2])}, "whole numbers"),
    "no offsets": ({"offsets": np.zeros(0, int)}, "offsets"),
    "starts of a few": ({"episode_starts": np.ones(3, bool)}, "flags"),
    "starts late": ({"episode_starts": np.arange(N) == 3}, "follow one another"),
    "flags of rows": ({"dones": np.zeros((N, 2)), "lengths": LENGTHS}, "dones"),
    "flags of a few": ({"timeouts": np.zeros(3)}, "timeouts"),
    "rewards of a few": ({"rews": np.zeros(3), "lengths": LENGTHS}, "rews"),
    "observations of a few": ({"obs": np.zeros((3, 3)), "lengths": LENGTHS}, f"{N} rows, or {N + 4}"),
    "next ones of a few": ({"next_obs": np.zeros((3, 3)), "lengths": LENGTHS}, "next_obs"),
    "a single number": ({"acts": np.array(1)}, "rows"),
    "text": ({"acts": np.array(["a"] * N)}, "numbers"),
    "objects": ({"acts": np.array([{}] * N)}, "numbers"),
    "a structure": ({"acts": np.zeros(N, [("a", "i4")])}, "numbers or text"),
    "dates": ({"obs": np.zeros(N, "M8[s]"), "lengths": LENGTHS}, "numbers or text"),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_does_not_fit_is_named(tmp_path, name):
    arrays, message = AMBIGUOUS[name]
    path = saved(tmp_path / "f.npz", **(values() | arrays))
    with pytest.raises(FormatError, match=message) as error:
        FORMAT.open(path, kind="npz")
    assert str(path) in str(error.value)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">i8", "?", "c16", "u1"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_are_those_of_numpy(tmp_path, dtype, order, compressed):
    rows = np.asarray(np.random.default_rng(4).integers(0, 2, size=(7, 3, 2)).astype(dtype), order=order)
    path = saved(tmp_path / "f.npz", compressed, x=rows, empty=np.zeros((0, 3), dtype), one=np.array(1, dtype))
    archive = NpzArchive(path)
    for name, array in {"x": rows, "empty": np.zeros((0, 3)), "one": np.array(1)}.items():
        found = archive.array(name)
        np.testing.assert_array_equal(found, array)
        assert found.flags.c_contiguous
        assert found.shape == array.shape
        assert found.dtype == np.dtype(dtype).newbyteorder("=")


def test_stored_arrays_stay_in_the_file(tmp_path):
    path = saved(tmp_path / "f.npz", **values(), lengths=LENGTHS)
    archive = NpzArchive(path)
    found = archive.array("obs")
    assert np.shares_memory(found, archive._data)
    assert not found.flags.writeable
    again = FORMAT.open(path)
    np.testing.assert_array_equal(again.episode(0).observations, found[:5])


def patched(path, signature, at, value):
    """Bytes `value` at `at` behind the first `signature` in a file."""
    raw = bytearray(path.read_bytes())
    place = raw.index(signature) + at
    raw[place : place + len(value)] = value
    path.write_bytes(raw)


LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"
LIES = {
    "encrypted": [(CENTRAL, 8, b"\1\0")],
    "encrypted below": [(LOCAL, 6, b"\1\0")],
    "another method": [(CENTRAL, 10, b"\x0c\0"), (LOCAL, 8, b"\x0c\0")],
    "two methods": [(LOCAL, 8, b"\x08\0")],
    "stored in less": [(CENTRAL, 24, struct.pack("<I", 5))],
    "stored beyond the file": [(CENTRAL, 20, struct.pack("<II", 1 << 30, 1 << 30))],
    "at another place": [(CENTRAL, 42, struct.pack("<I", 7))],
    "outside the file": [(CENTRAL, 42, struct.pack("<I", 1 << 30))],
    "a long name below": [(LOCAL, 26, b"\xff\xff")],
    "the header moved": [(LOCAL, 28, b"\x40\0")],
}


@pytest.mark.parametrize("name", LIES)
def test_archives_that_lie_are_refused(tmp_path, name):
    path = saved(tmp_path / "f.npz", **values(), lengths=LENGTHS)
    for signature, at, value in LIES[name]:
        patched(path, signature, at, value)
    with pytest.raises(FormatError) as error:
        FORMAT.open(path, kind="npz")
    assert str(path) in str(error.value)


def test_members_may_not_overlap(tmp_path):
    """The trick of the best bombs: several entries for the same bytes."""
    path = saved(tmp_path / "f.npz", **values(), lengths=LENGTHS)
    raw = bytearray(path.read_bytes())
    second = raw.index(CENTRAL, raw.index(CENTRAL) + 1)
    raw[second + 42 : second + 46] = bytes(4)
    path.write_bytes(raw)
    with pytest.raises(UnsafeDataError, match="overlap"):
        FORMAT.open(path, kind="npz")


def test_names_twice_are_refused(tmp_path):
    path = saved(tmp_path / "f.npz", obs=np.zeros(3), acs=np.zeros(3))
    path.write_bytes(path.read_bytes().replace(b"acs.npy", b"obs.npy"))
    with pytest.raises(FormatError, match="different names"):
        FORMAT.open(tmp_path / "f.npz", kind="npz")


def test_bombs_are_bounded(tmp_path):
    path = saved(tmp_path / "f.npz", True, obs=np.zeros((200000, 8)), acts=np.zeros(200000), lengths=[200000])
    assert path.stat().st_size < 40000
    with pytest.raises(UnsafeDataError, match="max_bytes"):
        FORMAT.open(path, max_bytes=1 << 20)
    assert FORMAT.open(path).steps == 200000
    patched(path, CENTRAL, 24, struct.pack("<I", 1 << 31))
    with pytest.raises(UnsafeDataError, match="cannot come from"):
        FORMAT.open(path, kind="npz")


@pytest.mark.parametrize("change", [-1, 1])
def test_inflated_sizes_that_lie(tmp_path, change):
    path = saved(tmp_path / "f.npz", True, **values(), lengths=LENGTHS)
    raw = path.read_bytes()
    place = raw.index(CENTRAL) + 24
    (size,) = struct.unpack_from("<I", raw, place)
    patched(path, CENTRAL, 24, struct.pack("<I", size + change))
    with pytest.raises(UnsafeDataError, match="inflated"):
        FORMAT.open(path, kind="npz")


def test_deflated_bytes_are_checked_and_stored_ones_on_request(tmp_path):
    path = saved(tmp_path / "f.npz", True, **values(), lengths=LENGTHS)
    patched(path, CENTRAL, 16, b"\0\0\0\0")
    with pytest.raises(ChecksumError, match="obs"):
        FORMAT.open(path, kind="npz")
    saved(path, **values(), lengths=LENGTHS)
    assert list(FORMAT.check(path)) == []
    patched(path, LOCAL, 300, b"\x77")
    assert [(finding.level, finding.where) for finding in FORMAT.check(path)] == [("error", "obs")]


def npy(descr="'<f4'", fortran="False", shape="(21, 3)", payload=bytes(252), version=b"\1\0"):
    header = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode() + b"\n"
    length = struct.pack("<H", len(header)) if version == b"\1\0" else struct.pack("<I", len(header))
    return b"\x93NUMPY" + version + length + header + payload


HEADERS = {
    "negative": npy(shape="(-21, 3)"),
    "too many": npy(shape="(22, 3)"),
    "too few": npy(shape="(20, 3)"),
    "overflowing": npy(shape="(4611686018427387904, 8)"),
    "endless": npy(shape=f"({'9' * 300},)"),
    "rows of nothing": npy(shape="(4611686018427387904, 0)", payload=b""),
    "nothing of rows": npy(shape="(0, 18446744073709551616)", payload=b""),
    "code": npy(descr="__import__('os').system('false')"),
    "objects": npy(descr="'|O'"),
    "a structure": npy(descr="[('a', '<f4')]"),
    "an unknown dtype": npy(descr="'<f3'"),
    "many dimensions": npy(shape=f"({'1, ' * 60})"),
    "nested": npy(shape="(" * 9000 + ")" * 9000, version=b"\2\0"),
    "cut": npy()[:20],
    "no array": b"hello",
    "nothing": b"",
    "another version": npy(version=b"\7\0"),
}


@pytest.mark.parametrize("deflated", [False, True])
@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_lie_are_refused(tmp_path, name, deflated):
    path = tmp_path / "f.npz"
    saved(path, acts=np.zeros(21), lengths=LENGTHS)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as archive:
        archive.writestr("obs.npy", HEADERS[name])
    with pytest.raises(FormatError, match="obs"):
        FORMAT.open(path, kind="npz")


def test_later_versions_of_headers_are_read(tmp_path):
    saved(tmp_path / "f.npz", acts=np.zeros(21), lengths=LENGTHS)
    with zipfile.ZipFile(tmp_path / "f.npz", "a") as archive:
        archive.writestr("obs.npy", npy(version=b"\2\0"))
    assert FORMAT.open(tmp_path / "f.npz").spec["observations"].shape == (3,)


@pytest.mark.parametrize("compressed", [False, True])
def test_any_damage_is_a_value_or_a_format_error(tmp_path, compressed):
    path = saved(tmp_path / "f.npz", compressed, **values(True), lengths=LENGTHS)
    raw = path.read_bytes()
    rng = np.random.default_rng(14)
    outcomes = set()
    for i in range(300):
        bad = bytearray(raw)
        for at in rng.integers(len(raw), size=1 + i % 10):
            bad[at] = int(rng.integers(256))
        path.write_bytes(bad if i % 5 else raw[: int(rng.integers(len(raw)))])
        PlainKind().recognises(path)
        try:
            list(FORMAT.open(path, kind="npz").episodes())
            outcomes.add("value")
        except FormatError:
            outcomes.add("error")
    assert "error" in outcomes


def test_others_are_not_claimed(tmp_path):
    """Neither what is no archive, nor archives of something else, nor Minari's datasets."""
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    (tmp_path / "one.npy").write_bytes(buffer.getvalue())
    saved(tmp_path / "weights.npz", w=np.zeros(3), obs=np.zeros(3))
    (tmp_path / "cut.npz").write_bytes(LOCAL + zlib.compress(b"x"))
    for name in ("one.npy", "cut.npz", ".", "nothing"):
        assert not FORMAT.recognises(tmp_path / name)
    with pytest.raises(FormatError, match=r"observations and actions among \['obs', 'w'\]; name them.*names="):
        FORMAT.recognises(tmp_path / "weights.npz")
    with pytest.raises(UnknownFormatError, match=r"no format recognises; demos.*names="):
        recognise(tmp_path / "weights.npz")
    datasets = [p.parent for p in MINARI.rglob("data") if p.is_dir()]
    assert len(datasets) > 5
    files = [p for p in MINARI.rglob("*") if p.suffix in (".hdf5", ".arrow")]
    assert not any(FORMAT.recognises(path) for path in [*datasets, *files, *(d / "data" for d in datasets)])
    assert {recognise(path)[0].name for path in datasets} == {"minari"}
    shards = [p for p in (MINARI.parent / "ilr" / "shards").iterdir() if p.suffix in (".tar", ".tgz", ".zst")]
    assert {recognise(path)[0].name for path in shards} == {"webdataset"}
    store = tmp_path / "store"
    with named("columns").create(store, FORMAT.open(saved(tmp_path / "f.npz", **values(), lengths=LENGTHS)).spec):
        assert not FORMAT.recognises(store)


def test_arrays_of_other_names_need_the_kind(tmp_path):
    np.savez(tmp_path / "q.npz", x=np.zeros((5, 2)), acts=np.zeros(5))
    given = {"names": {"observations": "x"}, "lengths": [2, 3]}
    with pytest.raises(FormatError, match="say which with `kind`, as kind='npz'"):
        FORMAT.open(tmp_path / "q.npz", **given)
    with FORMAT.open(tmp_path / "q.npz", kind="npz", **given) as source:
        assert np.diff(source.offsets).tolist() == [2, 3]


def test_a_pattern_of_files_takes_names(tmp_path):
    for k, n in enumerate((4, 2)):
        np.savez(tmp_path / f"e{k}.npz", x=np.zeros((n + 1, 2)), u=np.full(n, k), other=np.zeros(9))
    names = {"observations": "x", "actions": "u"}
    with pytest.warns(DamageWarning, match="left out 2 arrays"):
        opened = penstock.open(str(tmp_path / "e*.npz"), format="demos", kind="npz", names=names)
    with opened as data:
        assert [episode.columns["actions"].tolist() for episode in data] == [[0] * 4, [1] * 2]
