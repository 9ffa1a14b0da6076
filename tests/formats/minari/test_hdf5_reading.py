"""Reading what h5py writes, in all the ways it can store an array."""

from __future__ import annotations

import multiprocessing
import threading

import h5py
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock
from penstock.core.selection import Selection
from penstock.errors import FormatError, StateError, UnsafeDataError
from penstock.formats.minari import FORMAT, hdf5_source, index_cache
from penstock.formats.minari.hdf5_source import Hdf5Source
from tests.formats.minari.conftest import NESTED, box, raw_episode, simple_episode, simple_spec, write_h5

STORED = [
    {},
    {"chunks": True, "maxshape": None},
    {"chunks": True, "compression": "gzip"},
    {"chunks": True, "compression": "gzip", "shuffle": True, "fletcher32": True},
    {"chunks": True, "compression": "lzf"},
]


def _equal(source, episodes):
    for found, expected in zip(source.episodes(), episodes, strict=True):
        for path, values in expected.items():
            np.testing.assert_array_equal(found.columns[path], values, err_msg=path)
            assert found.columns[path].dtype == np.asarray(values).dtype.newbyteorder("=")


@pytest.mark.parametrize("options", STORED, ids=str)
def test_every_way_to_store_an_array(tmp_path, options):
    episodes = [raw_episode(steps, seed) for seed, steps in enumerate((5, 1, 300))]
    folder = write_h5(tmp_path / "x-v0", episodes, **options)
    with FORMAT.open(folder) as source:
        _equal(source, episodes)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_chunks_that_cut_rows(tmp_path, compression):
    folder = tmp_path / "x-v0"
    episodes = [raw_episode(steps, seed, (7, 6, 5), "u1") for seed, steps in enumerate((9, 4, 1))]
    write_h5(folder, [])
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        for e, columns in enumerate(episodes):
            group = file.create_group(f"episode_{e}")
            for path, values in columns.items():
                chunks = (2, 3, 4, 2) if path == "observations" else True
                group.create_dataset(path, data=values, chunks=chunks, compression=compression)
    _rewrite_space(folder, box(7, 6, 5, dtype="u1", low=0, high=255))
    with FORMAT.open(folder) as source:
        _equal(source, episodes)
        rng = np.random.default_rng(0)
        whole = np.concatenate([columns["observations"] for columns in episodes])
        start = rng.integers(0, len(whole) - 3, 40)
        length = rng.integers(0, 4, 40)
        selection = Selection(start * 0, start, length, np.arange(40) * 3, (40, 3))
        out = source.read(["observations"], selection)["observations"]
        for i in range(40):
            np.testing.assert_array_equal(out[i, : length[i]], whole[start[i] : start[i] + length[i]])
            assert not out[i, length[i] :].any()


def _rewrite_space(folder, space):
    path = folder / "data" / "metadata.json"
    entries = hdf5_source.metadata.read_json(path)
    hdf5_source.metadata.write_json(path, {**entries, "observation_space": hdf5_source.metadata.dumps(space.to_json())})


def test_chunks_that_were_never_written_are_zero(tmp_path):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(40)])
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        group = file["episode_0"]
        del group["rewards"]
        sparse = group.create_dataset("rewards", (40,), "f8", chunks=(4,))
        sparse[8:12] = 7
    with FORMAT.open(folder) as source:
        expected = np.zeros(40)
        expected[8:12] = 7
        np.testing.assert_array_equal(source.episode(0).rewards, expected)


def test_a_fill_value_that_is_not_zero_must_be_written(tmp_path):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(40)])
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0/rewards"]
        file["episode_0"].create_dataset("rewards", (40,), "f8", chunks=(4,), fillvalue=3.0)
    with pytest.raises(FormatError, match="fill value is not zero"):
        FORMAT.open(folder)


def test_columns_of_one_are_flattened_and_big_endian_becomes_native(tmp_path):
    episode = raw_episode(6)
    stored = {**episode, "rewards": episode["rewards"].astype(">f8")[:, None]}
    stored["terminations"] = episode["terminations"][:, None]
    with FORMAT.open(write_h5(tmp_path / "x-v0", [stored])) as source:
        _equal(source, [episode])


