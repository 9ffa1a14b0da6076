"""Files that are valid and unusual: kinds of infos that are not read, links, user blocks, groups without data."""

from __future__ import annotations

import json
import warnings

import h5py
import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.spaces import Discrete, MultiDiscrete
from penstock.core.spec import Field
from penstock.errors import ChecksumError, DamageWarning, DataError, FormatError, SpecError
from penstock.formats.base.format import recognise
from penstock.formats.minari import metadata, writing
from penstock.formats.minari.format import MinariFormat
from tests.formats.minari.conftest import box, raw_episode, simple_episode, simple_spec, write_h5

FORMAT = MinariFormat()
STEPS = (3, 5, 4)


def dataset(tmp_path, change, name="odd-v0"):
    """Three episodes as h5py writes them, then `change`d one by one: `change(group, number)`."""
    path = write_h5(tmp_path / name, [raw_episode(n, e) for e, n in enumerate(STEPS)])
    with h5py.File(path / "data" / "main_data.hdf5", "r+") as file:
        for e in range(len(STEPS)):
            change(file[f"episode_{e}"], e)
    return path


def infos(path, mode):
    with FORMAT.open(path, infos=mode, cache="off") as source:
        assert [len(e) for e in source.episodes()] == list(STEPS)
        return {p for p in source.spec if p.startswith("infos/") and p not in ("infos/x", "infos/y")}


REFERENCE = h5py.ref_dtype
UNREADABLE = {
    "a compound": lambda g, n: g.create_dataset("infos/c", data=np.zeros(n, [("a", "f4"), ("b", "i4")])),
    "references": lambda g, n: g.create_dataset("infos/c", data=np.array([g.ref] * n, dtype=REFERENCE)),
    "opaque bytes": lambda g, n: g.create_dataset("infos/c", data=np.zeros(n, "V7")),
    "80-bit floats": lambda g, n: g.create_dataset("infos/c", data=np.zeros(n, "g")),
    "a filter": lambda g, n: g.create_dataset("infos/c", data=np.zeros(n, "i4"), scaleoffset=3, chunks=(2,)),
    "a link to nowhere": lambda g, n: g.require_group("infos").__setitem__("c", h5py.SoftLink("/nowhere")),
    "a link to another file": lambda g, n: g.require_group("infos").__setitem__("c", h5py.ExternalLink("a.h5", "/b")),
    "many strings": lambda g, n: g.create_dataset("infos/c", data=np.full((n, 300), b"x", "S1")),
}


@pytest.mark.parametrize("episodes", [(0, 1, 2), (1,)])
@pytest.mark.parametrize("kind", UNREADABLE)
def test_one_info_that_is_not_read_does_not_block_the_others(kind, episodes, tmp_path):
    path = dataset(tmp_path, lambda g, e: UNREADABLE[kind](g, STEPS[e] + 1) if e in episodes else None)
    for mode in ("strict", "union"):
        with pytest.raises(FormatError, match=r"open with infos='skip' to leave infos/c out") as caught:
            FORMAT.open(path, infos=mode, cache="off")
        assert caught.value.where == "infos/c"
    assert infos(path, "skip") == set()
    with penstock.open(path, infos="skip") as data:  # as asked for, without a warning
        assert [(each.where, each.reason) for each in data.source.account.left_out] == [("infos/c", "skipped")]
    assert [finding.level for finding in FORMAT.check(path)] == ["error"]


