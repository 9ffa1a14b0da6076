"""Every format reads the same from a web server as from this disk."""

# pyright: basic

from __future__ import annotations

import itertools
import random
import warnings
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.containers.tar import END, member
from penstock.core.ragged import Ragged
from penstock.errors import DamageWarning, FormatError, RemoteError
from penstock.formats.base.format import available
from penstock.formats.webdataset.streaming import ShardStream
from penstock.locations.blocks import BLOCK
from penstock.locations.fetching import REQUEST
from penstock.locations.mirror import MIRRORS, mirror
from tests.fuzz.targets import Target, targets, the_one
from tests.locations.s3 import Bucket
from tests.locations.server import Site, serving
from tests.packages import of_installed

DATASETS = [target for target in targets().values() if target.format in available()]


def outcome(target: Target, path: Path) -> object:
    """The digest of all values, or how the data are refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        try:
            return target.read(path, random.Random(1))
        except FormatError as error:
            return type(error)


@pytest.mark.parametrize("target", DATASETS, ids=lambda target: target.key)
def test_values_are_the_same(target: Target, tmp_path: Path) -> None:
    files = target.files()
    local = tmp_path / "local"
    for name, content in files.items():
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        (local / name).write_bytes(content)
    with serving({f"set/{name}": content for name, content in files.items()}) as site:
        remote = mirror(f"{site.url}/set")
        found = outcome(target, remote)
        assert found == outcome(target, local)
        assert site.gets() or isinstance(found, type)


OPENED = of_installed(
    [
        *("columns/ragged", "columns/ragged34", "minari/0.5.4 hdf5-nested-v0", "minari/0.5.4 arrow-nested-v0"),
        *("minari/0.5.4 parquet-nested-v0", "webdataset/npy", "webdataset/seed", "webdataset/nometa.tgz"),
        *("tables/parquet", "tables/arrow", "tables/json lines", "zarr/folder", "zarr/zip", "lerobot/new"),
        *("lerobot/images", "lerobot/video", "rlds/tfrecord", "rlds/array_record", "l5kit/zarr", "l5kit/npy"),
        *("l5kit/zip", "lc0/tar", "lc0/folder", "demos/robomimic", "demos/d4rl", "demos/aloha", "native/atari"),
    ]
)
"""One or more layouts of each format."""


def opened_at(url: str, format: str | None, options: dict[str, Any]) -> tuple[object, ...]:
    """Spec, number of episodes, and the bytes of shuffled windows and of episodes."""
    with penstock.open(url, format=format, **options) as data:
        windows = data.windows(2, pad="zero").shuffle(seed=5)
        batches = [windows[np.arange(lo, min(lo + 7, len(windows)))] for lo in range(0, len(windows), 7)]
        found = [(name, content(batch[name])) for batch in batches for name in batch]
        chosen = data[[-1, 0, *range(len(data)), 0]]
        found += [(name, content(column)) for episode in chosen for name, column in episode.columns.items()]
        return data.spec.fields, data.source.offsets.tobytes(), found


def content(column: object) -> tuple[object, ...]:
    """Type, shape and bytes of a column of a batch."""
    arrays = [column.values, column.offsets] if isinstance(column, Ragged) else [np.asarray(column)]
    return tuple((array.dtype, array.shape, array.tobytes()) for array in arrays)


@pytest.mark.filterwarnings("ignore::penstock.errors.DamageWarning")  # shards that the target leaves out
@pytest.mark.parametrize("key", OPENED)
def test_shuffled_windows_are_the_same(key: str, tmp_path: Path, bucket: Bucket) -> None:
    """From a path, a web server, a file system of fsspec and S3."""
    target = targets()[key]
    files = target.files()
    for name, raw in files.items():
        (tmp_path / "local" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "local" / name).write_bytes(raw)
    place = the_one(tmp_path / "local").relative_to(tmp_path / "local").as_posix()
    options = {"split": "val"} if target.format == "rlds" else {}
    memory = fsspec.filesystem("memory")
    memory.pipe({f"/{tmp_path.name}/{name}": raw for name, raw in files.items()})
    bucket.put({f"set/{name}": raw for name, raw in files.items()})
    expected = opened_at(str(tmp_path / "local" / place), target.format, options)
    with serving({f"set/{name}": raw for name, raw in files.items()}) as site:
        for url in (
            f"{site.url}/set/{place}".removesuffix("/."),
            f"memory://{tmp_path.name}/{place}".removesuffix("/."),
            f"{bucket.url}/set/{place}".removesuffix("/."),
        ):
            assert opened_at(url, target.format, options) == expected
            fingerprints = {penstock.open(url, format=target.format, **options).source.fingerprint for _ in range(2)}
            assert len(fingerprints) == 1
    assert {request.signed for request in bucket.ranges()} == {"url"}
    memory.rm(f"/{tmp_path.name}", recursive=True)


def test_urls_are_opened(tmp_path: Path) -> None:
    data = penstock.from_arrays({"rewards": np.arange(9.0)}, lengths=[4, 5])
    penstock.convert(data, tmp_path / "set")
    files = {
        f"set/{p.relative_to(tmp_path / 'set')}": p.read_bytes() for p in (tmp_path / "set").rglob("*") if p.is_file()
    }
    with serving(files) as site, penstock.open(f"{site.url}/set") as remote:
        windows = [each.windows(2).shuffle(seed=1) for each in (remote, data)]
        assert windows[0][:]["rewards"].tolist() == windows[1][:]["rewards"].tolist()
        with penstock.open([f"{site.url}/set", tmp_path / "set"]) as both:
            assert len(both) == 4


def test_streams_read_ahead(tmp_path: Path) -> None:
    """The requests for an archive that is read in order become longer, and each byte is fetched once."""
    content = b"".join(member(f"{i}.bin", bytes([i]) * 600_000) for i in range(20)) + END
    with serving({"a.tar": content}) as site:
        blocks = list(ShardStream(f"{site.url}/a.tar", rows=20, threads=1)())
        assert len(blocks) == 1
        assert sum((r.end or 0) + 1 - (r.begin or 0) for r in site.gets()) == len(content)
        assert max((r.end or 0) - (r.begin or 0) for r in site.gets()) + 1 == REQUEST * BLOCK


def test_shards_are_indexed_once_and_then_read_by_ranges(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (600, 5000), np.uint8)
    data = penstock.from_arrays({"observations/x": rows}, lengths=[60] * 10, align={"observations/x": "step"})
    penstock.convert(data, tmp_path / "set", format="webdataset")
    found = [p for p in (tmp_path / "set").rglob("*.tar") if p.is_file()]
    with serving({str(p.relative_to(tmp_path)): p.read_bytes() for p in found}) as site:
        with penstock.open(f"{site.url}/set"):
            pass
        MIRRORS.cache().evict(0)
        before = len(site.gets())
        with penstock.open(f"{site.url}/set") as remote:
            batch = remote.windows(2).shuffle(seed=2)[:4]
            got = sum((r.end or 0) + 1 - (r.begin or 0) for r in site.gets()[before:])
            assert np.array_equal(batch["observations/x"], data.windows(2).shuffle(seed=2)[:4]["observations/x"])
        assert got <= 16 * BLOCK < rows.nbytes / 2


def test_arrow_files_are_read_by_ranges(tmp_path: Path) -> None:
    """The columns of the record batches that a batch needs, not the file."""
    rng = np.random.default_rng(0)
    rows = 64 * 64
    frames = pa.FixedSizeListArray.from_arrays(pa.array(rng.integers(0, 256, rows * 4000, np.uint8)), 4000)
    columns = {"episode_index": np.arange(rows) // 64, "frames": frames, "rewards": rng.normal(size=rows)}
    table = pa.table(columns)
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1024)
    raw = (tmp_path / "a.arrow").read_bytes()
    with serving({"a.arrow": raw}) as site, penstock.open(f"{site.url}/a.arrow") as remote:
        assert fetched(site) < len(raw) / 15
        plans = [each.windows(4).shuffle(seed=1) for each in (remote, penstock.open(tmp_path / "a.arrow"))]
        rewards = [plan.select_columns("rewards")[:] for plan in plans]
        np.testing.assert_array_equal(rewards[0]["rewards"], rewards[1]["rewards"])
        assert fetched(site) < len(raw) / 10
        some = [plan[:3] for plan in plans]
        for name in some[0]:
            np.testing.assert_array_equal(some[0][name], some[1][name])


def test_small_columns_beside_pictures_are_fetched_alone(tmp_path: Path) -> None:
    """Of Parquet files, as LeRobot's: reading them fetched 70 % of a file whose row groups have pictures."""
    rng = np.random.default_rng(0)
    rows = 1000
    pictures = [rng.bytes(5_000) for _ in range(rows)]
    columns = {"episode_index": np.arange(rows) // 50, "action": rng.normal(size=rows), "picture": pictures}
    pq.write_table(pa.table({**columns, "rewards": rng.normal(size=rows)}), tmp_path / "a.parquet", row_group_size=100)
    raw = (tmp_path / "a.parquet").read_bytes()
    with serving({"a.parquet": raw}) as site, penstock.open(f"{site.url}/a.parquet") as remote:
        plans = [each.windows(4).shuffle(seed=1) for each in (remote, penstock.open(tmp_path / "a.parquet"))]
        chosen = [plan.select_columns("rewards", "action")[:] for plan in plans]
        for name in ("rewards", "action"):
            np.testing.assert_array_equal(chosen[0][name], chosen[1][name])
        assert fetched(site) < len(raw) * 0.4
        assert len(site.gets()) < 30


OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "lerobot": ("lerobot", {"fps": 10, "cameras": "image"}),
    "minari": ("minari", {"data_format": "parquet", "images": "jpeg"}),
}
FOREIGN: dict[str, tuple[int, dict[str, Any]]] = {  # most blocks that are fetched, and how the file is written
    "plain": (4, {"compression": "snappy", "use_dictionary": False, "write_page_index": True}),
    "dictionary": (20, {"compression": "snappy", "use_dictionary": True, "write_page_index": True}),
    "version 2": (85, {"data_page_version": "2.0", "write_page_index": True}),
    "no index": (85, {}),
}


