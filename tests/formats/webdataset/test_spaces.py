"""Spaces in the layout of steps, where the original has no place for them: arrays, and the lists of older versions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.containers.tar import TarAppender, member, walk
from penstock.core.spaces import Box, Dict, Discrete, Space, Tuple
from penstock.files.mapping import map_file
from penstock.formats.webdataset import seed, seed_writer
from penstock.formats.webdataset.content import index_file
from penstock.formats.webdataset.seed_writer import dumps
from penstock.formats.webdataset.source import ShardSource

SIDE = 16


def box(low: object, high: object, dtype: str = "u1") -> Box:
    return Box(*(np.broadcast_to(bound, (SIDE, SIDE, 3)) for bound in (low, high)), np.dtype(dtype))  # pyright: ignore[reportArgumentType, reportCallIssue]


RAMP = np.arange(SIDE * SIDE * 3).reshape(SIDE, SIDE, 3) % 200
SPACES = {
    "constant": Dict({"allo": box(0, 255), "ego": box(0, 255)}),
    "each its own": Dict({"allo": box(RAMP, 255), "ego": box(3, RAMP + 20)}),
}


def spec_of(space: Space) -> penstock.Spec:
    pixels = penstock.Field(np.dtype("u1"), (SIDE, SIDE, 3), "boundary")
    flag = penstock.Field(np.dtype("bool"))
    fields = {"observations/allo": pixels, "observations/ego": pixels, "actions": penstock.Field(np.dtype("i8"))}
    return penstock.Spec({**fields, "terminations": flag, "truncations": flag}, space, Discrete(18))


def write(path: Path, spec: penstock.Spec, steps: int = 2) -> None:
    last = np.arange(steps) == steps - 1
    pixels = np.full((steps + 1, SIDE, SIDE, 3), 100, np.uint8)
    columns = {"observations/allo": pixels, "observations/ego": pixels, "actions": np.arange(steps)}
    with seed_writer.SeedWriter.create(path, spec) as writer:
        writer.write(penstock.Episode(spec, {**columns, "terminations": last, "truncations": last & False}))


@pytest.mark.parametrize("name", SPACES)
def test_spaces_of_dicts_come_back_and_take_no_more_than_their_bounds(name: str, tmp_path: Path) -> None:
    spec = spec_of(SPACES[name])
    write(tmp_path / "a.tar", spec)
    with ShardSource(tmp_path / "a.tar") as source:
        assert source.spec == spec
    head = int(walk(map_file(tmp_path / "a.tar"), tmp_path / "a.tar").size[0])
    own = 2 * RAMP.size if name == "each its own" else 0  # two of the bounds are not one number
    assert head < 1200 + own


def test_spaces_within_tuples_too(tmp_path: Path) -> None:
    space = Tuple((Dict({"a": box(-np.inf, RAMP, "f4")}), Discrete(3)))
    number, flag = penstock.Field(np.dtype("i8")), penstock.Field(np.dtype("bool"))
    fields = {"actions/0/a": penstock.Field(np.dtype("f4"), (SIDE, SIDE, 3)), "actions/1": number}
    fields |= {"observations": penstock.Field(np.dtype("i8"), (), "boundary")}
    spec = penstock.Spec({**fields, "terminations": flag, "truncations": flag}, None, space)
    columns = {"actions/0/a": np.zeros((1, SIDE, SIDE, 3), "f4"), "actions/1": np.zeros(1, "i8")}
    columns |= {"observations": np.zeros(2, "i8"), "terminations": np.ones(1, "?"), "truncations": np.zeros(1, "?")}
    with seed_writer.SeedWriter.create(tmp_path / "a.tar", spec) as writer:
        writer.write(penstock.Episode(spec, columns))
    with ShardSource(tmp_path / "a.tar") as source:
        assert source.spec.action_space == space


def test_archives_of_older_versions_have_nested_lists(tmp_path: Path) -> None:
    spec = spec_of(SPACES["each its own"])
    write(tmp_path / "new.tar", spec)
    space = spec.observation_space
    assert space is not None
    told = {"env_cfg": {}, "action_space": Discrete(18)}
    fields = {path: field.to_json() for path, field in spec.items()}
    told[seed.SPEC] = {"fields": fields, "observation_space": space.to_json()}
    data = map_file(tmp_path / "new.tar")
    members = walk(data, tmp_path / "new.tar")
    head = member(seed_writer.HEAD, dumps(told))
    TarAppender.create(tmp_path / "old.tar", head + data[int(members.header[1]) : members.end].tobytes()).close()
    with ShardSource(tmp_path / "old.tar") as source:
        assert source.spec == spec


def test_the_index_has_no_number_for_every_pixel_either(tmp_path: Path) -> None:
    for name, space in SPACES.items():
        path = tmp_path / name.replace(" ", "") / "a.tar"
        path.parent.mkdir()
        write(path, spec_of(space), steps=400)
        for _ in range(2):  # the index is made, then read
            with ShardSource(path) as source:
                assert source.spec == spec_of(space)
    sizes = [index_file(tmp_path / name / "a.tar").path.stat().st_size for name in ("constant", "eachitsown")]
    assert sizes[0] + 2 * RAMP.size < sizes[1]
