"""RLDS behind a URL: records are found by their heads, and fetched when their episodes are read."""

# pyright: basic

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.errors import ChangedObjectError, ChecksumError, DamageWarning, RemoteError
from penstock.files.remote import filled
from penstock.formats.rlds import index as rlds_index
from penstock.formats.rlds.index import ARRAYS
from penstock.kernels.examples import PART
from penstock.locations.blocks import BLOCK
from penstock.locations.mirror import MIRRORS
from tests.locations.server import Request, Site, serving

GOLDEN = Path(__file__).parents[1] / "golden/rlds"
STEPS = [30, 50, 35, 40, 20, 55, 25, 45, 30, 40]
IMAGE = 20_000  # bytes of an image, which no compression makes smaller
TINY = 4  # a record that is smaller than a block, between the large ones


def written(folder: Path, seed: int = 7) -> Path:
    """A shard of ten large records and a small one: up to 2 MB, two cameras and a few numbers each."""
    steps = [*STEPS[:TINY], 1, *STEPS[TINY:]]
    rng = np.random.default_rng(seed)
    columns = {
        "observations/a": rng.integers(0, 256, (sum(steps), 100, 200, 1), np.uint8),
        "observations/state": rng.normal(size=(sum(steps), 5)).astype(np.float32),
        "observations/z": rng.integers(0, 256, (sum(steps), 50, 400, 1), np.uint8),
        "actions": rng.normal(size=(sum(steps), 3)).astype(np.float32),
        "rewards": rng.normal(size=sum(steps)).astype(np.float32),
    }
    align = {name: "step" for name in columns if name.startswith("observations")}
    data = penstock.from_arrays(columns, steps, align=align)
    penstock.convert(data, folder / "set", format="rlds", options={"images": "raw"})
    return folder / "set"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("large"))


@pytest.fixture
def copied(path: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return shutil.copytree(path, tmp_path / "set")


def files_of(path: Path) -> dict[str, bytes]:
    return {f"set/{p.relative_to(path)}": p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


def shard_of(files: dict[str, bytes]) -> str:
    return next(name for name in files if "tfrecord" in name or "array_record" in name)


def fetched(site: Site, name: str | None = None) -> int:
    return sum((r.end or 0) + 1 - (r.begin or 0) for r in site.gets(name))


def records_of(data: penstock.EpisodeDataset) -> Any:
    return data.source.state.records


def same_index(found: Any, wanted: Any) -> None:
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name), name)
    assert found.damaged == wanted.damaged


def same_values(found: penstock.EpisodeDataset, wanted: penstock.EpisodeDataset, episode: int) -> None:
    assert list(found.spec) == list(wanted.spec)
    one, other = found[episode], wanted[episode]
    assert dict(one.metadata) == dict(other.metadata)
    for name in wanted.spec:
        np.testing.assert_array_equal(np.asarray(one.columns[name]), np.asarray(other.columns[name]), name)


def test_records_are_found_by_their_heads_and_an_episode_fetches_its_record(path: Path) -> None:
    files = files_of(path)
    shard = shard_of(files)
    with serving(files) as site, penstock.open(path) as local:
        with penstock.open(f"{site.url}/set") as data:
            assert fetched(site, shard) < len(files[shard]) / 3  # about four of fifteen blocks of each record
            same_index(records_of(data).index, records_of(local).index)
            assert data.source.fingerprint == local.source.fingerprint
            assert data.spec == local.spec
            for episode in (3, TINY, 8):
                MIRRORS.cache().evict(0)
                site.seen.clear()
                same_values(data, local, episode)
                size = int(records_of(local).index.size[episode])
                assert size <= fetched(site) <= size + 4 * BLOCK
        MIRRORS.cache().evict(0)
        site.seen.clear()
        with penstock.open(f"{site.url}/set") as again:  # the index is kept
            assert fetched(site, shard) <= 4 * BLOCK
            assert again.source.fingerprint == local.source.fingerprint


def test_without_checksums_a_column_fetches_its_own_lists(path: Path) -> None:
    with (
        serving(files_of(path)) as site,
        penstock.open(path) as local,
        penstock.open(f"{site.url}/set", verify=False, columns=["actions", "observations/a"]) as data,
    ):
        MIRRORS.cache().evict(0)
        site.seen.clear()
        actions = data.steps().select_columns("actions")[:]["actions"]
        np.testing.assert_array_equal(actions, local.steps().select_columns("actions")[:]["actions"])
        assert fetched(site) <= 3 * BLOCK * len(data)
        site.seen.clear()
        images = data[5].columns["observations/a"]
        np.testing.assert_array_equal(images, local[5].columns["observations/a"])
        assert -3 * BLOCK <= fetched(site) - IMAGE * len(images) <= 3 * BLOCK


