"""robomimic's HDF5, written by h5py in the layout of robomimic's page "Dataset structure" (datasets/overview)."""

from __future__ import annotations

import json
import pickle
from types import MappingProxyType

import h5py
import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.order import natural
from penstock.core.spec import Spec
from penstock.errors import DamageWarning, FormatError
from penstock.formats.base.format import recognise
from penstock.formats.demos import FORMAT
from penstock.formats.demos.robomimic import RobomimicKind
from penstock.testing.examples import Example, field
from penstock.testing.sources import SourceContract

PLAIN = MappingProxyType({})
GZIP = MappingProxyType({"compression": "gzip", "chunks": True})
SPEC = Spec(
    {
        "observations/eef": field("f8", 3, align="boundary"),
        "observations/image": field("u1", 6, 6, 3, align="boundary"),
        "actions": field("f4", 2),
        "rewards": field("f8"),
        "terminations": field("?"),
        "truncations": field("?"),
        "states": field("f8", 5),
    }
)


class Ended(Example):
    """Episodes whose flags are at their last steps."""

    def episodes(self, seed=0):
        out = []
        for e, episode in enumerate(super().episodes(seed)):
            columns = dict(episode.columns)
            last = np.arange(len(episode)) == len(episode) - 1
            columns["terminations"], columns["truncations"] = last & (e % 2 == 0), last & (e % 2 == 1)
            out.append(Episode(self.spec, columns, e, episode.metadata))
        return out


EXAMPLE = Ended("robomimic", SPEC, (5, 1, 12, 3, 2, 2, 2, 2, 2, 2, 4))  # more than ten: demo_10 comes after demo_2


def write(path, episodes, options=PLAIN, next_obs=True, track_order=False):
    """The layout of robomimic: a group a demonstration below `data`, filter keys below `mask`."""
    with h5py.File(path, "w", track_order=track_order) as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": {"horizon": 400}})
        data.attrs["total"] = sum(len(episode) for episode in episodes)
        for e, episode in enumerate(episodes):
            demo = data.create_group(f"demo_{e}")
            demo.attrs.update({**episode.metadata, "num_samples": len(episode), "model_file": "<mujoco/>" * 20000})
            for name in ("actions", "rewards", "states"):
                demo.create_dataset(name, data=episode.columns[name], **options)
            demo.create_dataset("dones", data=episode.columns["terminations"].astype("i8"))
            for name in [p.split("/")[1] for p in episode.spec if p.startswith("observations/")]:
                rows = episode.columns[f"observations/{name}"]
                demo.create_dataset(f"obs/{name}", data=rows[: len(episode)], **options)
                if next_obs:
                    demo.create_dataset(f"next_obs/{name}", data=rows[-len(episode) :], **options)
        names = [f"demo_{e}".encode() for e in range(len(episodes))]
        file.create_dataset("mask/train", data=np.array(names[::-1][:3]))
        file.create_dataset("mask/valid", data=names[:1], dtype=h5py.string_dtype())
    return path


class _Contract(SourceContract):
    examples = (EXAMPLE,)
    options = PLAIN

    def open(self, path, episodes):
        return FORMAT.open(write(path / "demo.hdf5", episodes, self.options))


class TestContiguous(_Contract):
    pass


class TestCompressed(_Contract):
    options = GZIP


class TestChunkedAsItIs(_Contract):
    options = MappingProxyType({"chunks": True})


class TestDecodedAgain(_Contract):
    """With room for no decoded chunk at all."""

    options = GZIP

    def open(self, path, episodes):
        return FORMAT.open(write(path / "demo.hdf5", episodes, self.options), cache_bytes=0)


@pytest.fixture
def episodes():
    return EXAMPLE.episodes(seed=1)


def test_it_is_recognised_by_content(tmp_path, episodes):
    path = write(tmp_path / "anything.bin", episodes)
    assert RobomimicKind().recognises(path)
    assert recognise(path)[0].name == "demos"
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["data/episode_0/observations"] = np.zeros(3)
    assert not RobomimicKind().recognises(tmp_path / "other.hdf5")
    (tmp_path / "empty").touch()
    (tmp_path / "cut").write_bytes(path.read_bytes()[:100])
    assert not any(RobomimicKind().recognises(tmp_path / name) for name in ("empty", "cut", "nothing", "."))