@pytest.mark.parametrize(
    ("name", "foreign"), [("lerobot", None), ("minari", None), *(("lerobot", kind) for kind in FOREIGN)]
)
def test_pages_of_wanted_pictures_are_fetched(name: str, foreign: str | None, tmp_path: Path) -> None:
    """Whole row groups of 5.5 MB were, of files with an index of pages too."""
    rng = np.random.default_rng(0)
    columns = {
        "observations": rng.integers(0, 256, (401, 72, 64, 3), np.uint8),
        "actions": np.zeros((400, 2), np.float32),
        "rewards": np.zeros(400),
        "terminations": np.zeros(400, bool),
        "truncations": np.arange(400) == 399,
    }
    format, options = OURS[name]
    penstock.convert(penstock.from_arrays(columns, lengths=[400]), tmp_path / "data-v0", format=format, options=options)
    most = 4
    if foreign is not None:
        (file,) = (tmp_path / "data-v0/data").rglob("*.parquet")
        most, written = FOREIGN[foreign]
        sizes = {"data_page_size": 1 << 15, "write_batch_size": 1, "dictionary_pagesize_limit": 1 << 20}
        pq.write_table(pq.read_table(file), file, **sizes, **written)
    files = {p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with (
        serving(files) as site,
        penstock.open(f"{site.url}/data-v0") as remote,
        penstock.open(tmp_path / "data-v0") as local,
    ):
        site.seen.clear()
        steps = [data.steps().select_columns("observations") for data in (remote, local)]
        chosen = [3, 4, 150, 151, 390]
        found, stored = (each[chosen]["observations"] for each in steps)
        np.testing.assert_array_equal(found, stored)
        assert fetched(site) <= most * BLOCK
        assert len(site.gets()) <= most


def fetched(site: Site) -> int:
    return sum((r.end or 0) + 1 - (r.begin or 0) for r in site.gets())


@pytest.mark.filterwarnings("ignore::penstock.errors.DamageWarning")  # shards that the target leaves out
@pytest.mark.parametrize("key", OPENED)
def test_a_server_that_does_not_answer_is_no_other_format_and_no_missing_file(key: str, tmp_path: Path) -> None:
    """Whatever file of whatever format it is, in `open` without a format, with it, and in a read: one error of the
    server, after the tries of one request."""
    target = targets()[key]
    files = {f"set/{name}": raw for name, raw in target.files().items()}
    for name, raw in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(raw)
    place = the_one(tmp_path / "set").relative_to(tmp_path).as_posix()
    options = {"split": "val"} if target.format == "rlds" else {}
    largest = sorted(files, key=lambda name: len(files[name]))[-3:]
    with serving(files) as site:
        for number, (failing, format) in enumerate(itertools.product(largest, (None, target.format))):
            site.seen.clear()
            site.fault = lambda r, failing=failing: 503 if r.name == failing and r.begin is not None else None
            retries = {"storage_options": {"max_retries": 1}}
            url = f"{site.url}/{place}?number={number}"  # an object of its own in the cache
            message = ""
            try:
                opened_at(url, format, {**(options if format else {}), **retries})
            except RemoteError as error:
                message = str(error)
            assert ("status 503" in message) == bool(site.gets(failing))
            assert len({r.begin for r in site.gets(failing)}) <= 2
            assert len(site.gets(failing)) <= 4
