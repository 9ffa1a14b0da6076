"""Reports of data behind URLs: fsspec, s3fs, Zarr, litdata's kin, webdataset and the Hugging Face libraries."""

# pyright: basic

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.errors import ChangedObjectError, RemoteError
from penstock.files.mapping import map_file, read_mapped
from penstock.files.remote import open_file, read_bytes
from penstock.files.sparse import room_of
from penstock.locations.blocks import BLOCK
from penstock.locations.mirror import mirror
from penstock.locations.stores import object_store
from tests.locations.clock import Clock, without_waiting
from tests.locations.s3 import Bucket, Stores, bucket_on
from tests.locations.server import Reply, Request, Site, serving
from tests.reports.reported import report

DATA = np.random.default_rng(0).integers(1, 256, 9 * BLOCK + 5, np.uint8).tobytes()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return without_waiting(monkeypatch)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving({"a.bin": DATA}) as site:
        yield site


@pytest.fixture
def bucket(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return bucket_on(stores, monkeypatch.setenv)


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@report("fsspec/filesystem_spec#1748", "an object that is sent compressed is not cut to its compressed size")
def test_the_size_of_a_compressed_answer_is_not_the_size_of_the_object(site: Site) -> None:
    """The answer to `HEAD` has the size of the compressed text; ranges are of the plain text."""
    packed = len(gzip.compress(b"return 42\n" * 99))
    headers = {"Content-Encoding": "gzip", "Content-Length": str(packed), "ETag": '"v1"'}
    site.fault = lambda request: Reply(200, b"", headers, sized=False) if request.method == "HEAD" else None
    with pytest.raises(RemoteError, match="as it is stored, got it compressed for sending"):
        mirror(f"{site.url}/a.bin")


@report("fsspec/filesystem_spec#1140", "a range of a server without ranges is not the beginning of the object")
@report("fsspec/filesystem_spec#302", "a whole object in answer to a range is read")
def test_a_server_without_ranges_gives_the_bytes_of_the_range(site: Site) -> None:
    site.ranges = False
    mapped = map_file(mirror(f"{site.url}/a.bin"), lazy=True)
    for begin in (100, 3 * BLOCK + 7):
        assert bytes(read_mapped(mapped[begin : begin + 50])) == DATA[begin : begin + 50]


@report("fsspec/filesystem_spec#799", "a file that was opened and not read is not a file of zeros")
def test_a_cached_file_that_was_not_read_is_fetched_later(site: Site) -> None:
    open_file(mirror(f"{site.url}/a.bin")).close()
    assert read_bytes(mirror(f"{site.url}/a.bin")) == DATA


@report("apache/opendal#5689", "a partial answer with fewer bytes than asked for is asked for again")
@report("mosaicml/streaming#566", "what a failed download left behind is not the file at the next try")
def test_what_a_failed_request_left_is_never_data(site: Site) -> None:
    left = [Reply(206, b"", {"Content-Range": f"bytes 0-{len(DATA) - 1}/{len(DATA)}"}), 500, "cut", 503]

    def fault(request: Request) -> Reply | int | str | None:
        return left.pop() if left and request.begin is not None else None

    site.fault = fault
    assert read_bytes(mirror(f"{site.url}/a.bin")) == DATA
    assert left == []


@pytest.mark.parametrize("status", [403, 404, 429, 500, 502])
@report("zarr-developers/zarr-python#1578", "a chunk that cannot be fetched is an error, and not the fill value")
@report("pydata/xarray#8842", "a poor connection does not make chunks of NaN")
def test_a_chunk_that_cannot_be_fetched_is_no_fill_value(tmp_path: Path, status: int) -> None:
    written = penstock.from_arrays({"actions": np.arange(1.0, 20_001.0)}, lengths=[5_000, 15_000])
    penstock.convert(written, tmp_path / "set/buffer.zarr", format="zarr", options={"chunk_rows": 2_500})
    with serving(files_of(tmp_path / "set")) as site:
        chunk = next(name for name in site.objects if name.endswith("action/5"))
        with penstock.open(f"{site.url}/buffer.zarr", storage_options={"max_retries": 1}) as data:
            site.fault = lambda request: status if request.name == chunk else None
            with pytest.raises(RemoteError):
                data[1].actions.sum()
            site.fault = lambda _: None
            assert data[1].actions.sum() == sum(range(5_001, 20_001))
        site.fault = lambda request: status if request.name == chunk else None
        with pytest.raises(RemoteError):  # also where it cannot be found while the dataset is opened
            penstock.open(f"{site.url}/buffer.zarr?again", storage_options={"max_retries": 1})[1].actions.sum()


@report("huggingface/datasets#6577", "an outage of a minute does not end a training run")
@report("huggingface/datasets#6172", "how often a streaming read is repeated is an option")
@report("huggingface/huggingface_hub#2567", "a status 500 is repeated")
@report("webdataset/webdataset#108", "interrupted connections are repeated without a handler")
def test_outages_are_outlasted_as_long_as_the_option_says(site: Site, clock: Clock) -> None:
    path = mirror(f"{site.url}/a.bin", {"max_retries": 40})
    for kind in (500, 502, 503, 504, "cut"):
        end = clock.now + 60
        site.fault = lambda request, kind=kind, end=end: kind if clock.now < end else None
        assert read_bytes(path)[-9:] == DATA[-9:]
        path = mirror(f"{site.url}/a.bin?n={kind}", {"max_retries": 40})


@report("fsspec/s3fs#99", "the time that a read waits for bytes is an option")
def test_timeouts_are_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TIMEOUT", "1800")
    config = object_store("s3://bucket/a", {"anon": True}).transport._given()["config_kwargs"]
    assert (config["read_timeout"], config["connect_timeout"]) == (1800, 1800)


@report("webdataset/webdataset#117", "the limit of the cache holds while shards are read")
@report("mosaicml/streaming#417", "a cache that is smaller than a shard does not block the reader")
def test_the_cache_keeps_its_limit(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of shards, columns and chunks that are larger than the cache, in single reads, epochs and one read of all."""
    rows = np.random.default_rng(0).integers(0, 256, (1000, 9000), np.uint8)
    data = penstock.from_arrays({"observations": rows, "rewards": np.arange(1000.0)}, lengths=[100] * 10)
    monkeypatch.setenv("PENSTOCK_CACHE_BYTES", str(2 << 20))
    for format, name in (("columns", "columns"), ("webdataset", "a.tar"), ("zarr", "a.zarr")):
        penstock.convert(data, tmp_path / "set" / name, format=format, certificate=False)
    with serving(files_of(tmp_path / "set")) as site:
        for name in ("columns", "a.tar", "a.zarr"):
            with penstock.open(f"{site.url}/{name}") as remote:
                windows = remote.windows(4).shuffle(seed=0)
                for batch in windows.loader(batch_size=32, threads=2):
                    assert len(batch["rewards"]) <= 32
                assert np.array_equal(windows[:]["observations"], data.windows(4).shuffle(seed=0)[:]["observations"])
                remote[0].rewards.sum()
            room = sum(room_of(path) for path in cache.rglob("objects/*/data"))
            assert room <= (2 << 20) + (1 << 20) + 8 * BLOCK, name


@report("fsspec/s3fs#300", "an empty object that marks a folder is no file of the dataset")
@report("rclone/rclone#753", "keys that end with a slash are folders")
@report("apache/arrow#24093", "an empty object with the name of a folder does not hide the files in the folder")
@pytest.mark.parametrize("markers", [("set/", "set/segments/"), ("set/segments",)])
def test_empty_objects_that_mark_folders_are_no_files(bucket: Bucket, tmp_path: Path, markers: tuple[str, ...]) -> None:
    data = penstock.from_arrays({"rewards": np.arange(6.0)}, lengths=[2, 4])
    penstock.convert(data, tmp_path / "set", certificate=False)
    bucket.put({f"set/{name}": raw for name, raw in files_of(tmp_path / "set").items()})
    bucket.put(dict.fromkeys(markers, b""))
    with penstock.open(f"{bucket.url}/set") as remote:
        assert [episode.rewards.tolist() for episode in remote] == [[0.0, 1.0], [2.0, 3.0, 4.0, 5.0]]


@report("fsspec/filesystem_spec#418", "a URL with a query is an object")
@report("fsspec/filesystem_spec#1713", "names with reserved characters are listed and read")
def test_queries_and_reserved_characters_are_part_of_names(site: Site) -> None:
    site.objects = {"set/#not-a-good-name!?": b"one", "set/100%25 x&y=1": b"two"}
    folder = mirror(f"{site.url}/set?data_center&time%3E=2026-12-20T00%3A00%3A00Z&distinct()")
    assert {path.name: read_bytes(path) for path in folder.iterdir()} == {
        "#not-a-good-name!?": b"one",
        "100%25 x&y=1": b"two",
    }


@report("fsspec/s3fs#422", "an object that grew since it was opened is not read up to its old size")
@report(
    "duckdb/duckdb-httpfs#338", "an object that was replaced by one of another size is read when it is opened again"
)
def test_an_object_of_another_size_is_another_object(bucket: Bucket) -> None:
    bucket.put({"a.bin": b"old"})
    path = mirror(f"{bucket.url}/a.bin")
    bucket.put({"a.bin": b"the new one"})
    with pytest.raises(ChangedObjectError):
        read_bytes(path)
    assert read_bytes(mirror(f"{bucket.url}/a.bin")) == b"the new one"
