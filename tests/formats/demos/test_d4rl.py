"""D4RL's HDF5, written by h5py in the layout that D4RL's README gives ("Using D4RL") and its `get_dataset` checks."""

from __future__ import annotations

import pickle
from types import MappingProxyType

import h5py
import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.errors import DamageWarning, FormatError
from penstock.formats.base.format import recognise
from penstock.formats.demos import FORMAT
from penstock.formats.demos.d4rl import D4rlKind
from penstock.testing.examples import Example, field
from penstock.testing.sources import SourceContract

PLAIN = MappingProxyType({})
GZIP = MappingProxyType({"compression": "gzip", "chunks": True})
SPEC = Spec(
    {
        "observations": field("f4", 11, align="boundary"),
        "actions": field("f4", 3),
        "rewards": field("f4"),
        "terminations": field("?"),
        "truncations": field("?"),
        "infos/qpos": field("f8", 6),
    }
)
STEPS = Spec({**SPEC.fields, "observations": field("f4", 11)})


class Ended(Example):
    """Episodes whose flags are at their last steps; there is no metadata of episodes."""

    def episodes(self, seed=0):
        out = []
        for e, episode in enumerate(super().episodes(seed)):
            columns = dict(episode.columns)
            last = np.arange(len(episode)) == len(episode) - 1
            columns["terminations"], columns["truncations"] = last & (e % 3 == 0), last & (e % 3 != 0)
            out.append(Episode(self.spec, columns, e, {}))
        return out


LENGTHS = (5, 1, 12, 3, 40, 2)
EXAMPLE, STEPWISE = Ended("d4rl", SPEC, LENGTHS), Ended("d4rl steps", STEPS, LENGTHS)


def write(path, episodes, options=PLAIN, timeouts=True):
    """The flat layout: one dataset a column, metadata below `metadata`."""
    boundary = episodes[0].spec["observations"].align == "boundary"
    with h5py.File(path, "w") as file:

        def put(name, parts):
            file.create_dataset(name, data=np.concatenate(parts), **options)

        columns = [episode.columns for episode in episodes]
        put("observations", [c["observations"][: len(c["actions"])] for c in columns])
        if boundary:
            put("next_observations", [c["observations"][1:] for c in columns])
        names = {"actions": "actions", "rewards": "rewards", "terminations": "terminals", "infos/qpos": "infos/qpos"}
        for ours, theirs in names.items():
            put(theirs, [c[ours] for c in columns])
        if timeouts:
            put("timeouts", [c["truncations"] for c in columns])
        file["metadata/algorithm"] = np.bytes_(b"SAC")
        file["metadata/iteration"] = 3
        file["metadata/policy/fc0/weight"] = np.zeros((256, 11))
        file["metadata/policy/nonlinearity"] = "relu"
        file.attrs["made"] = "here"
    return path


class _Contract(SourceContract):
    examples = (EXAMPLE, STEPWISE)
    options = PLAIN

    def open(self, path, episodes):
        return FORMAT.open(write(path / "hopper.hdf5", episodes, self.options))

    def test_the_table_holds_every_number(self, source, episodes):
        """D4RL has no metadata of episodes: their numbers and lengths alone."""
        assert source.table()["total_steps"].tolist() == list(LENGTHS)


class TestContiguous(_Contract):
    pass


class TestCompressed(_Contract):
    """Chunks that h5py chose, which split rows too."""

    options = GZIP


class TestLzf(_Contract):
    options = MappingProxyType({"compression": "lzf", "shuffle": True, "fletcher32": True})


class TestChunkedAsItIs(_Contract):
    options = MappingProxyType({"chunks": True})


@pytest.fixture
def episodes():
    return EXAMPLE.episodes(seed=2)


def test_it_is_recognised_by_content(tmp_path, episodes):
    path = write(tmp_path / "anything.bin", episodes)
    assert D4rlKind().recognises(path)
    assert recognise(path)[0].name == "demos"
    (tmp_path / "cut").write_bytes(path.read_bytes()[:100])
    assert not any(D4rlKind().recognises(tmp_path / name) for name in ("cut", "nothing", "."))


