"""Datasets that tensorflow-datasets wrote are read as TensorFlow reads them."""

# pyright: basic

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.ragged import Ragged
from penstock.errors import DamageWarning, FormatError
from penstock.formats.base.format import recognise
from penstock.formats.rlds import FORMAT

GOLDEN = Path(__file__).parents[2] / "golden/rlds"
EXPECTED: Any = np.load(GOLDEN / "expected.npz")
NAMES = {
    **{f"observations/{name}": name for name in ("state", "lidar", "depth")},
    **{"actions": "action", "rewards": "reward", "discounts": "discount", "terminations": "is_terminal"},
    **{"language_embedding": "language_embedding", "tag": "tag"},
}
FOLDERS = ["tfrecord/toy_arm", "tfrecord/toy_arm/1.0.0"]


TRAIN, VAL = ("train", (9, 4, 8, 4, 6, 10, 3, 5, 3)), ("val", (6, 5, 9))


@pytest.mark.parametrize(
    ("folder", "split", "lengths"),
    [
        (FOLDERS[0], *TRAIN),
        (FOLDERS[0], *VAL),
        (FOLDERS[1], *TRAIN),
        ("array_record/toy_arm", *TRAIN),
        ("array_record/toy_arm", *VAL),
    ],
)
def test_every_value_is_what_tensorflow_reads(folder: str, split: str, lengths: tuple[int, ...]) -> None:
    assert recognise(GOLDEN / folder)[0].name == "rlds"
    with penstock.open(GOLDEN / folder, split=split) as data:
        assert np.diff(data.source.offsets).tolist() == list(lengths)
        assert data.metadata["last_step"] == "step"
        for e in range(len(data)):
            episode = data[e]
            expected = {name: EXPECTED[f"{split}/{e}/{name}"] for name in (*NAMES.values(), "is_last", "language")}
            for column, name in NAMES.items():
                assert episode.columns[column].dtype == expected[name].dtype
                np.testing.assert_array_equal(episode.columns[column], expected[name], column)
            ends = expected["is_last"] & ~expected["is_terminal"]
            np.testing.assert_array_equal(episode.columns["truncations"], ends)
            assert episode.columns["language_instruction"].strings() == expected["language"].tolist()
            found = hashlib.sha256(np.ascontiguousarray(episode.columns["observations/image"])).digest()
            assert found == EXPECTED[f"{split}/{e}/image_sha256"].tobytes()
            assert dict(episode.metadata) == {
                "file_path": str(EXPECTED[f"{split}/{e}/file_path"]),
                "success": bool(EXPECTED[f"{split}/{e}/success"]),
            }


@pytest.mark.parametrize("split", ["train", "val"])
def test_jpeg_is_what_tensorflow_decodes(split: str) -> None:
    wrist = "observations/wrist_image"
    accurate, fast = (penstock.open(GOLDEN / FOLDERS[0], split=split, jpeg=jpeg) for jpeg in ("accurate", "fast"))
    found = accurate[1].columns[wrist].astype(int)
    assert np.abs(found - EXPECTED[f"{split}/1/wrist_image_accurate"]).max() <= 1
    np.testing.assert_array_equal(fast[1].columns[wrist], EXPECTED[f"{split}/1/wrist_image"])  # TensorFlow's default
    rows = fast.source.offsets[1] + np.arange(len(fast[1]))
    np.testing.assert_array_equal(fast.steps()[rows][wrist], EXPECTED[f"{split}/1/wrist_image"])
    assert fast.source.fingerprint != accurate.source.fingerprint
    assert pickle.loads(pickle.dumps(fast.source)).fingerprint == fast.source.fingerprint


LISTS: Any = np.load(GOLDEN / "lists_expected.npz")