def test_numbers_in_names_count_as_numbers():
    names = ["demo_10", "demo_2", "demo_1", "demo_010", "x"]
    assert sorted(names, key=natural) == ["demo_1", "demo_2", "demo_010", "demo_10", "x"]


def test_what_the_file_says(tmp_path, episodes):
    with FORMAT.open(write(tmp_path / "f.hdf5", episodes)) as source:
        assert source.metadata["env_args"]["env_kwargs"] == {"horizon": 400}
        assert source.metadata["filter_keys"] == ["train", "valid"]
        assert "left_out" not in source.metadata
        entries = source.episode_metadata([2, 10])
        assert [entry["demo"] for entry in entries] == ["demo_2", "demo_10"]
        assert all(entry["model_file"] is True and entry["num_samples"] for entry in entries)
    with FORMAT.open(tmp_path / "f.hdf5", model_files=True) as source:
        assert source.episode_metadata([0])[0]["model_file"] == "<mujoco/>" * 20000


def test_a_filter_key_selects(tmp_path, episodes):
    path = write(tmp_path / "f.hdf5", episodes)
    with FORMAT.open(path, filter_key="train") as source:
        assert [e["demo"] for e in source.episode_metadata(range(3))] == ["demo_8", "demo_9", "demo_10"]
        np.testing.assert_array_equal(source.episode(2).actions, episodes[10].columns["actions"])
        again = pickle.loads(pickle.dumps(source))
        assert (len(again), again.fingerprint) == (3, source.fingerprint)
        whole = FORMAT.open(path)
        assert whole.fingerprint != source.fingerprint
    with FORMAT.open(path, filter_key="valid") as source:
        assert len(source) == 1
    with pytest.raises(FormatError, match=r"among \['train', 'valid'\], got 'test' - at mask"):
        FORMAT.open(path, filter_key="test")


@pytest.mark.parametrize("options", [PLAIN, GZIP], ids=["contiguous", "gzip"])
def test_next_observations_that_do_not_follow_are_kept_beside(tmp_path, episodes, options):
    path = write(tmp_path / "f.hdf5", episodes, options)
    with h5py.File(path, "a") as file:
        file["data/demo_2/next_obs/eef"][4, 1] += 1
    with FORMAT.open(path) as source:
        assert source.spec["observations/eef"].align == source.spec["next_observations/eef"].align == "step"
        assert source.spec["observations/image"].align == "boundary"
        assert "next_observations/image" not in source.spec
        found = source.episode(2).columns
        assert found["next_observations/eef"][4, 1] == episodes[2].columns["observations/eef"][5, 1] + 1
        np.testing.assert_array_equal(found["observations/eef"], episodes[2].columns["observations/eef"][:-1])
    with FORMAT.open(path, next_observations="trust") as source:
        assert source.spec["observations/eef"].align == "boundary"
    with FORMAT.open(path, next_observations="separate") as source:
        assert source.spec["next_observations/image"].align == "step"
    with pytest.raises(TypeError, match="'guess'"):
        FORMAT.open(path, next_observations="guess")


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_one_difference_anywhere_is_found(tmp_path, episodes, rows, monkeypatch):
    monkeypatch.setattr("penstock.formats.demos.source.AT_ONCE", rows * 3 * 8)
    steps = len(episodes[2])
    for t in range(steps):
        path = write(tmp_path / f"{t}.hdf5", episodes)
        with h5py.File(path, "a") as file:
            file["data/demo_2/next_obs/eef"][t, 1] = 12345.0
        with FORMAT.open(path) as source:  # what follows the last step is stored nowhere else
            assert source.spec["observations/eef"].align == ("boundary" if t == steps - 1 else "step")


def test_only_the_first_process_compares(tmp_path, episodes, monkeypatch):
    path = write(tmp_path / "f.hdf5", episodes, GZIP)
    with h5py.File(path, "a") as file:
        file["data/demo_2/next_obs/eef"][4, 1] += 1
    with FORMAT.open(path) as source:
        raw = pickle.dumps(source)
        monkeypatch.setattr("penstock.formats.demos.robomimic.continues", None)
        again = pickle.loads(raw)
        assert again.spec == source.spec
        assert again.fingerprint == source.fingerprint
        np.testing.assert_array_equal(
            again.episode(1).columns["observations/image"], episodes[1].columns["observations/image"]
        )
        again.close()