def test_chunks_that_split_rows(tmp_path, episodes):
    """Auto-chunking of a real file does so; this one is small."""
    path = write(tmp_path / "f.hdf5", episodes, {"compression": "gzip"})
    with h5py.File(path, "a") as file:
        rows = file["observations"][:]
        del file["observations"]
        file.create_dataset("observations", data=rows, chunks=(7, 4), compression="gzip")
    with FORMAT.open(path) as source:
        for found, expected in zip(source.episodes(), episodes, strict=True):
            np.testing.assert_array_equal(found.observations, expected.columns["observations"])


def test_what_the_file_says(tmp_path, episodes):
    with FORMAT.open(write(tmp_path / "f.hdf5", episodes)) as source:
        assert source.metadata == {
            "made": "here",
            "algorithm": "SAC",
            "iteration": 3,
            "policy/nonlinearity": "relu",
        }
        (entry,) = source.account.left_out
        assert (entry.where, entry.level) == ("metadata/policy/fc0/weight", "note")


def test_columns_of_one_number_a_row_are_flat(tmp_path, episodes):
    path = write(tmp_path / "f.hdf5", episodes)
    with h5py.File(path, "a") as file:
        for name in ("rewards", "terminals", "timeouts"):
            rows = file[name][:]
            del file[name]
            file[name] = rows[:, None].astype("f4")
        file["short"] = np.zeros(3)
    with FORMAT.open(path) as source:
        assert source.spec["rewards"].shape == ()
        assert source.offsets.tolist() == np.cumsum([0, *LENGTHS]).tolist()
        assert ("short", "other-length") in [(each.where, each.reason) for each in source.account.left_out]


def test_next_observations_that_do_not_follow_are_kept_beside(tmp_path, episodes):
    path = write(tmp_path / "f.hdf5", episodes)
    with h5py.File(path, "a") as file:
        before = file["next_observations"][8]
        file["next_observations"][8] = 12345
    with FORMAT.open(path) as source:
        assert source.spec["observations"].align == source.spec["next_observations"].align == "step"
    with FORMAT.open(path, next_observations="trust") as source:
        assert source.spec["observations"].align == "boundary"
    with h5py.File(path, "a") as file:
        file["next_observations"][8] = before
    with FORMAT.open(path) as source:
        assert source.spec["observations"].align == "boundary"
    with FORMAT.open(path, next_observations="separate") as source:
        assert source.spec["next_observations"].align == "step"


def test_without_timeouts_next_observations_tell(tmp_path, episodes):
    with FORMAT.open(write(tmp_path / "f.hdf5", episodes, timeouts=False)) as source:
        assert source.offsets.tolist() == np.cumsum([0, *LENGTHS]).tolist()
        assert source.spec["observations"].align == "boundary"
        for found, expected in zip(source.episodes(), episodes, strict=True):
            np.testing.assert_array_equal(found.truncations, expected.columns["truncations"])


def test_without_both_terminals_and_the_file_end_cut(tmp_path):
    path = write(tmp_path / "f.hdf5", STEPWISE.episodes(), timeouts=False)
    with FORMAT.open(path) as source:
        assert source.offsets.tolist() == [0, 5, 21, 63]
        assert [bool(e.truncations[-1]) for e in source.episodes()] == [False, False, True]


@pytest.mark.parametrize("limit", [1, 4, 5, 1000])
def test_a_limit_of_steps_cuts(tmp_path, limit):
    """As D4RL counts: steps since the last end."""
    episodes = STEPWISE.episodes()
    path = write(tmp_path / "f.hdf5", episodes, timeouts=False)
    terminals = np.concatenate([e.columns["terminations"] for e in episodes])
    expected, begin = [0], 0
    for i, terminal in enumerate(terminals):
        if terminal or i - begin == limit - 1 or i == len(terminals) - 1:
            begin = i + 1
            expected.append(begin)
    with FORMAT.open(path, max_episode_steps=limit) as source:
        assert source.offsets.tolist() == expected
        assert pickle.loads(pickle.dumps(source)).offsets.tolist() == expected
    write(path, episodes)
    with pytest.raises(FormatError, match="no max_episode_steps"):
        FORMAT.open(path, max_episode_steps=limit)