@pytest.mark.parametrize("config", ["few", "more"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_lists_within_steps_are_what_tensorflow_reads(config: str, split: str) -> None:
    expected = {name.split("/", 2)[2]: LISTS[name] for name in LISTS if name.startswith(f"{config}/{split}/")}
    with pytest.warns(DamageWarning, match="left out 1 column: steps/words"):
        data = penstock.open(f"{GOLDEN / 'lists'}:{split}", config=config)
    assert np.diff(data.source.offsets).tolist() == expected.pop("T").tolist()
    for name, entry in (("who", "episode_metadata/who"), ("run", "episode_metadata/run")):
        assert [e.metadata[name] for e in data.source.episodes()] == expected.pop(entry).tolist()
    is_first, is_last = expected.pop("steps/is_first"), expected["steps/is_last"]
    np.testing.assert_array_equal(np.flatnonzero(is_first), data.source.offsets[:-1])
    expected["steps/is_last"] = is_last & ~expected["steps/is_terminal"]  # truncations
    for column, name in data.metadata["names"].items():
        parts = [episode.columns[column] for episode in data.source.episodes()]
        if f"{name}:lengths" in expected:
            rows = Ragged.concatenate([part for part in parts if isinstance(part, Ragged)])
            values = expected.pop(f"{name}:values")
            assert rows.lengths.tolist() == expected.pop(f"{name}:lengths").tolist()
            assert rows.dtype == values.dtype
            np.testing.assert_array_equal(rows.values, values, column)
        else:
            assert parts[0].dtype == expected[name].dtype
            np.testing.assert_array_equal(np.concatenate(parts), expected.pop(name), column)
    assert not expected


def test_both_containers_of_the_same_data_are_equal() -> None:
    one, other = (penstock.open(GOLDEN / f"{kind}/toy_arm:val").source for kind in ("tfrecord", "array_record"))
    assert [e.metadata["file_path"] for e in one.episodes()] == [e.metadata["file_path"] for e in other.episodes()]
    order = np.random.default_rng(1).permutation(one.steps)
    batches = [penstock.EpisodeDataset(source).steps()[order] for source in (one, other)]
    for path in one.spec:
        for row, expected in zip(_rows(batches[0][path]), _rows(batches[1][path]), strict=True):
            np.testing.assert_array_equal(row, expected)


def test_rows_in_any_order_equal_whole_episodes() -> None:
    data = penstock.open(GOLDEN / FOLDERS[0], split="all")
    assert (len(data), data.source.steps) == (12, 72)
    samples, windows = data.steps(), data.windows(3, pad="zero")
    rng = np.random.default_rng(0)
    order = rng.permutation(72)
    batch = samples[order]
    whole = {path: [row for e in range(12) for row in _rows(data[e].columns[path])] for path in data.spec}
    for path in data.spec:
        for place, row in enumerate(order.tolist()):
            np.testing.assert_array_equal(_rows(batch[path])[place], whole[path][row])
    assert len(windows[rng.permutation(len(windows))]["observations/image"]) == len(windows)


def _rows(column: Any) -> list[Any]:
    return column.strings() if hasattr(column, "strings") else list(column)


def test_the_last_step_can_be_an_observation_alone() -> None:
    full = penstock.open(GOLDEN / FOLDERS[1])
    data = penstock.open(GOLDEN / FOLDERS[1], last_step="observation")
    assert np.diff(data.source.offsets).tolist() == [8, 3, 7, 3, 5, 9, 2, 4, 2]
    for e in range(len(data)):
        one, other = data[e].columns, full[e].columns
        for path in data.spec:
            field = data.spec[path]
            if path in ("terminations", "truncations"):
                np.testing.assert_array_equal(one[path], other[path][1:])
            elif field.align == "boundary":
                assert [str(a) for a in _rows(one[path])] == [str(a) for a in _rows(other[path])]
            else:
                np.testing.assert_array_equal(one[path], other[path][:-1])
    aligns = {path: data.spec[path].align for path in ("observations/state", "tag", "actions", "discounts", "rewards")}
    assert list(aligns.values()) == ["boundary", "boundary", "step", "step", "step"]
    assert data.source.fingerprint != full.source.fingerprint


def test_an_index_is_kept_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    first = FORMAT.open(GOLDEN / FOLDERS[1])
    assert len(list((tmp_path / "rlds").iterdir())) == 1
    monkeypatch.setattr("penstock.formats.rlds.index.index_records", None)
    second = FORMAT.open(GOLDEN / FOLDERS[1])
    assert second.fingerprint == first.fingerprint
    np.testing.assert_array_equal(second.episode(3).columns["actions"], first.episode(3).columns["actions"])
    with pytest.raises(FormatError):
        FORMAT.open(GOLDEN / FOLDERS[1], cache="off")
