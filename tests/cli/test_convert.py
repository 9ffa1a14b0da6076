"""`penstock convert`, `reshard`, `index` and `film`, on what the originals wrote."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.frames import is_picture, pictures
from tests.cli.conftest import Call

SHARDS = Path(__file__).parents[1] / "golden" / "ilr" / "shards"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path_factory.mktemp("cache")))


def equal(one: Path, other: Path) -> None:
    with penstock.open(one) as a, penstock.open(other) as b:
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            for path in a.spec:
                np.testing.assert_array_equal(x.columns[path], y.columns[path])


def test_convert_reports_and_resumes(call: Call, recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.tar"
    told = call("convert", recording, out, "--json").json
    assert (told["status"], told["episodes"], told["format"], told["notes"]) == ("converted", 4, "webdataset", [])
    equal(recording, out)
    again = call("convert", recording, out)
    assert again.code == 0
    assert "was complete before: 4 episodes" in again.out


def test_convert_chooses(call: Call, recording: Path, tmp_path: Path) -> None:
    told = call("convert", recording, tmp_path / "a", "--episodes", "1:3", "--json").json
    assert told["episodes"] == 2
    orders = []
    for seed in (0, 1, 2, 3):
        out = tmp_path / f"shuffled{seed}"
        assert call("convert", recording, out, "--shuffle", "--seed", seed, "--where", "total_steps > 0").code == 0
        with penstock.open(out) as data:
            orders.append([len(episode) for episode in data])
    assert len(set(map(tuple, orders))) > 1
    shown = call(
        "convert", recording, tmp_path / "b", "--drop", "rewards", "--format", "webdataset", "-O", "shard_episodes=1"
    )
    assert "left out" in shown.out
    assert len(list((tmp_path / "b").glob("shard-*.tar"))) == 4


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--option", "colour=1"), "expected options of columns"),
        (("--option", "colour"), "expected --option key=value"),
        (("--format", "tapes"), "expected a format among"),
        (("--episodes", "x"), "expected episodes as A:B"),
        (("--where", "nothing > 1"), "nothing"),
        (("--open", "nothing=1"), "the format 'columns' has no option 'nothing'; its options are"),
        (("--drop", "nothing"), "to leave out, got 'nothing'"),
        (("--drop", "rewards", "--format", "minari"), "--fill-missing) puts rewards: zeros"),
    ],
)
def test_convert_refuses(
    call: Call, recording: Path, tmp_path: Path, arguments: tuple[object, ...], complaint: str
) -> None:
    answer = call("convert", recording, tmp_path / "out", *arguments)
    assert answer.code == 2
    assert complaint in answer.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["A.tgz", "nometa.tgz", "magical-random.tar.zst"])
@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_reshard_copies_members(call: Call, tmp_path: Path, name: str, compression: str) -> None:
    out = tmp_path / "out"
    told = call("reshard", SHARDS / name, out, "--shard-episodes", 1, "--compression", compression, "--json").json
    assert told["shards"] == told["episodes"] == len(penstock.open(SHARDS / name))
    equal(SHARDS / name, out)
    assert call("reshard", out, tmp_path / "one.tar").code == 0
    equal(SHARDS / name, tmp_path / "one.tar")
    with penstock.open(SHARDS / name) as a, penstock.open(tmp_path / "one.tar") as b:
        assert a.metadata == b.metadata
        assert a.spec == b.spec


def test_reshard_by_bytes_into_another_layout(call: Call, tmp_path: Path) -> None:
    told = call("reshard", SHARDS / "A.tgz", tmp_path / "a", "--shard-bytes", "5kB", "--json").json
    assert told["shards"] > 1
    assert call("reshard", SHARDS / "A.tgz", tmp_path / "b", "--layout", "npy").code == 0
    equal(SHARDS / "A.tgz", tmp_path / "b")
    assert call("info", tmp_path / "b", "--json").json["layout"] == "npy"


def test_reshard_keeps_samples_apart(call: Call, tmp_path: Path) -> None:
    from penstock.containers.tar import TarAppender, member

    (tmp_path / "in").mkdir()
    for shard in range(2):
        members = b"".join(member(f"{i}.cls", str(10 * shard + i).encode()) for i in range(3))
        TarAppender.create(tmp_path / "in" / f"s-{shard}.tar", members).close()
    assert call("reshard", tmp_path / "in", tmp_path / "out.tar").code == 0
    equal(tmp_path / "in", tmp_path / "out.tar")
    assert "is sound" in call("check", tmp_path / "out.tar").out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--compression", "lzma"), "expected a compression"),
        (("--shard-bytes", "much"), "expected a size"),
        (("--layout", "samples"), "expected the layout 'seed'"),
    ],
)
def test_reshard_refuses(call: Call, tmp_path: Path, arguments: tuple[object, ...], complaint: str) -> None:
    answer = call("reshard", SHARDS / "A.tgz", tmp_path / "out", *arguments)
    assert (answer.code, complaint in answer.err) == (2, True)
    assert call("reshard", SHARDS / "A.tgz", tmp_path).code == 2


def test_reshard_says_what_is_no_archive(call: Call, recording: Path, tmp_path: Path) -> None:
    answer = call("reshard", recording, tmp_path / "out")
    assert (answer.code, "expected tar shards, got a dataset of columns; write it" in answer.err) == (2, True)
    assert call("reshard", tmp_path / "nothing.tar", tmp_path / "out").code == 2


def test_index_is_made_once(call: Call, recording: Path, tmp_path: Path) -> None:
    data = Path(shutil.copy(SHARDS / "A_plain.tar", tmp_path / "a.tar"))
    for arguments, made in (((), True), ((), False), (("--force",), True)):
        told = call("index", data, *arguments, "--json").json
        assert (told["made"], told["episodes"], told["samples"]) == (made, 4, 16)
        assert Path(told["index"]).exists()
    assert "no index is kept" in call("index", recording).out
    assert call("index", tmp_path / "nothing").code == 2


def test_axes_and_stacks_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (2, 10, 12, 9), np.uint8)
    np.testing.assert_array_equal(pictures(rgb)[:, -1], rgb[..., 6:])
    np.testing.assert_array_equal(pictures(np.moveaxis(rgb, -1, 1)), pictures(rgb))
    gray: Any = rgb[..., :3]
    assert pictures(gray, "GRAY").shape == (2, 3, 10, 12, 3)
    np.testing.assert_array_equal(pictures(gray, "GRAY")[:, -1, ..., 0], gray[..., -1])
    assert pictures(rgb[..., 0]).shape == (2, 1, 10, 12, 3)
    np.testing.assert_array_equal(pictures(rgb / 255.0), pictures(rgb))
    assert not is_picture((4,))
