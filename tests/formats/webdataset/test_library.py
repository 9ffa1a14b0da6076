"""The webdataset library and we read each other's shards."""

from __future__ import annotations

import gzip
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from PIL import Image
from webdataset import tariterators

import penstock
from penstock.formats.webdataset import FORMAT
from penstock.formats.webdataset.source import ShardSource
from penstock.testing.examples import FLAT, IMAGES, NESTED, RAGGED, Example

GOLDEN = Path(__file__).parents[2] / "golden" / "ilr" / "shards"


def image(i: int) -> Any:
    return np.arange(60, dtype="u1").reshape(4, 5, 3) + np.uint8(i)


def test_every_default_encoder_of_the_library_is_read() -> None:
    with ShardSource(GOLDEN / "webdataset-1.0.2.tar.gz", images="rgb") as found:
        assert (found.layout, len(found), found.metadata) == ("samples", 4, {})
        for i, episode in enumerate(found.episodes()):
            c = episode.columns
            assert (c["a.json/x"].tolist(), c["a.json/v"].tolist()) == ([i], [[i, i + 1]])
            assert (c["a.json/words"].strings(), c["d.txt"].strings()) == ([f"n{i}"], [f"héllo {i}"])
            assert (c["b.npy"].dtype, c["b.npy"].tolist()) == (np.float32, np.full((1, 2, 3), i).tolist())
            assert (c["c.npz/left"].tolist(), c["c.npz/right"].tolist()) == ([[i, i + 1, i + 2]], [[i, i]])
            assert (c["e.cls"].tolist(), c["k.id"].tolist()) == ([7 * i - 3], [i])
            np.testing.assert_array_equal(c["f.png"][0], image(i))
            assert (c["g.mp/m"].tolist(), c["g.mp/raw"].blobs(), c["h.cbor/c"].tolist()) == ([i], [b"x" * i], [i / 2])
            assert (c["j.pyd/p"].tolist(), c["j.pyd/q"].tolist()) == ([[0, i]], [i])
            assert c["l.bin"].blobs() == [bytes([i]) * i]
            assert c["i.pth"].tolist() == [[i, i + 1, i + 2]]  # what torch saved is read as data
            assert found.sample(i)["m.ten"].startswith(b"~TenBin~")


def test_several_shards_of_the_library() -> None:
    data = penstock.open(f"{GOLDEN}/webdataset-{{00..01}}.tar.gz")
    assert data.steps()[:]["e.cls"].tolist() == [-3, 4, 11, 18]


def grouped(path: Path) -> list[dict[str, Any]]:
    """The samples of the library, from a file that is ours to close."""
    with gzip.open(path) if path.suffix == ".tgz" else path.open("rb") as stream:
        files = tariterators.tar_file_expander([{"url": str(path), "stream": stream}])
        return [sample for sample in tariterators.group_by_keys(files) if sample["__key__"] != "_metadata"]


@pytest.mark.parametrize("example", [FLAT, IMAGES, NESTED, RAGGED], ids=str)
@pytest.mark.parametrize("end", [".tar", ".tgz"])
def test_our_own_layout_is_read_by_the_library(example: Example, end: str, tmp_path: Path) -> None:
    episodes, path = example.episodes(seed=3), tmp_path / f"a{end}"
    with FORMAT.create(path, example.spec) as writer:
        writer.write_all(episodes)
    found = list(webdataset.decode()(grouped(path)))
    assert [sample["__key__"] for sample in found] == [f"episode_{i:09d}" for i in range(len(episodes))]
    for sample, episode in zip(found, episodes, strict=True):
        for name, array in episode.columns.items():
            key = name.replace("/", ".").lower()
            if isinstance(array, penstock.Ragged):
                np.testing.assert_array_equal(sample[f"{key}.values.npy"], array.values)
                np.testing.assert_array_equal(sample[f"{key}.offsets.npy"], array.offsets)
            else:
                assert sample[f"{key}.npy"].dtype == array.dtype
                np.testing.assert_array_equal(sample[f"{key}.npy"], array)


def test_the_seeds_layout_is_read_by_the_library(tmp_path: Path) -> None:
    with ShardSource(GOLDEN / "A.tgz") as source:
        episodes = list(source.episodes())
        with FORMAT.create(tmp_path / "a", source.spec, source.metadata, layout="seed", shard_episodes=2) as writer:
            writer.write_all(episodes)
    shards = sorted((tmp_path / "a").glob("*.tar"))
    samples = [sample for shard in shards for sample in grouped(shard)]
    expected = np.load(GOLDEN / "A_steps.npz")
    for name in expected:
        values = [pickle.loads(sample[f"{name}.pickle"]) for sample in samples]
        np.testing.assert_array_equal(np.array(values), expected[name])


def test_a_picture_of_the_library_stays_encoded_unless_asked() -> None:
    with ShardSource(GOLDEN / "webdataset-1.0.2.tar.gz") as found:
        raw = found.episode(2).columns["f.png"].blobs()[0]
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(raw))), image(2))