def test_rewards_may_change_their_dtype_between_episodes(tmp_path):
    episodes = [raw_episode(4, seed) for seed in range(3)]
    episodes[1]["rewards"] = np.arange(4)
    episodes[2]["rewards"] = np.arange(4, dtype="f4")
    with FORMAT.open(write_h5(tmp_path / "x-v0", episodes)) as source:
        assert source.spec["rewards"].dtype == np.float64
        whole = np.concatenate([columns["rewards"] for columns in episodes])
        one = np.ones(1, np.int64)
        rows = source.read(["rewards"], Selection(one * 0, one * 2, one * 9, one * 0, (1, 9)))["rewards"]
        np.testing.assert_array_equal(rows[0], whole[2:11])


def test_compact_and_scalar_datasets(tmp_path):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3), raw_episode(2)])
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        for e, steps in enumerate((3, 2)):
            group = file[f"episode_{e}"]
            del group["rewards"]
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_layout(h5py.h5d.COMPACT)
            space = h5py.h5s.create_simple((steps,))
            dataset = h5py.h5d.create(group.id, b"rewards", h5py.h5t.IEEE_F64LE, space, plist)
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(steps, dtype="f8") + e)
            group.create_dataset("infos/level", data=4 + e)
    with FORMAT.open(folder) as source:
        assert [episode.rewards.tolist() for episode in source.episodes()] == [[0, 1, 2], [1, 2]]
        assert source.spec["infos/level"].align == "episode"
        assert [episode.infos["level"].tolist() for episode in source.episodes()] == [[4], [5]]


def test_episodes_are_in_the_order_of_their_numbers(tmp_path):
    episodes = [raw_episode(1 + e % 3, e) for e in range(12)]
    with FORMAT.open(write_h5(tmp_path / "x-v0", episodes)) as source:
        _equal(source, episodes)


def test_nested_spaces_and_text(tmp_path):
    episode = raw_episode(2)
    del episode["observations"], episode["actions"]
    episode |= {
        "observations/arm/_index_0": np.ones((3, 2), "f4"),
        "observations/arm/_index_1": np.arange(3),
        "observations/text": ["né", "", "日本"],
        "actions/_index_0": np.arange(2),
        "actions/_index_1": np.ones((2, 1), "f4"),
    }
    with FORMAT.open(write_h5(tmp_path / "x-v0", [episode], NESTED)) as source:
        found = source.episode(0)
        assert found.observations["text"].strings() == ["né", "", "日本"]
        assert found.observations["arm"][1].tolist() == [0, 1, 2]
        assert found.actions[0].tolist() == [0, 1]
        one = np.ones(1, np.int64)
        text = source.read(["observations/text"], Selection(one * 0, one, one * 2, one, (1, 4)))["observations/text"]
        assert text.strings() == ["", "", "日本", ""]


def test_without_spaces_the_structure_is_that_of_the_file(tmp_path):
    episode = raw_episode(2)
    del episode["actions"]
    episode |= {"actions/_index_0": np.arange(2), "actions/_index_1": np.ones(2)}
    with FORMAT.open(write_h5(tmp_path / "x-v0", [episode], (None, None))) as source:
        assert source.spec.observation_space is None
        assert source.episode(0).actions["1"].tolist() == [1, 1]


def test_a_bare_file_opens(tmp_path):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)])
    (folder / "data" / "metadata.json").unlink()
    bare = (folder / "data" / "main_data.hdf5").rename(tmp_path / "some.h5")
    assert FORMAT.recognises(bare)
    with FORMAT.open(bare) as source:
        assert (len(source), dict(source.metadata)) == (1, {"total_episodes": 1, "total_steps": 3})


def test_totals_are_those_of_the_file(tmp_path):
    stale = {"total_episodes": 0, "total_steps": 99}
    with FORMAT.open(write_h5(tmp_path / "x-v0", [raw_episode(3)], entries=stale)) as source:
        assert (source.metadata["total_episodes"], source.metadata["total_steps"]) == (1, 3)


# ------------------------------------------------------------------------------------------------ infos that differ


