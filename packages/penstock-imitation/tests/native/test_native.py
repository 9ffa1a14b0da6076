"""What all native kinds share: bytes, headers, infos, frames; and what each leaves to others."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.errors import FormatError, UnsafeDataError
from penstock.formats.base.infos import read_infos
from penstock.formats.columns import FORMAT as COLUMNS
from penstock.formats.demos.imitation import opening
from penstock.formats.demos.trajectories import Frames, Track, cuts, source_of, stack_index
from penstock.formats.minari import FORMAT as MINARI
from penstock.formats.webdataset import FORMAT as TAR
from penstock_imitation.formats.native import FORMAT
from penstock_imitation.formats.native.atari import AtariKind
from penstock_imitation.formats.native.dm_control import DmControlKind
from penstock_imitation.formats.native.magical import MagicalKind
from penstock_imitation.formats.native.minerl import MineRLKind
from penstock_imitation.formats.native.procgen import ProcgenKind
from penstock_imitation.formats.native.unpack import head_of, unpacked

KINDS = (MagicalKind(), DmControlKind(), AtariKind(), ProcgenKind(), MineRLKind())
GOLDEN = Path(__file__).parents[4] / "tests" / "golden"
NATIVE = {
    "magical": "magical/move-to-region",
    "dm_control": "dm_control/reacher-easy-synth.pkl.gz",
    "atari": "atari/pong_synth.npz",
    "procgen": "procgen/demo_coinrun.pickle",
    "minerl": "minecraft/MineRLNavigateVectorObf-v0",
}


@pytest.mark.parametrize("name", list(NATIVE))
def test_each_kind_knows_its_own_and_no_other(name: str) -> None:
    path = GOLDEN / "ilr" / "native" / NATIVE[name]
    assert [kind.name for kind in KINDS if kind.recognises(path)] == [name]
    data = penstock.open(path)
    assert data.source.metadata["kind"] == name
    assert list(FORMAT.check(path)) == []


def test_other_datasets_are_left_alone(tmp_path: Path) -> None:
    spec = Spec({"rewards": Field(np.dtype("f8"))})
    COLUMNS.create(tmp_path / "store", spec).close()
    others = [tmp_path, tmp_path / "store", tmp_path / "nothing", Path("/"), Path("/dev/null"), Path("x" * 5000)]
    others += [*(GOLDEN / "minari").rglob("*"), *(GOLDEN / "ilr" / "shards").iterdir()]
    assert len(others) > 50
    for path in others:
        assert [kind.name for kind in KINDS if kind.recognises(path)] == [], str(path)[:99]
    for path in NATIVE.values():
        assert not MINARI.recognises(GOLDEN / "ilr" / "native" / path)
        assert not TAR.recognises(GOLDEN / "ilr" / "native" / path)


@given(st.binary(max_size=200), st.booleans())
def test_recognition_never_raises(tmp_path_factory: pytest.TempPathFactory, data: bytes, packed: bool) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(gzip.compress(data) if packed else data)
    for kind in KINDS:
        assert kind.recognises(path) in (True, False)
    opening(data, 5)


def test_what_lies_about_its_length_is_not_executed() -> None:
    for head in (b"\x80\x04\x8d" + b"\xff" * 8, b"\x80\x04]" + b"\x8e" + b"\xff" * 8 + b"x", b"I9" * 3000, b"\x80\x04"):
        assert opening(head, 4) in ([], ["EMPTY_LIST"])


def test_gzips_are_bounded_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(1 << 22)))
    assert len(unpacked(path, 1 << 22)) == 1 << 22
    with pytest.raises(UnsafeDataError, match=r"max_bytes.*a\.gz"):
        unpacked(path, (1 << 22) - 1)
    assert head_of(path, ".gz", 10) == bytes(10)
    path.write_bytes(gzip.compress(b"one") + gzip.compress(b"two"))
    assert unpacked(path) == b"onetwo"
    for bad in (gzip.compress(b"x" * 100)[:-4], b"\x1f\x8b", gzip.compress(b"x" * 100)[:-8] + bytes(8)):
        path.write_bytes(bad)
        with pytest.raises(FormatError, match="gzip"):
            unpacked(path)


@given(st.lists(st.booleans(), min_size=1, max_size=12))
def test_episodes_of_a_list_of_dones(dones: list[bool]) -> None:
    """Every step but the last is in one episode, which ends where it is done, and only there."""
    found = cuts(np.array(dones))
    steps = [t for a, b in found for t in range(a, b)]
    assert steps == list(range(len(dones) - 1))
    for a, b in found:
        assert not any(dones[a : b - 1])
        assert b == len(dones) - 1 or dones[b - 1]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 5), st.booleans(), st.sampled_from([0, -1]),
    st.integers(0, 1000),
)  # fmt: skip
def test_stacks_equal_a_loop(lengths: list[int], k: int, repeat: bool, axis: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    runs = [rng.integers(0, 256, (n, 2, 3), dtype=np.uint8) for n in lengths]
    expected = []
    for run in runs:
        for t in range(len(run)):
            before = [t - k + 1 + i for i in range(k)]
            frames = [run[max(i, 0)] if repeat or i >= 0 else np.zeros((2, 3), np.uint8) for i in before]
            expected.append(np.concatenate(frames, axis=axis))
    frames = Frames(runs, stack_index(lengths, k, repeat=repeat), axis)
    rows = rng.integers(0, len(frames), 4)
    one = np.ones(3, np.int64)
    out = np.full((6, *frames.shape), 7, np.uint8)
    frames.read(Selection(one * 0, rows[:3], one, np.array([0, 2, 5]), (2, 3)), out)
    for place, row in ((0, rows[0]), (2, rows[1]), (5, rows[2])):
        np.testing.assert_array_equal(out[place], expected[row])
    assert (out[[1, 3, 4]] == 7).all()
    again = pickle.loads(pickle.dumps(frames))
    assert again.digest() == frames.digest()
    assert (
        frames.digest() != Frames(runs, stack_index(lengths, k, repeat=repeat) * 0, axis).digest() or max(lengths) == 1
    )


def test_infos_find_their_place() -> None:
    steps: list[dict[str, Any]] = [
        {"x": 1, "deep": {"y": np.zeros(2)}, "word": "a", "big": 1 << 70, "mixed": 1, "odd": np.zeros(2)},
        {"x": 2.5, "deep": {"y": np.ones(2)}, "word": "é", "big": 1, "mixed": True, "odd": np.zeros(3)},
        {"x": 3, "deep": {"y": np.ones(2)}, "word": "", "big": 1, "mixed": 0, "odd": 1, "won": np.float32(0.5)},
    ]
    steps[1]["some"] = 4
    found = read_infos(steps, np.array([0, 2]))
    assert list(found.columns) == ["infos/x", "infos/deep/y", "infos/word"]
    assert found.columns["infos/x"][1].tolist() == [1.0, 2.5, 3.0]  # type: ignore[union-attr]
    assert found.episodes == [{}, {"infos/won": 0.5}]
    assert sorted(found.left_out) == ["infos/big", "infos/mixed", "infos/odd", "infos/some"]
    assert read_infos([], np.array([-1])).columns == {}


def test_trajectories_that_have_something_that_others_lack() -> None:
    def track(steps: int, **more: Any) -> Track:
        return Track({"": [np.zeros((steps + 1, 2))]}, {"": np.zeros(steps)}, **more)

    with_all = track(2, rewards=np.ones(2), infos=[{"a": 1}, {"a": 2}])
    assert "rewards" in source_of([with_all], {}, path=None).spec
    mixed = source_of([with_all, track(3)], {}, path=None)
    assert list(mixed.spec) == ["observations", "actions", "terminations", "truncations"]
    assert [each.where for each in mixed.account.left_out] == ["infos", "rewards"]
    with pytest.raises(FormatError, match="at least one"):
        source_of([], {}, path="x")
    with pytest.raises(FormatError, match="trajectory 1"):
        source_of([track(1), Track({"": [np.zeros((2, 2))]}, {"a": np.zeros(1)})], {}, path="x")