def test_the_last_step_of_a_demonstration_need_not_lead_to_the_next(tmp_path, episodes):
    with FORMAT.open(write(tmp_path / "f.hdf5", episodes)) as source:
        last = source.episode(0).columns["observations/eef"][-1]
        np.testing.assert_array_equal(last, episodes[0].columns["observations/eef"][-1])
        assert (last != source.episode(1).columns["observations/eef"][0]).any()


def test_without_next_observations_there_is_one_a_step(tmp_path, episodes):
    with FORMAT.open(write(tmp_path / "f.hdf5", episodes, next_obs=False)) as source:
        assert {source.spec[path].align for path in source.spec} == {"step"}
        np.testing.assert_array_equal(
            source.episode(0).columns["observations/eef"], episodes[0].columns["observations/eef"][:-1]
        )


def test_dones_before_the_end_are_a_column_of_their_own(tmp_path, episodes):
    path = write(tmp_path / "f.hdf5", episodes)
    with h5py.File(path, "a") as file:
        file["data/demo_2/dones"][3] = 1
    with FORMAT.open(path) as source:
        assert np.flatnonzero(source.episode(2).columns["dones"]).tolist() == [3, 11]
        assert np.flatnonzero(source.episode(2).terminations).tolist() == [11]


def test_what_has_no_place_is_named(tmp_path, episodes):
    path = write(tmp_path / "f.hdf5", episodes)
    with h5py.File(path, "a") as file:
        for e, episode in enumerate(episodes):
            file[f"data/demo_{e}/interventions"] = np.arange(len(episode))
            file[f"data/demo_{e}/two"] = np.zeros(2)
            file[f"data/demo_{e}/language"] = "lift it"
            file[f"data/demo_{e}/obs/words"] = file[f"data/demo_{e}/next_obs/words"] = ["lift"] * len(episode)
        file["data/demo_3/alone"] = np.zeros(3)
        file["data/demo_0/next_obs/unseen"] = np.zeros((5, 2))
    with FORMAT.open(path) as source:
        left_out = {entry.where: (entry.reason, entry.message) for entry in source.account.left_out}
        assert {name: reason for name, (reason, _) in left_out.items()} == {
            "alone": "uneven-column",
            "language": "unsupported-dtype",
            "next_obs/unseen": "unused-array",
            "next_obs/words": "unsupported-dtype",
            "obs/words": "unsupported-dtype",
            "two": "other-length",
        }
        assert left_out["alone"][1].endswith(f"got float64[] in 1 of {len(episodes)}")
        assert left_out["language"][1] == "expected rows of numbers, got text"
        assert source.episode(0).columns["interventions"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "options", [PLAIN, GZIP, {"chunks": (2,), "maxshape": (None,)}], ids=["contiguous", "gzip", "chunks"]
)
@pytest.mark.parametrize("dtype", [">f4", "<f8", ">i2", "?", "u1"])
def test_numbers_of_any_kind(tmp_path, episodes, options, dtype):
    path = write(tmp_path / "f.hdf5", episodes)
    rng = np.random.default_rng(6)
    parts = [rng.integers(0, 2, size=len(episode)).astype(dtype) for episode in episodes]
    with h5py.File(path, "a") as file:
        for e, part in enumerate(parts):
            file.create_dataset(f"data/demo_{e}/other/x", data=part, **options)
    with FORMAT.open(path) as source:
        assert source.spec["other/x"].dtype == np.dtype(dtype).newbyteorder("=")
        for episode, part in zip(source.episodes(), parts, strict=True):
            np.testing.assert_array_equal(episode.columns["other/x"], part)


def test_attributes_are_plain_values(tmp_path, episodes):
    path = write(tmp_path / "f.hdf5", episodes)
    given = {"shape": [1, 2], "ok": True, "names": ["a", "b"], "raw": np.bytes_(b"x"), "n": np.float32(0.5)}
    with h5py.File(path, "a") as file:
        file["data/demo_0"].attrs.update({**given, "long": np.zeros(7000).tolist()})
    with FORMAT.open(path) as source:
        (found,) = source.episode_metadata([0])
        assert {name: found[name] for name in given} == {**given, "raw": "x", "n": 0.5}
        assert json.loads(json.dumps(found)) == found