def _with_infos(tmp_path, *infos):
    episodes = [{**raw_episode(3, e), **more} for e, more in enumerate(infos)]
    return write_h5(tmp_path / "x-v0", episodes)


def test_infos_align_by_their_length(tmp_path):
    both = {"infos/a": np.arange(4.0), "infos/b/c": np.arange(3), "state/q": np.ones((1, 2))}
    with FORMAT.open(_with_infos(tmp_path, both, both)) as source:
        aligns = {path: source.spec[path].align for path in both}
        assert aligns == {"infos/a": "boundary", "infos/b/c": "step", "state/q": "episode"}
        assert source.episode(1).infos["b"]["c"].tolist() == [0, 1, 2]


def test_missing_infos_are_named_filled_or_left_out(tmp_path):
    folder = _with_infos(tmp_path, {"infos/a": np.arange(4.0)}, {}, {"infos/t": ["x"] * 4, "infos/a": np.ones(4)})
    with pytest.raises(FormatError, match=r"expected infos/a in every episode.*infos='union'.*episode 1/infos/a"):
        FORMAT.open(folder)
    with FORMAT.open(folder, infos="union") as source:
        assert np.isnan(source.episode(1).infos["a"]).all()
        assert [source.episode(e).columns["present/infos/a"].tolist() for e in range(3)] == [[True], [False], [True]]
        assert source.episode(0).infos["t"].strings() == [""] * 4
        assert source.episode(2).infos["t"].strings() == ["x"] * 4
        assert source.episode(2).infos["a"].tolist() == [1] * 4
    with FORMAT.open(folder, infos="skip") as source:
        assert not [path for path in source.spec if path.startswith("infos")]


def test_infos_of_another_shape_or_length_are_named(tmp_path):
    folder = _with_infos(tmp_path, {"infos/a": np.zeros((4, 2))}, {"infos/a": np.zeros((4, 3))})
    with pytest.raises(FormatError, match="one kind and shape"):
        FORMAT.open(folder)
    folder = write_h5(tmp_path / "y-v0", [{**raw_episode(3), "infos/a": np.zeros(7)}])
    with pytest.raises(FormatError, match="got 7"):
        FORMAT.open(folder)
    with FORMAT.open(folder, infos="skip") as source:
        assert "infos/a" not in source.spec


def test_unknown_options_are_refused(tmp_path):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)])
    for options in ({"infos": "maybe"}, {"cache": "no"}, {"speed": 1}):
        with pytest.raises(TypeError, match="expected infos"):
            FORMAT.open(folder, **options)


# ------------------------------------------------------------------------------------------------ damage and malice


def test_a_missing_column_is_named(tmp_path):
    episodes = [raw_episode(3), raw_episode(3)]
    del episodes[1]["truncations"]
    with pytest.raises(FormatError, match="truncations in every episode"):
        FORMAT.open(write_h5(tmp_path / "x-v0", episodes))
    del episodes[1]["rewards"]
    with pytest.raises(FormatError, match="episode 1/rewards"):
        FORMAT.open(write_h5(tmp_path / "y-v0", episodes))


def test_wrong_lengths_are_named(tmp_path):
    episode = raw_episode(3)
    episode["observations"] = episode["observations"][:3]
    with pytest.raises(FormatError, match="expected 4 rows for 3 steps, got 3 - at episode 0/observations"):
        FORMAT.open(write_h5(tmp_path / "x-v0", [episode]))


def test_columns_that_the_space_does_not_name_are_missed(tmp_path):
    with pytest.raises(FormatError, match="observations/arm/0 that the space names"):
        FORMAT.open(write_h5(tmp_path / "x-v0", [raw_episode(3)], NESTED))


@pytest.mark.parametrize(
    "name", ["../other.hdf5", "/etc/passwd", "additional_data_x.hdf5", "additional_data_0.hdf5/.."]
)
def test_external_links_stay_in_the_folder(tmp_path, name):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)])
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file.create_group("episode_1")
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        file["episode_1"] = h5py.ExternalLink(name, "/episode_1")
    with pytest.raises(UnsafeDataError, match="not followed"):
        FORMAT.open(folder)


