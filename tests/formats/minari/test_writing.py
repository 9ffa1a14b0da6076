"""What is written, as h5py and PyArrow see it; writers at once, kills, and datasets that somebody else left broken."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spaces import Box, Text, Tuple
from penstock.core.spec import Field, Spec
from penstock.errors import DamageWarning, DataError, FormatError, RemoteError, SpecError
from penstock.formats.minari import FORMAT, arrow_table, metadata, recover
from tests.forking import SERVER, forked
from tests.formats.minari.conftest import box, raw_episode, simple_episode, simple_spec, write_h5

BACK_ENDS = ("hdf5", "arrow", "parquet")


def _written(tmp_path, spec, episodes, entries=None, **options):
    folder = tmp_path / "x-v0"
    with FORMAT.create(folder, spec, entries, **options) as writer:
        writer.write_all(episodes)
    return folder


def test_an_hdf5_file_has_the_layout_of_the_standard(tmp_path):
    spec = simple_spec(extras={"infos/a/b": Field(np.dtype("f4"), (2,), "boundary")})
    episode = simple_episode(spec, 5, 7, options={"low": 0.5, "deep": {"x": 1}}, note="né")
    folder = _written(tmp_path, spec, [episode, simple_episode(spec, 2)], {"author": {"me"}})
    with h5py.File(folder / "data" / "main_data.hdf5") as file:
        assert sorted(file) == ["episode_0", "episode_1"]
        assert dict(file.attrs) == {}
        group = file["episode_0"]
        for path in spec:
            assert group[path].dtype == spec[path].dtype
            assert group[path].maxshape[0] is None
            np.testing.assert_array_equal(group[path][()], episode.columns[path])
        attrs = dict(group.attrs)
        assert (attrs["id"], attrs["total_steps"], attrs["seed"], attrs["note"]) == (0, 5, 7, "né")
        assert (attrs["options/low"], attrs["options/deep/x"]) == (0.5, 1)
        assert attrs["rewards_sum"] == episode.rewards.sum()
        assert attrs["rewards_std"] == pytest.approx(episode.rewards.std())
    stored = json.loads((folder / "data" / "metadata.json").read_text())
    assert (stored["total_episodes"], stored["total_steps"], stored["data_format"]) == (2, 7, "hdf5")
    assert (stored["author"], stored["dataset_id"], stored["jpeg_encoding"]) == (["me"], "x-v0", False)
    assert json.loads(stored["observation_space"])["type"] == "Box"
    assert stored["dataset_size"] == metadata.size_of(folder / "data")


def test_a_dataset_without_infos_has_an_empty_group_for_them(tmp_path):
    spec = simple_spec()
    folder = _written(tmp_path, spec, [simple_episode(spec, 1)])
    with h5py.File(folder / "data" / "main_data.hdf5") as file:
        assert isinstance(file["episode_0/infos"], h5py.Group)


def test_tuples_and_text_in_hdf5(tmp_path):
    space = Tuple((box(1), Text(5, charset="né")))
    fields = {"observations/0": Field(np.dtype("f4"), (1,), "boundary")}
    fields["observations/1"] = Field(np.dtype("u1"), (), "boundary", "text")
    rest = {k: v for k, v in simple_spec().fields.items() if k != "observations"}
    spec = Spec({**fields, **rest}, space, simple_spec().action_space)
    base = simple_episode(simple_spec(), 1).columns
    columns = {path: base[path] for path in rest}
    columns |= {"observations/0": np.ones((2, 1), "f4"), "observations/1": Ragged.from_strings(["é", ""])}
    folder = _written(tmp_path, spec, [Episode(spec, columns)])
    with h5py.File(folder / "data" / "main_data.hdf5") as file:
        assert sorted(file["episode_0/observations"]) == ["_index_0", "_index_1"]
        assert file["episode_0/observations/_index_1"].asstr()[()].tolist() == ["é", ""]


@pytest.mark.parametrize("shape", [(84, 84, 4), (84, 84, 1), (84, 84, 2), (84, 84, 6), (84, 84, 3), (84, 84)])
@pytest.mark.parametrize("back", BACK_ENDS)
def test_images_are_lossless(tmp_path, shape, back):
    space = box(*shape, dtype="u1", low=0, high=255)
    spec = simple_spec(space)
    episode = simple_episode(spec, 3)
    noise = np.random.default_rng(0).integers(0, 256, (4, *shape), dtype=np.uint8)
    episode = Episode(spec, {**episode.columns, "observations": noise})
    folder = _written(tmp_path, spec, [episode], data_format=back)
    with FORMAT.open(folder) as source:
        np.testing.assert_array_equal(source.episode(0).observations, noise)
        assert source.metadata["jpeg_encoding"] is False
    if back == "hdf5":
        with h5py.File(folder / "data" / "main_data.hdf5") as file:
            np.testing.assert_array_equal(file["episode_0/observations"][()], noise)


@pytest.mark.parametrize("back", BACK_ENDS)
def test_jpeg_is_for_those_who_ask(tmp_path, back):
    spec = simple_spec(box(40, 36, 3, dtype="u1", low=0, high=255))
    base = simple_episode(spec, 3)
    ramp = np.broadcast_to(np.arange(36, dtype=np.uint8)[:, None] * 4, (4, 40, 36, 3)).copy()
    episode = Episode(spec, {**base.columns, "observations": ramp})
    folder = _written(tmp_path, spec, [episode], data_format=back, images="jpeg")
    with FORMAT.append(folder) as writer:
        writer.write(episode)
    with FORMAT.open(folder) as source:
        assert source.frames == {"observations"}
        for found in source.episodes():
            assert np.abs(found.observations.astype(int) - ramp).max() < 12
    with pytest.raises(SpecError, match="3 channels"):
        FORMAT.create(tmp_path / "y-v0", simple_spec(box(40, 40, 4, dtype="u1", low=0, high=255)), {}, images="jpeg")


def test_a_jpeg_that_lies_about_its_size_is_not_decoded(tmp_path):
    spec = simple_spec(box(40, 36, 3, dtype="u1", low=0, high=255))
    folder = _written(tmp_path, spec, [simple_episode(spec, 1)], images="jpeg")
    path = folder / "data" / "main_data.hdf5"
    raw = bytearray(path.read_bytes())
    at = raw.index(b"\xff\xc0")
    raw[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    path.write_bytes(raw)
    with FORMAT.open(folder) as source, pytest.raises(FormatError, match=r"image|pixels"):
        source.episode(0)


def test_the_older_layout_has_attributes_on_root_and_rewards(tmp_path):
    spec = simple_spec(extras={"state/q": Field(np.dtype("f8"), (2,), "boundary")})
    episodes = [simple_episode(spec, 3, 5), Episode(spec, simple_episode(spec, 2).columns)]
    folder = _written(tmp_path, spec, episodes, {"author": ["a", "b"], "env_spec": "{}"}, layout="0.4")
    assert not (folder / "data" / "metadata.json").exists()
    with h5py.File(folder / "data" / "main_data.hdf5") as file:
        attrs = dict(file.attrs)
        assert (attrs["total_episodes"], attrs["total_steps"], attrs["minari_version"]) == (2, 5, "~=0.4")
        assert (attrs["author"], attrs["dataset_id"], attrs["env_spec"]) == ("a; b", "x-v0", "{}")
        assert attrs["total_episodes"].dtype == np.int64
        assert [file[f"episode_{e}"].attrs["seed"] for e in range(2)] == [5, "None"]
        rewards = file["episode_0/rewards"]
        assert rewards.attrs["max"] == rewards[()].max()
        assert sorted(rewards.attrs) == ["max", "mean", "min", "std", "sum"]
        assert file["episode_0/state/q"].shape == (4, 2)
    with pytest.raises(TypeError, match=r"layout='0\.4'"):
        FORMAT.create(tmp_path / "y-v0", spec, {}, layout="0.4", data_format="arrow")


@pytest.mark.parametrize("back", ["arrow", "parquet"])
def test_arrow_files_have_the_layout_of_the_standard(tmp_path, back):
    fields = {"infos/a": Field(np.dtype("f4"), (2, 3), "boundary"), "infos/b": Field(np.dtype("i8"), (), "boundary")}
    spec = simple_spec(extras=fields)
    episode = simple_episode(spec, 5, 7, options={"low": 0.5})
    folder = _written(tmp_path, spec, [episode], data_format=back)
    path = folder / "data" / "0" / f"part-0.{back}"
    table = pa.ipc.open_file(str(path)).read_all() if back == "arrow" else pq.read_table(path)
    assert table.column_names == ["observations", "actions", "rewards", "terminations", "truncations", "infos"]
    assert table.num_rows == 6
    assert table.schema.field("observations").type == pa.list_(pa.float32(), 3)
    assert table.schema.field("actions").type == pa.int64()
    assert table.schema.field("infos").type[0].metadata[b"shape"] == b"2,3"
    found = np.array(table["observations"].combine_chunks().flatten()).reshape(6, 3)
    np.testing.assert_array_equal(found, episode.observations)
    assert table["rewards"].to_pylist()[5] == 0
    entries = json.loads((folder / "data" / "0" / "metadata.json").read_text())
    assert (entries["id"], entries["total_steps"], entries["seed"]) == (0, 5, 7)
    assert entries["options"] == {"low": 0.5}
    assert sorted(os.listdir(folder / "data")) == ["0", "metadata.json"]


@pytest.mark.parametrize("back", ["arrow", "parquet"])
def test_long_arrow_episodes_are_whole(tmp_path, back):
    spec = simple_spec()
    episodes = [simple_episode(spec, 40_000, 1), simple_episode(spec, 3, 2)]
    with FORMAT.open(_written(tmp_path, spec, episodes, data_format=back)) as source:
        for found, expected in zip(source.episodes(), episodes, strict=True):
            np.testing.assert_array_equal(found.observations, expected.observations)
            np.testing.assert_array_equal(found.rewards, expected.rewards)


def test_an_arrow_file_in_many_batches_is_one_episode(tmp_path):
    spec = simple_spec()
    folder = _written(tmp_path, spec, [simple_episode(spec, 50)], data_format="arrow")
    path = folder / "data" / "0" / "part-0.arrow"
    table = pa.ipc.open_file(str(path)).read_all()
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table, max_chunksize=7)
    with FORMAT.open(folder) as source:
        np.testing.assert_array_equal(source.episode(0).observations, simple_episode(spec, 50).observations)


@pytest.mark.parametrize("back", BACK_ENDS)
def test_a_copy_keeps_seeds_options_and_statistics(tmp_path, back):
    spec = simple_spec()
    entries = {"options": {"deep": {"x": [1, 2]}}, "rewards_sum": 123.0, "skill": "expert"}
    folder = _written(tmp_path, spec, [simple_episode(spec, 3, 2**63 + 1, **entries)], {"ref_max_score": 3.5})
    with FORMAT.open(folder) as source:
        options = {"data_format": back}
        with FORMAT.create(tmp_path / "y-v0", source.spec, source.metadata, **options) as writer:
            writer.write_all(source.episodes())
            writer.write_all(source.episodes())
    with FORMAT.open(tmp_path / "y-v0") as copy:
        assert (len(copy), copy.metadata["ref_max_score"], copy.metadata["data_format"]) == (2, 3.5, back)
        for found in copy.episode_metadata([0, 1]):
            assert (found["seed"], found["rewards_sum"], found["skill"]) == (2**63 + 1, 123.0, "expert")
            assert list(found["options"]["deep"]["x"]) == [1, 2]


@pytest.mark.parametrize("back", BACK_ENDS)
def test_metadata_of_episodes_is_updated(tmp_path, back):
    spec = simple_spec()
    folder = _written(tmp_path, spec, [simple_episode(spec, 3, e) for e in range(3)], data_format=back)
    with FORMAT.append(folder) as writer:
        writer.update_episodes({1: {"label": "good", "id": 77}, 2: {"label": "bad"}})
        with pytest.raises(DataError):
            writer.update_episodes({9: {"label": "none"}})
        with pytest.raises(DataError, match="data_format"):
            writer.update_metadata({"data_format": "other"})
    with FORMAT.open(folder) as source:
        found = source.episode_metadata([0, 1, 2])
        assert [entry.get("label") for entry in found] == [None, "good", "bad"]
        assert [(entry["id"], entry["seed"]) for entry in found] == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("back", BACK_ENDS)
def test_values_that_cannot_be_stored_change_nothing(tmp_path, back):
    spec = simple_spec()
    good = simple_episode(spec, 3)
    with FORMAT.create(tmp_path / "x-v0", spec, {}, data_format=back) as writer:
        writer.write(good)
        for bad in (2**64, "seven", -(2**63) - 1):
            with pytest.raises(DataError, match="seed"):
                writer.write(Episode(spec, good.columns, metadata={"seed": bad}))
        with pytest.raises(DataError):
            writer.write(Episode(spec, good.columns, metadata={"thing": object()}))
        assert writer.write(good) == 1
    with FORMAT.open(tmp_path / "x-v0") as source:
        assert len(source) == 2


def test_columns_that_the_standard_has_no_place_for(tmp_path):
    whole = simple_spec()
    for name in ("observations", "actions", "rewards"):
        fields = {path: field for path, field in whole.fields.items() if path != name}
        with pytest.raises(SpecError, match=name):
            FORMAT.create(tmp_path / "x-v0", Spec(fields, whole.observation_space, whole.action_space), {})
    wrong = {**whole.fields, "observations": Field(np.dtype("f4"), (3,), "step")}
    with pytest.raises(SpecError, match="aligned"):
        FORMAT.create(tmp_path / "x-v0", Spec(wrong), {})
    ragged = {**whole.fields, "infos/r": Field(np.dtype("i4"), (), "step", "ragged")}
    with pytest.raises(SpecError, match="ragged"):
        FORMAT.create(tmp_path / "x-v0", Spec(ragged), {})
    assert list(tmp_path.iterdir()) == []


def test_spaces_that_are_not_known_are_as_wide_as_the_dtype(tmp_path):
    spec = simple_spec()
    FORMAT.create(tmp_path / "x-v0", Spec(spec.fields), {}).close()
    with FORMAT.open(tmp_path / "x-v0") as source:
        assert isinstance(source.spec.observation_space, Box)
        assert np.isinf(source.spec.observation_space.high).all()
        assert source.spec.action_space.high == np.iinfo(np.int64).max
        assert source.spec.fields == spec.fields


def test_a_dataset_below_the_root_has_its_id_and_namespaces(tmp_path):
    spec = simple_spec()
    FORMAT.create(tmp_path / "team" / "door" / "human-v3", spec, {}).close()
    for namespace in (tmp_path / "team", tmp_path / "team" / "door"):
        assert (namespace / "namespace_metadata.json").is_file()
    assert FORMAT.locate("team/door/human-v3") == tmp_path / "team" / "door" / "human-v3"
    metadata = json.loads((tmp_path / "team" / "door" / "human-v3" / "data" / "metadata.json").read_text("utf-8"))
    assert metadata["dataset_id"] == "team/door/human-v3"
    for name in ("../x-v0", "", "team/door/human", "team/door/human-v4", "team"):
        assert FORMAT.locate(name) is None


def test_what_fails_to_be_created_leaves_nothing(tmp_path):
    with pytest.raises(DataError):
        FORMAT.create(tmp_path / "x-v0", simple_spec(), {"bad": object()})
    assert not [path for path in tmp_path.iterdir() if "x-v0" in path.name]


# ------------------------------------------------------------------------------------------------- several at once


def _append(path, seeds, ready, go):
    spec = simple_spec()
    writer = FORMAT.append(path)
    ready.put(1)
    go.wait()
    for seed in seeds:
        writer.write(simple_episode(spec, 1 + seed % 5, seed))


@pytest.mark.parametrize("back", BACK_ENDS)
def test_two_writers_and_a_reader_at_once(tmp_path, back):
    path = tmp_path / "x-v0"
    FORMAT.create(path, simple_spec(), {}, data_format=back).close()
    ready, go = SERVER.Queue(), SERVER.Event()
    children = [forked(_append, path, range(k, 30, 2), ready, go) for k in range(2)]
    for _ in children:
        ready.get()
    go.set()
    seen = 0
    with FORMAT.open(path) as source:
        while any(child.is_alive() for child in children):
            source.refresh()
            assert len(source) >= seen
            seen = len(source)
            for e in range(max(0, seen - 2), seen):
                found = source.episode(e)
                expected = simple_episode(simple_spec(), 1 + found.metadata["seed"] % 5, found.metadata["seed"])
                np.testing.assert_array_equal(found.observations, expected.observations)
            with FORMAT.open(path) as other:
                assert len(other) >= seen
    for child in children:
        child.join()
        assert child.exitcode == 0
    with FORMAT.open(path) as source:
        assert sorted(entry["seed"] for entry in source.episode_metadata(range(30))) == list(range(30))
        stored = metadata.read_json(path / "data" / "metadata.json")
        assert (stored["total_episodes"], stored["total_steps"]) == (30, source.steps)
        assert [f for f in FORMAT.check(path) if f.level == "error"] == []


def _append_until_killed(path, written):
    writer = FORMAT.append(path)
    for seed in itertools.count():
        written.send(writer.write(_nth(seed)))


@pytest.mark.parametrize("back", BACK_ENDS)
def test_a_kill_during_an_append(tmp_path, back):
    path = tmp_path / "x-v0"
    FORMAT.create(path, simple_spec(), {}, data_format=back).close()
    for kill in range(4):
        numbers, written = SERVER.Pipe(duplex=False)
        child = forked(_append_until_killed, path, written)
        written.close()
        told = [numbers.recv() for _ in range(1 + 3 * kill)]
        child.kill()
        with contextlib.suppress(EOFError), numbers:
            while True:
                told.append(numbers.recv())
        child.join()
        with FORMAT.open(path) as source:
            assert len(source) in (told[-1] + 1, told[-1] + 2)
            for e in range(told[0], told[-1] + 1):
                np.testing.assert_array_equal(source.episode(e).rewards, _nth(e - told[0]).rewards)
    with FORMAT.open(path) as source, FORMAT.append(path) as writer:
        assert writer.write(_nth(0)) == len(source)
    assert not [f for f in FORMAT.check(path) if f.level == "error"]


def _nth(seed):
    return simple_episode(simple_spec(), 1 + seed % 7, seed)


# --------------------------------------------------------------------------------- what others and crashes leave


@pytest.mark.parametrize("back", BACK_ENDS)
@pytest.mark.parametrize("content", [b"", b"\0\0\0"])
def test_empty_metadata_can_be_read_over_and_written_anew(tmp_path, back, content):
    spec = simple_spec()
    folder = _written(tmp_path, spec, [simple_episode(spec, 3)], data_format=back)
    (folder / "data" / "metadata.json").write_bytes(content)
    with pytest.warns(DamageWarning, match="left out 1 file: metadata.json .*rebuild_metadata"):
        source = penstock.open(folder).source
    with source:
        assert (len(source), source.spec.observation_space) == (1, None)
    with pytest.warns(UserWarning, match="rebuild_metadata"), pytest.raises(FormatError, match="rebuild_metadata"):
        FORMAT.append(folder)
    written = recover.rebuild_metadata(folder, spec.observation_space, spec.action_space, {"author": ["me"]})
    assert (written["total_steps"], written["data_format"], written["dataset_id"]) == (3, back, "x-v0")
    with FORMAT.append(folder) as writer:
        writer.write(simple_episode(spec, 2))
    with FORMAT.open(folder) as source:
        assert (len(source), source.spec, source.metadata["author"]) == (2, spec, ["me"])


@pytest.mark.parametrize("back", BACK_ENDS)
def test_stale_totals_are_put_right_by_the_next_writer(tmp_path, back):
    spec = simple_spec()
    folder = _written(tmp_path, spec, [simple_episode(spec, 3), simple_episode(spec, 4)], data_format=back)
    path = folder / "data" / "metadata.json"
    for wrong in ({"total_episodes": 1, "total_steps": 3}, {"total_episodes": 9}, {"total_episodes": "many"}):
        metadata.write_json(path, {**metadata.read_json(path), **wrong})
        with FORMAT.append(folder) as writer:
            writer.write(simple_episode(spec, 1))
        with FORMAT.open(folder) as source:
            stored = metadata.read_json(path)
            assert (stored["total_episodes"], stored["total_steps"]) == (len(source), source.steps)


@pytest.mark.parametrize("back", ["arrow", "parquet"])
def test_a_last_episode_that_is_not_whole_is_left_out(tmp_path, back):
    spec = simple_spec()
    folder = _written(tmp_path, spec, [simple_episode(spec, 3), simple_episode(spec, 4)], data_format=back)
    path = folder / "data" / "1" / f"part-0.{back}"
    path.write_bytes(path.read_bytes()[:200])
    for _ in range(2):  # also from the cached index
        with pytest.warns(DamageWarning, match=r"left out 1 file: 1/part-0.*not whole"):
            assert len(penstock.open(folder)) == 1
    with pytest.warns(UserWarning, match="not whole"), FORMAT.append(folder) as writer:
        assert writer.write(simple_episode(spec, 5)) == 1
    with FORMAT.open(folder) as source:
        assert [len(episode) for episode in source.episodes()] == [3, 5]
    (folder / "data" / "0" / f"part-0.{back}").write_bytes(b"")
    with pytest.raises(FormatError, match="part-0"):
        FORMAT.open(folder)


@pytest.mark.parametrize("back", ["arrow", "parquet"])
@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), RemoteError("it does not answer")])
def test_a_last_episode_that_cannot_be_read_now_is_an_error(tmp_path, monkeypatch, back, error):
    """Left out, it would be overwritten by the next writer."""
    spec = simple_spec()
    folder = _written(tmp_path, spec, [simple_episode(spec, 3), simple_episode(spec, 4)], data_format=back)
    reader = "map_file" if back == "arrow" else "path_or_file"
    real = getattr(arrow_table, reader)

    def unreadable(path):
        if path.parent.name == "1":
            raise error
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(arrow_table, reader, unreadable)
        for attempt in (FORMAT.open, FORMAT.append):
            with pytest.raises(type(error), match=str(error)[-12:]):
                attempt(folder)
    with FORMAT.open(folder) as source:
        assert [len(episode) for episode in source.episodes()] == [3, 4]


def test_metadata_that_names_a_command_runs_nothing(tmp_path):
    target = tmp_path / "ran"
    spec = json.dumps({"id": "X-v0", "entry_point": "os:system", "kwargs": {"command": f"touch {target}"}})
    entries = {"env_spec": spec, "observation_space": None, "action_space": None}
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)], (None, None), entries)
    assert FORMAT.recognises(folder)
    with FORMAT.open(folder) as source:
        assert source.metadata["env_spec"] == spec
        assert source.spec.observation_space is None
        source.episode(0)
    list(FORMAT.check(folder))
    assert not target.exists()


@pytest.mark.parametrize(
    "space",
    [
        '{"type": "Box", "dtype": "float32", "shape": [1099511627776], "low": [0], "high": [1]}',
        '{"type": "Box", "dtype": "O", "shape": [1], "low": [0], "high": [1]}',
        '{"type": "Box"}',
        '{"type": "Tuple", "subspaces": [' * 900 + "]}" * 900,
        '{"type": "Tuple", "subspaces": ' * 2000,
        "[1, 2]",
        "7",
    ],
)
def test_hostile_spaces_are_format_errors(tmp_path, space):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)], entries={"observation_space": space})
    with pytest.raises(FormatError, match="observation_space"):
        FORMAT.open(folder)


def test_a_space_of_ones_own_is_left_to_who_knows_it(tmp_path):
    space = '{"type": "Dict", "subspaces": {"mission": {"type": "MissionSpace"}}}'
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)], entries={"observation_space": space})
    with FORMAT.open(folder) as source:
        assert (source.spec.observation_space, source.metadata["observation_space"]) == (None, space)


@pytest.mark.parametrize("text", ["[]", "{", '"x"', "[" * 100_000])
def test_hostile_metadata_is_a_format_error(tmp_path, text):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)])
    (folder / "data" / "metadata.json").write_text(text)
    with pytest.raises(FormatError, match="a JSON object"):
        FORMAT.open(folder)
    assert [f.level for f in FORMAT.check(folder)] == ["error"]


def test_places_without_a_dataset(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    (tmp_path / "cut.hdf5").write_bytes((tmp_path / "other.h5").read_bytes()[:50])
    for name in ("notes.txt", "empty", "other.h5", "cut.hdf5", "missing"):
        assert not FORMAT.recognises(tmp_path / name)
    for name in ("notes.txt", "empty", "cut.hdf5"):
        with pytest.raises(FormatError):
            FORMAT.open(tmp_path / name)


def test_short_episodes_take_little_room(tmp_path):
    spec = simple_spec()
    episodes = [simple_episode(spec, 20, e) for e in range(200)]
    folder = _written(tmp_path, spec, episodes)
    raw = sum(array.nbytes for episode in episodes for array in episode.columns.values())
    assert ((folder / "data" / "main_data.hdf5").stat().st_size - raw) / 200 < 7000
