"""imitation's three layouts, written by imitation itself (see the provenance of the goldens), and damaged ones."""

from __future__ import annotations

import io
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.errors import FormatError, UnsafeDataError
from penstock.formats.base.format import recognise
from penstock.formats.demos import FORMAT
from penstock.formats.demos.imitation import ImitationKind

GOLDEN = Path(__file__).parents[2] / "golden" / "imitation"
FULL = ("trajectories.npz", "folder", "trajectories.pkl")
BARE = ("single.npz", "plain_folder")


@pytest.fixture
def expected():
    with np.load(GOLDEN / "expected.npz") as file:
        return dict(file)


def parts_of(path):
    with np.load(path, allow_pickle=True) as file:
        return dict(file)


@pytest.mark.parametrize("name", [*FULL, *BARE])
def test_it_is_recognised_by_content(name):
    assert recognise(GOLDEN / name)[0].name == "demos"
    assert FORMAT.kind_at(GOLDEN / name).name == "imitation"


@pytest.mark.parametrize("name", ["expected.npz", "PROVENANCE.md", "nothing", "."])
def test_others_are_not(name):
    assert not ImitationKind().recognises(GOLDEN / name)


@pytest.mark.parametrize("name", FULL)
def test_values_are_those_that_were_saved(name, expected):
    with FORMAT.open(GOLDEN / name) as source:
        assert np.diff(source.offsets).tolist() == expected["lengths"].tolist()
        assert source.spec["observations"].align == "boundary"
        episodes = list(source.episodes())
        columns = {"observations": "obs", "actions": "acts", "rewards": "rews", "infos/score": "score"}
        for ours, theirs in columns.items():
            found = np.concatenate([episode.columns[ours] for episode in episodes])
            np.testing.assert_array_equal(found, expected[theirs])
            assert found.dtype == expected[theirs].dtype
        assert [e.terminations.tolist()[-1] for e in episodes] == expected["terminal"].tolist()
        assert [e.truncations.tolist()[-1] for e in episodes] == (~expected["terminal"]).tolist()
        assert sum(int(e.terminations.sum() + e.truncations.sum()) for e in episodes) == 3
        assert [entry["infos/episode/l"] for entry in source.episode_metadata(range(3))] == [5, 3, 1]


@pytest.mark.parametrize("name", BARE)
def test_rewards_and_infos_may_be_missing(name, expected):
    with FORMAT.open(GOLDEN / name) as source:
        assert list(source.spec) == ["observations", "actions", "terminations", "truncations"]
        np.testing.assert_array_equal(source.episode(0).observations, expected["obs"][:6])
    data = penstock.open(GOLDEN / name)
    assert data.windows(2, pad="zero").shuffle(seed=1)[:4]["observations"].shape == (4, 2, 4)


def test_objects_in_json_are_left_out_and_never_made():
    with FORMAT.open(GOLDEN / "folder") as source:
        assert [each.where for each in source.account.left_out] == ["infos/terminal_observation"]
    assert "infos/terminal_observation" in FORMAT.open(GOLDEN / "trajectories.npz").spec


def rewritten(tmp_path, change):
    """A folder whose table `change` made another."""
    shutil.copytree(GOLDEN / "folder", tmp_path / "folder")
    (file,) = (tmp_path / "folder").glob("*.arrow")
    with pa.ipc.open_stream(file.read_bytes()) as stream:
        columns = stream.read_all().to_pydict()
    change(columns)
    table = pa.table(columns)
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return tmp_path / "folder"


def test_json_that_names_code_is_data(tmp_path):
    with FORMAT.open(rewritten(tmp_path, lambda columns: columns.update(infos=_evil_infos()))) as source:
        assert [each.where for each in source.account.left_out] == ["infos/evil", "infos/nested/deep"]
        assert source.episode(0).columns["infos/pair"].tolist() == [[1, 2]] * 5


def _evil_infos():
    bad = {"py/reduce": [{"py/function": "os.system"}, {"py/tuple": ["false"]}]}
    info = {"evil": bad, "nested": {"deep": [{"py/object": "os.x"}]}, "pair": {"py/tuple": [1, 2]}}
    return [[json.dumps(info)] * n for n in (5, 3, 1)]


ARROW = {
    "ragged observations": (lambda c: c["obs"][1][0].append(1.0), "one shape"),
    "a step too few": (lambda c: c["acts"][1].pop(), "trajectory 1"),
    "an info too few": (lambda c: c["infos"][2].pop(), "infos"),
    "infos that are no JSON": (lambda c: c["infos"][2].__setitem__(0, "{{"), "JSON"),
    "infos that are no objects": (lambda c: c["infos"][2].__setitem__(0, "[1]"), "JSON object"),
    "deep infos": (lambda c: c["infos"][2].__setitem__(0, "[" * 100000), "JSON"),
    "nulls": (lambda c: c["obs"][1][0].__setitem__(0, None), "nulls"),
    "no observations": (lambda c: c.pop("obs"), "columns"),
    "text": (lambda c: c.update(acts=[["a"] * len(a) for a in c["acts"]]), "acts"),
    "numbers for lists": (lambda c: c.update(acts=[1, 2, 3]), "list"),
    "a terminal that is text": (lambda c: c.update(terminal=["yes"] * 3), "terminal"),
    "nothing for a trajectory": (lambda c: c["obs"].__setitem__(1, None), "list"),
}