def qlearning(path, limit=None):
    """The transitions of D4RL's `qlearning_dataset`, from its documented meaning, a row at a time: each row with the
    observation of the next one, none for the last row of the file, and none for a row that timed out."""
    out, steps = [], 0
    with h5py.File(path) as file:
        data = {name: file[name][:] for name in ("observations", "actions", "rewards", "terminals")}
        timeouts = file["timeouts"][:] if "timeouts" in file else None
    for i in range(len(data["rewards"]) - 1):
        timed = timeouts[i] if timeouts is not None else steps == (limit or np.inf) - 1
        steps = 0 if timed or data["terminals"][i] else steps + 1
        if not timed:
            following = None if data["terminals"][i] else data["observations"][i + 1]
            out.append((*(data[name][i] for name in data), following))
    return out


@pytest.mark.parametrize(("timeouts", "limit", "seed"), [(True, None, 1), (False, 4, 2), (False, None, 3)])
def test_transitions_are_those_of_qlearning_dataset(tmp_path, timeouts, limit, seed):
    path = write(tmp_path / "f.hdf5", STEPWISE.episodes(seed), GZIP, timeouts)
    expected = qlearning(path, limit)
    with FORMAT.open(path, transitions=True, max_episode_steps=limit) as source:
        assert source.spec["observations"].align == "boundary"
        found = [
            (c["observations"][t], c["actions"][t], c["rewards"][t], c["terminations"][t], c["observations"][t + 1])
            for c in (episode.columns for episode in source.episodes())
            for t in range(len(c["actions"]))
        ]
        for episode in source.episodes():
            if len(episode) and not episode.terminations[-1]:
                assert episode.truncations.tolist() == [False] * (len(episode) - 1) + [True]
        assert source.spec["infos/qpos"].align == "step"
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one[:4], other[:4], strict=True):
            np.testing.assert_array_equal(a, b)
        following = one[0] if other[3] else other[4]  # of a terminal step there is none: its own stands there
        np.testing.assert_array_equal(one[4], following)


def test_a_terminal_last_row_is_kept(tmp_path):
    """`qlearning_dataset` drops the last row of a file in any case; a terminal one needs nothing after it."""
    episodes = STEPWISE.episodes()[:4]
    path = write(tmp_path / "f.hdf5", episodes)
    with FORMAT.open(path, transitions=True) as source:
        assert source.steps == len(qlearning(path)) + 1
        assert source.episode(-1).terminations[-1]


def test_transitions_of_a_file_with_next_observations_are_refused(tmp_path, episodes):
    with pytest.raises(FormatError, match="next_observations"):
        FORMAT.open(write(tmp_path / "f.hdf5", episodes), transitions=True)
    with pytest.raises(TypeError, match="frames"):
        FORMAT.open(tmp_path / "f.hdf5", frames=3)
    with pytest.raises(TypeError, match="at least 1"):
        FORMAT.open(tmp_path / "f.hdf5", max_episode_steps=0)


def test_batches_of_it(tmp_path, episodes):
    data = penstock.open(write(tmp_path / "f.hdf5", episodes, GZIP))
    batch = data.windows(4, pad="zero").shuffle(seed=1)[:16]
    assert batch["observations"].shape == (16, 4, 11)


def _replaced(file, name, value):
    del file[name]
    file[name] = value