def test_what_is_not_read_is_in_the_cached_index(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.formats.minari.index_cache.WORTH", 1)
    path = dataset(tmp_path, lambda g, e: UNREADABLE["a compound"](g, STEPS[e] + 1))
    for _ in range(2):
        with FORMAT.open(path, infos="skip") as source:
            assert "infos/c" not in source.spec
        with pytest.raises(FormatError, match="a compound type"):
            FORMAT.open(path)
    assert len([p for p in (tmp_path / ".cache").rglob("*") if p.is_file()]) == 1


def test_a_column_of_the_standard_has_to_be_readable(tmp_path):
    def change(group, e):
        del group["rewards"]
        group.create_dataset("rewards", data=np.zeros(STEPS[e], "g"))

    with pytest.raises(FormatError, match="80 bits"):
        FORMAT.open(dataset(tmp_path, change), infos="skip", cache="off")


def test_infos_of_varying_shape_are_filled_up(tmp_path):
    values = [
        np.arange((n + 1) * 2 * k, dtype="f4").reshape(n + 1, 2, k) for n, k in zip(STEPS, (1, 3, 2), strict=True)
    ]
    path = dataset(tmp_path, lambda g, e: g.create_dataset("infos/c", data=values[e]))
    with pytest.raises(FormatError, match="infos='union' to fill up"):
        FORMAT.open(path, cache="off")
    with FORMAT.open(path, infos="union", cache="off") as source:
        assert source.spec["infos/c"].shape == (2, 3)
        for episode, value in zip(source.episodes(), values, strict=True):
            found = episode.columns["infos/c"]
            np.testing.assert_array_equal(found[:, :, : value.shape[2]], value)
            assert np.isnan(found[:, :, value.shape[2] :]).all()
            assert episode.columns["shapes/infos/c"].tolist() == [list(value.shape[1:])]
    assert infos(path, "skip") == set()
    with penstock.open(path, infos="skip") as data:  # as asked for, without a warning
        assert [(each.where, each.reason) for each in data.source.account.left_out] == [("infos/c", "skipped")]


@pytest.mark.parametrize("fixed", [False, True])
def test_lists_of_strings_are_columns_of_text(fixed, tmp_path):
    def change(group, e):
        rows = [[f"{e}{t}{i}"[: 3 if fixed else None] for i in "ab"] for t in range(STEPS[e] + 1)]
        dtype = "S3" if fixed else h5py.string_dtype()
        group.create_dataset("infos/c", data=np.array(rows, dtype if fixed else object), dtype=dtype)

    path = dataset(tmp_path, change)
    with FORMAT.open(path, cache="off") as source:
        for e, episode in enumerate(source.episodes()):
            for i, letter in enumerate("ab"):
                expected = [f"{e}{t}{letter}" for t in range(STEPS[e] + 1)]
                assert episode.columns[f"infos/c/{i}"].strings() == expected
        window = source.episode(1).columns["infos/c/1"][2:4]
        assert window.strings() == ["12b", "13b"]


def test_lists_of_several_lengths(tmp_path):
    def change(group, e):
        data = np.full((STEPS[e] + 1, e + 1), "x", object)
        group.create_dataset("infos/c", data=data, dtype=h5py.string_dtype())

    path = dataset(tmp_path, change)
    with FORMAT.open(path, infos="union", cache="off") as source:
        assert source.episode(0).columns["infos/c/2"].strings() == [""] * (STEPS[0] + 1)
        assert source.episode(0).columns["present/infos/c/2"].tolist() == [False]
        assert source.episode(2).columns["infos/c/2"].strings() == ["x"] * (STEPS[2] + 1)


def test_a_column_here_and_columns_below_it_there(tmp_path):
    path = dataset(
        tmp_path, lambda g, e: g.create_dataset("infos/a" if e else "infos/a/b", data=np.zeros(STEPS[e] + 1))
    )
    with pytest.raises(FormatError, match="infos/a in some episodes and infos/a/b in others"):
        FORMAT.open(path, infos="union", cache="off")
    assert infos(path, "skip") == set()


def test_soft_links_are_followed(tmp_path):
    def change(group, e):
        group["elsewhere"] = group["observations"]
        del group["observations"]
        group["observations"] = h5py.SoftLink(f"{group.name}/elsewhere")
        group.require_group("infos")["reward"] = h5py.SoftLink(f"{group.name}/rewards")
        group["infos"]["again"] = h5py.SoftLink(group.name)  # a circle

    path = dataset(tmp_path, change)
    with FORMAT.open(path, cache="off") as source:
        for e, episode in enumerate(source.episodes()):
            expected = raw_episode(STEPS[e], e)
            np.testing.assert_array_equal(episode.observations, expected["observations"])
            np.testing.assert_array_equal(episode.columns["infos/reward"], expected["rewards"])


def test_files_behind_a_user_block(tmp_path):
    path = dataset(tmp_path, lambda g, e: None)
    main = path / "data" / "main_data.hdf5"
    with h5py.File(main) as source, h5py.File(tmp_path / "copy.h5", "w", userblock_size=1024) as copy:
        for name in source:
            source.copy(name, copy)
    raw = bytearray((tmp_path / "copy.h5").read_bytes())
    raw[:5] = b"notes"
    main.write_bytes(raw)
    for place in (path, main):
        assert recognise(place)[0].name == "minari"
    infos(path, "strict")
    before = main.read_bytes()
    with pytest.raises(DataError, match="copy it without one"), FORMAT.append(path) as writer:
        writer.write(simple_episode(writer.spec, 2))
    assert main.read_bytes() == before


def test_a_group_without_data_is_left_out_and_its_name_taken_again(tmp_path):
    with FORMAT.create(tmp_path / "a-v0", spec := simple_spec()) as writer:
        for i in range(3):
            writer.write(simple_episode(spec, 4, i))
    with h5py.File(tmp_path / "a-v0" / "data" / "main_data.hdf5", "r+") as file:
        file.create_group("episode_3/infos")
    with pytest.warns(DamageWarning, match=r"left out 1 episode: episode_3 \(expected datasets, got a group"):
        source = penstock.open(tmp_path / "a-v0").source
    assert len(source) == 3
    assert [(f.name, f.where) for f in penstock.check(tmp_path / "a-v0").findings] == [("no-steps", "episode_3")]
    with pytest.warns(DamageWarning):
        writer = FORMAT.append(tmp_path / "a-v0")
    with writer:
        assert writer.write(simple_episode(spec, 5, 3)) == 3
    with FORMAT.open(tmp_path / "a-v0", cache="off") as source:
        assert np.diff(source.offsets).tolist() == [4, 4, 4, 5]
    with h5py.File(tmp_path / "a-v0" / "data" / "main_data.hdf5") as file:
        assert len(file["episode_3/rewards"]) == 5


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_spaces_without_values(data_format, tmp_path):
    spec = simple_spec(box(3, 0, 2))
    with FORMAT.create(tmp_path / "a-v0", spec, data_format=data_format) as writer:
        writer.write(simple_episode(spec, 3))
    with FORMAT.open(tmp_path / "a-v0", cache="off") as source:
        assert source.spec.observation_space == spec.observation_space
        assert source.episode(0).observations.shape == (4, 3, 0, 2)
    with FORMAT.append(tmp_path / "a-v0") as writer:
        writer.write(simple_episode(spec, 2))


def test_a_space_that_its_text_does_not_hold_is_refused_before_anything_is_made(tmp_path):
    empty = MultiDiscrete(np.zeros((3, 0, 2), np.int64))
    flag = Field(np.dtype("?"))
    fields = {
        "observations": Field(np.dtype("i8"), (3, 0, 2), "boundary"),
        "actions": Field(np.dtype("i8")),
        "rewards": Field(np.dtype("f8")),
        "terminations": flag,
        "truncations": flag,
    }
    with pytest.raises(SpecError, match="expected observation_space to be one that its text holds"):
        FORMAT.create(tmp_path / "a-v0", type(simple_spec())(fields, empty, Discrete(4)))
    assert list(tmp_path.iterdir()) == []


def strict(path):
    def refuse(word):
        raise AssertionError(word)

    return json.loads(path.read_text(), parse_constant=refuse)


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_metadata_is_json_that_every_parser_reads(data_format, tmp_path):
    given = {"ref_min_score": -np.inf, "nested": {"x": [np.inf, 1.5]}, "mean": np.nan, "text": "Infinity"}
    spec = simple_spec(box(3, low=-np.inf, high=np.inf))
    with FORMAT.create(tmp_path / "a-v0", spec, given, data_format=data_format) as writer:
        episode = simple_episode(spec, 3)
        episode.columns["rewards"][0] = np.inf
        writer.write(episode)
    found = [strict(path) for path in sorted((tmp_path / "a-v0").rglob("metadata.json"))]
    assert {k: found[-1][k] for k in given} == {**given, "mean": None}
    with FORMAT.open(tmp_path / "a-v0", cache="off") as source:
        assert source.metadata["ref_min_score"] == -np.inf
        assert source.spec.observation_space == spec.observation_space
        assert source.episode_metadata([0])[0]["rewards_max"] == np.inf


def test_infinity_as_python_writes_it_is_read(tmp_path):
    path = write_h5(tmp_path / "a-v0", [raw_episode(3)])
    file = path / "data" / "metadata.json"
    file.write_text(json.dumps({**metadata.read_json(file), "ref_min_score": -np.inf}))
    with FORMAT.open(path, cache="off") as source:
        assert source.metadata["ref_min_score"] == -np.inf


class Ticks:
    """A clock that moves on with each episode."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_many_small_episodes_are_saved_as_they_come(tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "EPISODES", 10)
    saved = []

    def episodes(folder):
        for i in range(25):
            saved.append(metadata.read_json(folder / "data" / "metadata.json")["total_episodes"])
            yield simple_episode(spec, 1, i)

    with FORMAT.create(tmp_path / "a-v0", spec := simple_spec()) as writer:
        assert writer.write_all(episodes(tmp_path / "a-v0")) == list(range(25))
    assert saved == [0] * 10 + [10] * 10 + [20] * 5


def test_slow_episodes_are_saved_by_time():
    clock = Ticks()

    def episodes():
        for i, seconds in enumerate((0.5, 0.5, 1.5, 0.5, 9.0, 0.0)):
            clock.now += seconds
            yield simple_episode(spec, 1, i)

    spec = simple_spec()
    assert [[e.metadata["seed"] for e in batch] for batch in writing.batches(episodes(), clock)] == [
        [0, 1, 2],
        [3, 4],
        [5],
    ]


def test_large_episodes_are_saved_by_their_bytes(monkeypatch):
    monkeypatch.setattr(writing, "BATCH", 250)
    spec = simple_spec()
    batches = list(writing.batches((simple_episode(spec, 3, i) for i in range(5)), Ticks()))
    assert writing.bytes_of(simple_episode(spec, 3)) == 102
    assert [len(batch) for batch in batches] == [3, 2]


@pytest.mark.parametrize("layout", ["0.5", "0.4"])
def test_checksums_find_a_flipped_bit(layout, tmp_path):
    path = tmp_path / "a-v0"
    with FORMAT.create(path, spec := simple_spec(), layout=layout, checksums=True) as writer:
        writer.write(simple_episode(spec, 50))
    with FORMAT.append(path) as writer:  # goes on as it was begun
        writer.write(simple_episode(spec, 60, 1))
    main = path / "data" / "main_data.hdf5"
    with h5py.File(main) as file:
        assert all(file[f"episode_{e}/{name}"].fletcher32 for e in range(2) for name in ("observations", "rewards"))
        np.testing.assert_array_equal(file["episode_1/observations"], simple_episode(spec, 60, 1).observations)
        place = file["episode_1/observations"].id.get_chunk_info(0).byte_offset
    with FORMAT.open(path, cache="off") as source:
        np.testing.assert_array_equal(source.episode(1).observations, simple_episode(spec, 60, 1).observations)
    assert not any(f.level == "error" for f in penstock.check(path, deep=True, cache="off").findings)
    raw = bytearray(main.read_bytes())
    raw[place + 77] ^= 1
    main.write_bytes(raw)
    with FORMAT.open(path, cache="off") as source, pytest.raises(ChecksumError, match="fletcher32"):
        _ = source.episode(1).observations
    found = [f for f in penstock.check(path, deep=True, cache="off").findings if f.level == "error"]
    assert [(f.name, f.episodes) for f in found] == [("checksum", (1,))]
    assert "observations" in found[0].message
    with h5py.File(main) as file, pytest.raises(OSError, match="filter"):
        file["episode_1/observations"][:]


def test_checksums_are_a_matter_of_hdf5(tmp_path):
    with pytest.raises(TypeError, match="only HDF5 has them"):
        FORMAT.create(tmp_path / "a-v0", simple_spec(), data_format="arrow", checksums=True)


def test_types_of_arrow_that_are_not_read(tmp_path):
    with FORMAT.create(tmp_path / "a-v0", spec := simple_spec(), data_format="arrow") as writer:
        writer.write(simple_episode(spec, 3))
        writer.write(simple_episode(spec, 3))
    part = tmp_path / "a-v0" / "data" / "1" / "part-0.arrow"
    with pa.memory_map(str(part)) as file:
        table = pa.ipc.open_file(file).read_all()
    table = table.append_column("when", pa.array([0] * 4, pa.timestamp("s")))
    part.unlink()
    with pa.OSFile(str(part), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(FormatError, match=r"timestamp.*infos='skip' to leave when out"):
        FORMAT.open(tmp_path / "a-v0", cache="off")
    with FORMAT.open(tmp_path / "a-v0", infos="skip", cache="off") as source, warnings.catch_warnings():
        assert [len(e) for e in source.episodes()] == [3, 3]


def test_shapes_that_vary_in_arrow(tmp_path):
    for name, width in (("a-v0", 1), ("b-v0", 3)):
        spec = simple_spec(extras={"infos/c": Field(np.dtype("i4"), (width,), "boundary")})
        with FORMAT.create(tmp_path / name, spec, data_format="arrow") as writer:
            writer.write(Episode(spec, {**simple_episode(spec, 3).columns, "infos/c": np.ones((4, width), "i4")}))
    (tmp_path / "b-v0" / "data" / "0").rename(tmp_path / "a-v0" / "data" / "1")
    with FORMAT.open(tmp_path / "a-v0", infos="union", cache="off") as source:
        first, second = (episode.columns["infos/c"] for episode in source.episodes())
        assert (first.tolist(), second.tolist()) == ([[1, 0, 0]] * 4, [[1, 1, 1]] * 4)
        assert source.episode(0).columns["shapes/infos/c"].tolist() == [[1]]
