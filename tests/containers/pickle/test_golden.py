"""What the originals wrote decodes to what `pickle` makes of it, with stand-ins for the classes that are not here."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from penstock.containers.pickle import ColorSpace, Trajectory, loads
from penstock.core.spaces import Box, Discrete

GOLDEN = Path(__file__).parents[2] / "golden" / "ilr" / "pickles"


class NamedTrajectory(NamedTuple):
    acts: Any
    obs: Any
    rews: Any
    infos: Any


class RecordedTrajectory:
    acts: Any
    obs: Any
    rews: Any
    infos: Any


class StandIn(NamedTuple):
    name: str
    args: tuple[Any, ...]


class Original(pickle.Unpickler):
    """Python's own unpickler: what lies in the files is known here."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".", maxsplit=1)[0] in ("numpy", "collections"):
            return super().find_class(module, name)
        if name == "TrajectoryWithRew":
            return RecordedTrajectory
        if name in ("MILBenchTrajectory", "MAGICALTrajectory"):
            return NamedTrajectory
        if name == "_inflate_object":
            return lambda make, fields: make(fields)
        return lambda *args: StandIn(name, args)


def original(data: bytes) -> Any:
    return Original(io.BytesIO(data)).load()


def pickles() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for file in sorted(GOLDEN.glob("*.gz")):
        raw = gzip.decompress(file.read_bytes())
        if not file.name.endswith(".tar.gz"):
            found[file.name] = raw
            continue
        with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
            found |= {f"{file.name}/{m.name}": tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
    return found


def check_same(ours: Any, theirs: Any) -> None:
    """Equal in type and content, but for arrays' own memory and for what stands in."""
    compare: Callable[[Any, Any], None] | None = COMPARE.get(type(theirs))
    if compare is not None:
        compare(ours, theirs)
    elif isinstance(theirs, list | tuple):
        assert type(ours) is type(theirs)
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            check_same(a, b)
    elif isinstance(theirs, dict):
        assert type(ours) is dict
        assert list(ours) == list(theirs)
        for key, value in theirs.items():
            check_same(ours[key], value)
    else:
        assert type(ours) is type(theirs)
        assert ours == theirs


def check_array(ours: Any, theirs: np.ndarray) -> None:
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    assert not ours.flags.writeable
    if theirs.dtype.hasobject:
        check_same(ours.ravel().tolist(), theirs.ravel().tolist())
    else:
        assert ours.tobytes() == theirs.tobytes()


def check_trajectory(ours: Any, theirs: Any) -> None:
    assert type(ours) is Trajectory
    assert ours.terminal is None
    for name in ("acts", "obs", "rews", "infos"):
        check_same(getattr(ours, name), getattr(theirs, name))


def check_stand_in(ours: Any, theirs: StandIn) -> None:
    match theirs:
        case StandIn("ColorSpace", (value,)):
            assert ours is ColorSpace(value)
        case StandIn("Discrete", (fields,)):
            assert ours == Discrete(fields["n"])
        case StandIn("Box", (fields,)):
            assert ours == Box(fields["low"], fields["high"], fields["dtype"])
            assert ours.shape == fields["shape"]
        case _:
            raise AssertionError(theirs.name)


COMPARE: dict[type[Any], Callable[[Any, Any], None]] = {
    np.ndarray: check_array,
    NamedTrajectory: check_trajectory,
    RecordedTrajectory: check_trajectory,
    StandIn: check_stand_in,
}


@pytest.mark.parametrize("name", sorted({name.split("/")[0] for name in pickles()}))
def test_every_pickle_decodes_to_what_it_is(name: str) -> None:
    members = [data for full, data in pickles().items() if full.split("/")[0] == name]
    for data in members:
        check_same(loads(data), original(data))
    assert len(members) == {"shard_seed.tar.gz": 113, "shard_random.tar.gz": 15}.get(name, 1)


@pytest.mark.parametrize("cut", [0, 1, 2, 11, 100, 5000, 19000, -1])
def test_half_a_pickle_is_malformed(cut: int) -> None:
    data = pickles()["dm_control.pkl.gz"]
    with pytest.raises(ValueError, match=r"byte \d+ of the pickle reacher"):
        loads(data[:cut], where="reacher")


def test_a_trajectory_keeps_what_the_loaders_drop() -> None:
    demo = loads(pickles()["magical_2.pkl.gz"])
    assert demo["env_name"].startswith("MoveToRegion")
    assert len(demo["trajectory"].obs) == len(demo["trajectory"].acts) + 1 == len(demo["trajectory"].rews) + 1
    assert "eval_score" in demo["trajectory"].infos[-1]