DAMAGE = {
    "fewer rewards": lambda file: _replaced(file, "rewards", np.zeros(5)),
    "rewards of rows": lambda file: _replaced(file, "rewards", np.zeros((63, 2))),
    "fewer observations": lambda file: _replaced(file, "observations", np.zeros((62, 11), "f4")),
    "more next observations": lambda file: _replaced(file, "next_observations", np.zeros((64, 11), "f4")),
    "text terminals": lambda file: _replaced(file, "terminals", ["no"] * 63),
    "terminals of rows": lambda file: _replaced(file, "terminals", np.zeros((63, 2))),
    "a single number of actions": lambda file: _replaced(file, "actions", 1.0),
    "no action": lambda file: _replaced(file, "actions", np.zeros((0, 3))),
    "text observations": lambda file: _replaced(file, "observations", ["no"] * 63),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_with_its_place(tmp_path, episodes, name):
    path = write(tmp_path / "f.hdf5", episodes)
    with h5py.File(path, "a") as file:
        DAMAGE[name](file)
    with pytest.raises(FormatError, match=f"expected .* in {path}") as error:
        FORMAT.open(path)
    assert error.value.where == name.split(" of ")[-1].split()[-1] or error.value.where is not None


def test_next_observations_of_another_dtype_are_kept_beside(tmp_path, episodes):
    path = write(tmp_path / "f.hdf5", episodes)
    with h5py.File(path, "a") as file:
        _replaced(file, "next_observations", file["next_observations"][:].astype("f8"))
    assert FORMAT.open(path).spec["next_observations"].dtype == np.float64


def test_a_group_instead_of_a_dataset(tmp_path, episodes):
    path = write(tmp_path / "f.hdf5", episodes)
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file.create_group("rewards/inner")
    with pytest.raises(FormatError, match="rewards"):
        FORMAT.open(path, kind="d4rl")


def test_rows_that_nobody_wrote(tmp_path, episodes):
    """A dataset may claim any number of rows; what it says costs no memory."""
    path = write(tmp_path / "f.hdf5", episodes)
    with h5py.File(path, "a") as file:
        for name, shape in {"actions": (3,), "observations": (11,), "rewards": (), "terminals": ()}.items():
            del file[name]
            file.create_dataset(name, (1 << 40, *shape), "f4", chunks=(1, *shape))
    with pytest.raises(FormatError):
        FORMAT.open(path)


@pytest.mark.parametrize("options", [PLAIN, GZIP], ids=["contiguous", "gzip"])
def test_any_damage_is_a_value_or_a_format_error(tmp_path, episodes, options):
    path = write(tmp_path / "f.hdf5", episodes, options)
    raw = bytearray(path.read_bytes())
    rng = np.random.default_rng(12)
    outcomes = set()
    for i in range(150):
        bad = bytearray(raw)
        for at in rng.integers(len(raw), size=1 + i % 30):
            bad[at] = int(rng.integers(256))
        path.write_bytes(bad if i % 5 else raw[: int(rng.integers(len(raw)))])
        try:
            for episode in FORMAT.open(path, kind="d4rl").episodes():
                dict(episode.columns)
            outcomes.add("value")
        except FormatError:
            outcomes.add("error")
    assert outcomes == {"value", "error"}


def test_links_to_nowhere_are_left_out_and_named(tmp_path, episodes):
    path = write(tmp_path / "links.hdf5", episodes)
    with h5py.File(path, "a") as file:
        file["infos/goal"], file["infos/same"] = h5py.SoftLink("/nothing"), h5py.SoftLink("/infos/qpos")
        file["other"] = h5py.ExternalLink("../../etc/passwd", "/")
    with pytest.warns(DamageWarning, match="infos/goal .*got one to /nothing"):
        data = penstock.open(path)
    assert "infos/same" in data.spec
    entries = [(entry.reason, entry.where) for entry in data.source.account.left_out if entry.level != "note"]
    assert entries == [("damaged-part", "infos/goal"), ("damaged-part", "other")]
    with h5py.File(path, "a") as file:
        del file["timeouts"]
        file["timeouts"] = h5py.SoftLink("/nowhere")
    with pytest.raises(FormatError, match=r"got one to /nowhere, which is not there - at /timeouts in .*links\.hdf5"):
        penstock.open(path)