@pytest.mark.parametrize("name", ARROW)
def test_damaged_tables_are_named(tmp_path, name):
    change, message = ARROW[name]
    path = rewritten(tmp_path, change)
    with pytest.raises(FormatError, match=message) as error:
        FORMAT.open(path, kind="imitation")
    assert str(path) in str(error.value)


@pytest.mark.parametrize("filename", ["../x.arrow", "/etc/passwd", "..", "", None, "a/b"])
def test_file_names_stay_in_the_folder(tmp_path, filename):
    shutil.copytree(GOLDEN / "folder", tmp_path / "folder")
    (tmp_path / "folder" / "state.json").write_text(json.dumps({"_data_files": [{"filename": filename}]}))
    assert not ImitationKind().recognises(tmp_path / "folder")
    with pytest.raises(UnsafeDataError, match="next to"):
        FORMAT.open(tmp_path / "folder", kind="imitation")


def test_a_truncated_table_is_named(tmp_path):
    shutil.copytree(GOLDEN / "folder", tmp_path / "folder")
    (file,) = (tmp_path / "folder").glob("*.arrow")
    raw = file.read_bytes()
    for length in (0, 7, 100, len(raw) // 2, len(raw) - 100):
        file.write_bytes(raw[:length])
        with pytest.raises(FormatError):
            FORMAT.open(tmp_path / "folder")
    (tmp_path / "folder" / "state.json").write_text("[]")
    with pytest.raises(FormatError, match="JSON object"):
        FORMAT.open(tmp_path / "folder", kind="imitation")


class _Evil:
    def __reduce__(self):
        import os

        return os.system, ("false",)


NPZ = {
    "a cut too many": (lambda p: p.update(indices=np.array([5, 8, 9])), "indices"),
    "cuts that shrink": (lambda p: p.update(indices=np.array([8, 5])), "indices"),
    "cuts outside": (lambda p: p.update(indices=np.array([5, 80])), "indices"),
    "cuts of fractions": (lambda p: p.update(indices=np.array([5.0, 8.0])), "indices"),
    "fewer observations": (lambda p: p.update(obs=p["obs"][1:]), "obs"),
    "fewer rewards": (lambda p: p.update(rews=p["rews"][1:]), "rews"),
    "fewer infos": (lambda p: p.update(infos=p["infos"][1:]), "infos"),
    "infos of numbers": (lambda p: p.update(infos=np.zeros(9)), "dict a step"),
    "text actions": (lambda p: p.update(acts=np.array(["a"] * 9)), "acts"),
    "code": (lambda p: p["infos"].__setitem__(0, _Evil()), "system"),
}


@pytest.mark.parametrize("name", NPZ)
def test_damaged_archives_are_named(tmp_path, name):
    change, message = NPZ[name]
    parts = parts_of(GOLDEN / "trajectories.npz")
    change(parts)
    np.savez_compressed(tmp_path / "f.npz", **parts)
    with pytest.raises(FormatError, match=message):
        FORMAT.open(tmp_path / "f.npz", kind="imitation")


def test_pickles_that_name_code_are_refused(tmp_path):
    raw = (GOLDEN / "trajectories.pkl").read_bytes()
    (tmp_path / "f.pkl").write_bytes(raw.replace(b"TrajectoryWithRew", b"TrajectoryWithRex"))
    assert ImitationKind().recognises(tmp_path / "f.pkl")
    with pytest.raises(UnsafeDataError, match="nothing was imported or run"):
        FORMAT.open(tmp_path / "f.pkl", kind="imitation")
    (tmp_path / "f.pkl").write_bytes(pickle.dumps({"obs": 1}))
    assert not ImitationKind().recognises(tmp_path / "f.pkl")
    with pytest.raises(FormatError, match="a list of trajectories"):
        FORMAT.open(tmp_path / "f.pkl", kind="imitation")
    with pytest.raises(UnsafeDataError, match="max_bytes"):
        FORMAT.open(GOLDEN / "trajectories.pkl", max_bytes=100)
    with pytest.raises(TypeError, match="speed"):
        FORMAT.open(GOLDEN / "trajectories.pkl", speed=100)


@pytest.mark.parametrize("name", ["trajectories.npz", "trajectories.pkl", "folder"])
def test_any_damage_is_a_value_or_a_format_error(tmp_path, name):
    rng = np.random.default_rng(13)
    target = tmp_path / name
    if name == "folder":
        shutil.copytree(GOLDEN / name, target)
        (file,) = target.glob("*.arrow")
    else:
        file = target
    raw = (GOLDEN / name / file.name if name == "folder" else GOLDEN / name).read_bytes()
    outcomes = set()
    for i in range(200):
        bad = io.BytesIO(raw)
        for at in rng.integers(len(raw), size=1 + i % 10):
            bad.seek(int(at))
            bad.write(bytes([int(rng.integers(256))]))
        file.write_bytes(bad.getvalue() if i % 5 else raw[: int(rng.integers(len(raw)))])
        try:
            list(FORMAT.open(target, kind="imitation").episodes())
            outcomes.add("value")
        except FormatError:
            outcomes.add("error")
    assert "error" in outcomes