def test_a_symlink_is_no_way_out_of_the_folder(tmp_path):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)])
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file.create_group("episode_1")
    (folder / "data" / "additional_data_0.hdf5").symlink_to(tmp_path / "other.hdf5")
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        file["episode_1"] = h5py.ExternalLink("additional_data_0.hdf5", "/episode_1")
    with pytest.raises(UnsafeDataError):
        FORMAT.open(folder)


def test_an_additional_file_that_is_gone_is_named(tmp_path):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)])
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        file["episode_1"] = h5py.ExternalLink("additional_data_0.hdf5", "/episode_1")
    with pytest.raises(FormatError, match="additional_data_0"):
        FORMAT.open(folder)


def test_loops_of_links_end(tmp_path):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)])
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        file["episode_0/infos"] = file["episode_0"]
        file["episode_0/again"] = h5py.SoftLink("/episode_0/again")
    with FORMAT.open(folder, infos="skip") as source:
        assert len(source) == 1


@pytest.mark.parametrize("shape", [(2**62,), (2**40, 3)])
def test_huge_shapes_allocate_nothing(tmp_path, shape):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)])
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        for name in ("rewards", "actions", "terminations", "truncations", "observations"):
            del file[f"episode_0/{name}"]
            file["episode_0"].create_dataset(name, shape, "f8", chunks=(1, *shape[1:]))
    with pytest.raises(FormatError, match="expected values for shape"):
        FORMAT.open(folder)


def test_groups_that_share_datasets_without_end_are_refused(tmp_path):
    folder = write_h5(tmp_path / "x-v0", [{**raw_episode(1), **{f"infos/{i}": np.zeros(1) for i in range(200)}}])
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        for e in range(1, 400):
            file[f"episode_{e}"] = file["episode_0"]
    with pytest.raises(FormatError, match="shared ones"):
        FORMAT.open(folder)


def test_a_wrong_checksum_is_found_when_the_chunk_is_read(tmp_path):
    episode = {**raw_episode(500), "rewards": np.arange(500.0)}
    folder = write_h5(tmp_path / "x-v0", [episode], chunks=True, fletcher32=True)
    path = folder / "data" / "main_data.hdf5"
    raw = bytearray(path.read_bytes())
    at = raw.index(np.arange(500.0)[250:260].tobytes())
    raw[at] ^= 1
    path.write_bytes(raw)
    with FORMAT.open(folder) as source, pytest.raises(FormatError, match="episode 0, rewards, chunk at byte"):
        source.episode(0)
    (found,) = penstock.check(folder, deep=True, cache="off").findings
    assert (found.level, found.episodes) == ("error", (0,))
    assert "rewards" in found.message


@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 7)), min_size=1, max_size=4), st.booleans())
@example([(5128, 0)], True)  # the header of a deflated chunk
@settings(max_examples=150, deadline=None)
def test_flipped_bits_raise_format_errors_or_nothing(tmp_path_factory, flips, compressed):
    base = tmp_path_factory.mktemp("fuzz")
    options = {"chunks": True, "compression": "gzip"} if compressed else {}
    text = {"infos/t": ["ab", "c", "d"], "infos/n": np.arange(3)}
    folder = write_h5(base / "x-v0", [{**raw_episode(2), **text}], **options)
    path = folder / "data" / "main_data.hdf5"
    raw = bytearray(path.read_bytes())
    for at, bit in flips:
        raw[at % len(raw)] ^= 1 << bit
    path.write_bytes(raw)
    try:
        with Hdf5Source(folder / "data", cache="off") as source:
            for episode in source.episodes():
                assert len(episode) < 100
    except FormatError:
        pass


# ------------------------------------------------------------------------------------------- index, threads, growth