def damaged(name: str, raw: bytes, begin: list[int], size: list[int]) -> bytes:
    """A shard with one kind of damage in its middle."""
    changed = bytearray(raw)
    if name == "size of a record":
        changed[begin[6] - 12] ^= 1
    elif name == "message":
        changed[begin[6]] ^= 0xFF
    elif name == "value":
        changed[begin[6] + size[6] // 2] ^= 1
    elif name == "cut":
        del changed[begin[6] + size[6] // 2 :]
    elif name == "cut in a head":
        del changed[begin[6] - 5 :]
    elif name == "tail":
        changed[begin[6] + size[6] + 1] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("name", ["size of a record", "message", "value", "cut", "cut in a head", "tail"])
def test_damage_is_what_it_is_in_a_local_file(name: str, copied: Path) -> None:
    path = copied
    files = files_of(path)
    shard = shard_of(files)
    with penstock.open(path) as whole:
        index = records_of(whole).index
    files[shard] = damaged(name, files[shard], index.begin.tolist(), index.size.tolist())
    (path.parent / shard).write_bytes(files[shard])
    with warnings.catch_warnings(), serving(files) as site:
        warnings.simplefilter("ignore", DamageWarning)
        with penstock.open(path) as local, penstock.open(f"{site.url}/set") as data:
            same_index(records_of(data).index, records_of(local).index)
            assert data.metadata == local.metadata
            for episode in range(5, len(local)):
                try:
                    local[episode]
                except ChecksumError:
                    with pytest.raises(ChecksumError, match=f"record {episode}"):
                        data[episode]
                else:
                    same_values(data, local, episode)
        found = [[(f.name, f.where) for f in penstock.check(place).findings] for place in (path, f"{site.url}/set")]
        assert found[0] == found[1]
        assert found[0] != []


@pytest.mark.parametrize("kind", ["tfrecord", "array_record"])
@pytest.mark.parametrize("least", [0, rlds_index.LARGE])
def test_files_of_tfds_are_read_by_heads_and_whole(kind: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rlds_index, "LARGE", least)
    path = GOLDEN / kind / "toy_arm/1.0.0"
    for split in ("train", "val"):
        with (
            serving(files_of(path)) as site,
            penstock.open(path, split=split) as local,
            penstock.open(f"{site.url}/set", split=split) as data,
        ):
            same_index(records_of(data).index, records_of(local).index)
            same_values(data, local, 1)
            windows = [each.windows(3, pad="zero").shuffle(seed=2)[:] for each in (data, local)]
            for name in windows[1]:
                values = [getattr(each[name], "values", each[name]) for each in windows]
                np.testing.assert_array_equal(*values, name)


def test_a_chunk_of_an_array_record_is_fetched_alone() -> None:
    path = GOLDEN / "array_record/toy_arm/1.0.0"
    with serving(files_of(path)) as site, penstock.open(f"{site.url}/set", split="train") as data:
        records = records_of(data)
        wanted = records.remote_ranges(np.array([1]), ())
        assert len(wanted) == 1
        ((_, begin, end),) = wanted
        assert 0 < int((end - begin).sum()) < 131072
        with filled(wanted):
            raw, first = records.bytes_of(1)
        assert len(raw) - first >= records.index.size[1]


def no_ranges(site: Site) -> None:
    site.ranges = False


def errors(site: Site) -> None:
    """Every other request fails once, with an answer that is repeated or cut."""
    seen: set[tuple[str, int | None]] = set()

    def fault(request: Request) -> int | str | None:
        key = request.name, request.begin
        if request.begin is None or key in seen:
            return None
        seen.add(key)
        return [503, "cut", None][len(seen) % 3]

    site.fault = fault


@pytest.mark.parametrize("fault", [no_ranges, errors])
def test_hostile_servers(fault: Callable[[Site], None], path: Path) -> None:
    with serving(files_of(path)) as site, penstock.open(path) as local:
        fault(site)
        with penstock.open(f"{site.url}/set") as data:
            same_index(records_of(data).index, records_of(local).index)
            for episode in (9, 0):
                same_values(data, local, episode)


def test_a_shard_that_changes_is_an_error_and_its_index_is_made_again(path: Path, tmp_path: Path) -> None:
    files = files_of(path)
    shard = shard_of(files)
    with serving(files) as site:
        with penstock.open(f"{site.url}/set") as data:
            other = written(tmp_path, seed=8)
            for name, raw in files_of(other).items():
                site.change(name, raw)
            with pytest.raises(ChangedObjectError):
                data[2]
        with penstock.open(f"{site.url}/set") as data, penstock.open(other) as local:
            same_values(data, local, 2)
        site.fault = lambda request: 403 if request.name == shard and request.begin else None
        MIRRORS.cache().evict(0)
        with penstock.open(f"{site.url}/set") as data, pytest.raises(RemoteError, match="403"):
            data[8]


def test_errors_of_the_server_do_not_decide_what_the_last_step_has(copied: Path) -> None:
    (copied / "penstock.json").unlink()
    with serving(files_of(copied)) as site:
        with penstock.open(f"{site.url}/set"):
            pass
        MIRRORS.cache().evict(0)
        site.fault = lambda request: 403 if request.begin else None
        with pytest.raises(RemoteError):
            penstock.open(f"{site.url}/set")


def test_lengths_that_are_not_stated_let_shards_be_fetched_whole(copied: Path) -> None:
    path = copied
    info = json.loads((path / "dataset_info.json").read_text())
    del info["splits"]
    (path / "dataset_info.json").write_text(json.dumps(info))
    files = files_of(path)
    with serving(files) as site, penstock.open(f"{site.url}/set") as data, penstock.open(path) as local:
        assert fetched(site, shard_of(files)) == len(files[shard_of(files)])
        same_index(records_of(data).index, records_of(local).index)
    assert PART == BLOCK