def test_windows_of_it(tmp_path, episodes):
    data = penstock.open(write(tmp_path / "f.hdf5", episodes, GZIP))
    batch = data.windows(3, pad="zero").shuffle(seed=4)[:8]
    assert batch["observations/image"].shape == (8, 3, 6, 6, 3)


def _shorter(demo, name, end=-1):
    rows = demo[name][:end]
    del demo[name]
    demo[name] = rows


def _replaced(demo, name, value):
    del demo[name]
    demo[name] = value


DAMAGE = {
    "fewer rewards": (lambda demo: _shorter(demo, "rewards"), "data/demo_2/rewards"),
    "fewer observations": (lambda demo: _shorter(demo, "obs/eef"), "data/demo_2/obs/eef"),
    "fewer actions": (lambda demo: _shorter(demo, "actions"), "num_samples says, got 11"),
    "no actions": (lambda demo: demo.__delitem__("actions"), "data/demo_2/actions"),
    "empty actions": (lambda demo: _replaced(demo, "actions", np.zeros((0, 2), "f4")), "num_samples says, got 0"),
    "scalar actions": (lambda demo: _replaced(demo, "actions", 1.0), "data/demo_2/actions"),
    "text actions": (lambda demo: _replaced(demo, "actions", ["a"] * 12), "data/demo_2/actions"),
    "another dtype": (lambda demo: _replaced(demo, "states", np.zeros((12, 5), "f4")), "left out"),
    "another shape": (lambda demo: _replaced(demo, "obs/eef", np.zeros((12, 4))), r"float64\[3\], as in demo_0, got"),
    "no observation": (lambda demo: demo.__delitem__("obs/eef"), "got none"),
    "text dones": (lambda demo: _replaced(demo, "dones", ["yes"] * 12), "data/demo_2/dones"),
    "a link elsewhere": (lambda demo: _replaced(demo, "rewards", h5py.ExternalLink("x.h5", "/y")), "is not followed"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_with_its_place(tmp_path, episodes, name):
    path = write(tmp_path / "f.hdf5", episodes)
    damage, message = DAMAGE[name]
    with h5py.File(path, "a") as file:
        damage(file["data/demo_2"])
    if message == "left out":
        assert "states" in [entry.where for entry in FORMAT.open(path).account.left_out]
        return
    with pytest.raises(FormatError, match=message) as error:
        FORMAT.open(path)
    assert str(path) in str(error.value)


def test_a_demonstration_of_another_dtype_is_refused_with_the_option_that_leaves_it_out(tmp_path, episodes):
    path = write(tmp_path / "f.hdf5", episodes)
    with h5py.File(path, "a") as file:
        _replaced(file["data/demo_2"], "actions", np.zeros((12, 2), "f8"))
        file["mask/alike"] = np.array([f"demo_{e}" for e in range(len(episodes)) if e != 2], "S")
    with pytest.raises(FormatError, match=r"of float32\[2\], as in demo_0, got array float64.*filter_key=.*demo_2"):
        penstock.open(path)
    assert len(penstock.open(path, filter_key="alike")) == len(episodes) - 1


@pytest.mark.parametrize("shape", [(1 << 40, 0), (1 << 40, 2), (1 << 62, 0), (12, 1 << 40)])
def test_rows_that_nobody_wrote(tmp_path, episodes, shape):
    path = write(tmp_path / "f.hdf5", episodes)
    with h5py.File(path, "a") as file:
        del file["data/demo_2"]
        demo = file["data"].create_group("demo_2")
        demo.create_dataset("actions", shape, "f4", chunks=(1, 1), maxshape=(None, None))
    with pytest.raises(FormatError):
        FORMAT.open(path)
    with h5py.File(path, "a") as file:
        for name in [name for name in file["data"] if name != "demo_2"]:
            del file["data"][name]
    with pytest.raises(FormatError, match=r"cannot come from|expected actions of numbers"):
        FORMAT.open(path)


@pytest.mark.parametrize("next_obs", [True, False])
def test_demonstrations_without_steps_are_left_out_and_named(tmp_path, episodes, next_obs):
    path = write(tmp_path / "f.hdf5", episodes, next_obs=next_obs)
    whole = FORMAT.open(path)
    with h5py.File(path, "a") as file:
        for name in ("demo_0", "demo_3"):
            demo = file[f"data/{name}"]
            demo.attrs["num_samples"] = 0
            for place in [*demo, *(f"{side}/{n}" for side in ("obs", "next_obs") if side in demo for n in demo[side])]:
                if isinstance(demo[place], h5py.Dataset):
                    _shorter(demo, place, 0)
    with pytest.warns(DamageWarning, match=r"left out 2 episodes: data/demo_0 \(.*\); data/demo_3"):
        source = penstock.open(path).source
    kept = [e for e in range(len(episodes)) if e not in (0, 3)]
    for found, e in zip(source.episodes(), kept, strict=True):
        assert found.metadata["demo"] == f"demo_{e}"
        for column, array in whole.episode(e).columns.items():
            np.testing.assert_array_equal(found.columns[column], array)
    found = [(each.name, each.where) for each in penstock.check(path).findings if each.name == "no-steps"]
    assert found == [("no-steps", "data/demo_0"), ("no-steps", "data/demo_3")]
    assert len(pickle.loads(pickle.dumps(source))) == len(kept)
    with h5py.File(path, "a") as file:
        file["mask/none"] = np.array([b"demo_0"])
    with pytest.raises(FormatError, match="with steps, got none"):
        FORMAT.open(path, filter_key="none")


def test_bad_json_and_masks(tmp_path, episodes):
    path = write(tmp_path / "f.hdf5", episodes)
    with h5py.File(path, "a") as file:
        file["mask/gone"] = np.array([b"demo_77"])
        file["mask/twice"] = np.array([b"demo_1", b"demo_1"])
        file["mask/none"] = np.array([], "S6")
        file["mask/numbers"] = np.arange(3)
    for key, message in {"gone": "data/demo_77", "twice": "once", "none": "got none", "numbers": "names"}.items():
        with pytest.raises(FormatError, match=message):
            FORMAT.open(path, filter_key=key)
    with h5py.File(path, "a") as file:
        file["data"].attrs["env_args"] = "{" * 9
    with pytest.raises(FormatError, match="env_args"):
        FORMAT.open(path)


@pytest.mark.parametrize("options", [PLAIN, GZIP], ids=["contiguous", "gzip"])
def test_any_damage_is_a_value_or_a_format_error(tmp_path, episodes, options):
    path = write(tmp_path / "f.hdf5", episodes[:2], options)
    raw = bytearray(path.read_bytes())
    rng = np.random.default_rng(11)
    outcomes = set()
    for i in range(150):
        bad = bytearray(raw)
        for at in rng.integers(len(raw), size=1 + i % 30):
            bad[at] = int(rng.integers(256))
        path.write_bytes(bad if i % 5 else raw[: int(rng.integers(len(raw)))])
        try:
            source = FORMAT.open(path, kind="robomimic")
            for episode in source.episodes():
                dict(episode.metadata)
            outcomes.add("value")
        except FormatError:
            outcomes.add("error")
    assert outcomes == {"value", "error"}


def test_links_to_nowhere_are_left_out_and_named(tmp_path, episodes):
    path = write(tmp_path / "links.hdf5", episodes)
    with h5py.File(path, "a") as file:
        for e in range(len(episodes)):
            file[f"data/demo_{e}/extra"] = h5py.SoftLink("/nothing")
        file["data/demo_1/obs/late"] = h5py.SoftLink("eef")  # of one demonstration alone
    with pytest.warns(DamageWarning, match="2 arrays: data/demo_0/extra .*got one to /nothing"):
        data = penstock.open(path)
    assert data.spec.keys() == SPEC.keys()
    entries = [(entry.reason, entry.where) for entry in data.source.account.left_out]
    assert entries == [("damaged-part", "data/demo_0/extra"), ("uneven-column", "obs/late")]
    with h5py.File(path, "a") as file:
        del file["data/demo_1/actions"]
        file["data/demo_1/actions"] = h5py.SoftLink("/nowhere")
    with pytest.raises(FormatError, match=r"got one to /nowhere.* at /data/demo_1/actions"):
        penstock.open(path)
    with h5py.File(path, "a") as file:
        del file["data/demo_1"]
        file["data/demo_1"] = h5py.SoftLink("/nowhere")
    with pytest.raises(FormatError, match=r"a link to nowhere.* at data/demo_1"):
        penstock.open(path)
    with pytest.warns(DamageWarning, match="extra"):
        assert len(penstock.open(path, filter_key="valid")) == 1