def test_the_index_is_kept_and_rebuilt(tmp_path, monkeypatch):
    monkeypatch.setattr(index_cache, "WORTH", 1)
    episodes = [raw_episode(3, e) for e in range(4)]
    folder = write_h5(tmp_path / "x-v0", episodes)
    with FORMAT.open(folder) as source:
        _equal(source, episodes)
    kept = list((tmp_path / ".cache").rglob("*"))[-1]
    with monkeypatch.context() as patch:
        patch.setattr(hdf5_source, "build", None)  # a second opening does not index
        with FORMAT.open(folder) as source:
            _equal(source, episodes)
    for damage in (b"", b"x" * 50, kept.read_bytes()[:-5], kept.read_bytes().replace(b"rewards", b"rewardz")):
        kept.write_bytes(damage)
        with FORMAT.open(folder) as source:
            _equal(source, episodes)
    write_h5(tmp_path / "y-v0", episodes[:2])
    (tmp_path / "y-v0" / "data" / "main_data.hdf5").replace(folder / "data" / "main_data.hdf5")
    with FORMAT.open(folder) as source:
        assert len(source) == 2


def test_the_index_is_in_the_users_cache_or_nowhere(tmp_path, monkeypatch):
    monkeypatch.setattr(index_cache, "WORTH", 1)
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)])
    FORMAT.open(folder, cache="off").close()
    assert not (tmp_path / ".cache").exists()
    with pytest.raises(TypeError, match="'user', 'refresh', 'off'"):
        FORMAT.open(folder, cache="beside")
    before = sorted(folder.rglob("*"))
    FORMAT.open(folder).close()
    assert sorted(folder.rglob("*")) == before
    assert len(list((tmp_path / ".cache" / "minari").iterdir())) == 1
    monkeypatch.setenv("PENSTOCK_CACHE", "/proc/nowhere")
    FORMAT.open(folder).close()


def test_compressed_chunks_are_decoded_once_a_read(tmp_path, monkeypatch):
    from penstock.formats.minari import rows

    episode = {**raw_episode(64), "rewards": np.arange(64.0)}
    folder = write_h5(tmp_path / "x-v0", [episode])
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0/rewards"]
        file["episode_0"].create_dataset("rewards", data=np.arange(64.0), chunks=(8,), compression="gzip")
    calls = []
    plain = rows.decode
    monkeypatch.setattr(rows, "decode", lambda *a: calls.append(1) or plain(*a))
    with FORMAT.open(folder) as source:
        order = np.random.default_rng(0).permutation(64)
        one = np.ones(64, np.int64)
        found = source.read(["rewards"], Selection(one * 0, order, one, np.arange(64), (64, 1)))["rewards"]
        np.testing.assert_array_equal(found[:, 0], order)
    assert len(calls) == 8


def test_a_reader_keeps_its_view_until_it_refreshes(tmp_path):
    spec = simple_spec()
    with FORMAT.create(tmp_path / "x-v0", spec, {}) as writer, FORMAT.open(tmp_path / "x-v0") as source:
        for e in range(5):
            writer.write(simple_episode(spec, 4 + e, e))
            before = len(source)
            fingerprint = source.fingerprint
            assert before == e
            assert source.refresh()
            assert source.fingerprint != fingerprint
            np.testing.assert_array_equal(source.episode(e).observations, simple_episode(spec, 4 + e, e).observations)
        assert not source.refresh()


def test_another_dataset_in_its_place_is_noticed(tmp_path):
    folder = write_h5(tmp_path / "x-v0", [raw_episode(3)])
    other = write_h5(tmp_path / "y-v0", [raw_episode(5)])
    with FORMAT.open(folder) as source:
        (other / "data" / "main_data.hdf5").replace(folder / "data" / "main_data.hdf5")
        with pytest.raises(StateError, match="open it again"):
            source.refresh()


def _sum(source, queue):
    queue.put(float(source.episode(1).rewards.sum()))


def test_a_spawned_process_reads_the_same(tmp_path):
    episodes = [raw_episode(3, e) for e in range(2)]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    with FORMAT.open(write_h5(tmp_path / "x-v0", episodes)) as source:
        child = context.Process(target=_sum, args=(source, queue))
        child.start()
        assert queue.get() == episodes[1]["rewards"].sum()
        child.join()


def test_threads_read_compressed_chunks(tmp_path):
    episodes = [raw_episode(200, e) for e in range(4)]
    failed = []
    with FORMAT.open(write_h5(tmp_path / "x-v0", episodes, chunks=True, compression="gzip")) as source:

        def read():
            try:
                _equal(source, episodes)
            except BaseException as error:  # noqa: BLE001 - handed to the assertion below
                failed.append(error)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
