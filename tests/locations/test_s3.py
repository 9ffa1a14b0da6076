"""S3, served by moto: what is written, faults of the store, credentials in messages, forks, and a missing library."""

# pyright: basic

from __future__ import annotations

import json
import logging
import os
import pickle
import sys
import traceback
import urllib.parse
from pathlib import Path
from types import SimpleNamespace

import fsspec.registry  # noqa: F401, in sys.modules
import numpy as np
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.cli.reshard import reshard
from penstock.containers.tar import END, member
from penstock.errors import ChangedObjectError, MissingExtraError, RemoteError
from penstock.formats.webdataset.streaming import ShardStream
from penstock.locations import transports
from penstock.locations.location import MARKER
from penstock.locations.mirror import MIRRORS
from penstock.locations.objects import TransientError
from penstock.locations.stores import object_store
from tests.locations.clock import Clock
from tests.locations.s3 import KEY, SECRET, Bucket, Request

RAW = np.random.default_rng(0).bytes(300_000)


def rows(seed: int = 0) -> penstock.EpisodeDataset:
    values = np.random.default_rng(seed).normal(size=(1000, 40))
    return penstock.from_arrays({"observations/x": values}, [100] * 10, align={"observations/x": "step"})


@pytest.mark.parametrize("format", ["columns", "minari", "webdataset", "zarr", "rlds"])
def test_what_is_written_to_s3_is_read_from_s3(bucket: Bucket, format: str, tmp_path: Path) -> None:
    data = penstock.from_arrays(
        {
            "observations": np.arange(14, dtype="float32").reshape(7, 2),
            "actions": np.arange(10, dtype="float32").reshape(5, 2),
            "rewards": np.arange(5.0),
            "terminations": np.array([False, True, False, False, True]),
        },
        lengths=[2, 3],
    )
    penstock.convert(data, tmp_path / "local", format=format, fill_missing=True)
    report = penstock.convert(tmp_path / "local", f"{bucket.url}/deep/set", format=format)
    assert report.out == f"{bucket.url}/deep/set"
    assert "deep/set.certificate.json" in bucket.names()
    assert not any(name.endswith(MARKER) for name in bucket.names())
    with penstock.open(f"{bucket.url}/deep/set") as remote, penstock.open(tmp_path / "local") as local:
        batches = [each.steps().shuffle(seed=3)[:] for each in (remote, local)]
        assert batches[0].keys() == batches[1].keys()
        for name, column in batches[1].items():
            np.testing.assert_array_equal(batches[0][name], column)
    made = [r.path for r in bucket.stores.seen if r.method == "PUT" and r.path.count("/") == 1]
    assert made == [], "no bucket is made"


def test_archives_are_streamed_and_written_again(bucket: Bucket) -> None:
    bucket.put({f"s/a-{i:02}.tar": member(f"{i}.cls", b"%d" % i) + END for i in (0, 1, 2, 10)})
    found = [int(n) for block in ShardStream(f"{bucket.url}/s/a-{{00..02}}.tar")() for n in block["cls"]]
    assert found == [0, 1, 2]
    assert penstock.open(f"{bucket.url}/s/a-*.tar").steps()[:]["cls"].tolist() == [0, 1, 2, 10]
    reshard(f"{bucket.url}/s/a-*.tar", f"{bucket.url}/new", shard_episodes=2)
    assert [name for name in bucket.names() if name.startswith("new/")] == [
        "new/shard-000000.tar",
        "new/shard-000001.tar",
    ]
    assert penstock.open(f"{bucket.url}/new").steps()[:]["cls"].tolist() == [0, 1, 2, 10]


def test_a_bucket_that_is_missing_is_not_made(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    with pytest.raises(FileNotFoundError, match="nothing at s3://no-such-bucket/a/b"):
        object_store("s3://no-such-bucket/a").put("b", tmp_path / "file")
    assert not [r for r in bucket.stores.seen if r.method == "PUT" and r.path.strip("/") == "no-such-bucket"]


def test_a_pattern_lists_the_names_that_begin_like_it(bucket: Bucket, tmp_path: Path) -> None:
    data = penstock.from_arrays({"rewards": np.arange(3.0)}, lengths=[3])
    penstock.convert(data, tmp_path / "a")
    files = {
        p.relative_to(tmp_path / "a").as_posix(): p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file()
    }
    for place in ("runs/a-1", "runs/a-2", "runs/b-1", "other"):
        bucket.put({f"{place}/{name}": raw for name, raw in files.items()})
    bucket.stores.seen.clear()
    assert len(penstock.open(f"{bucket.url}/runs/a-*")) == 2
    listings = [urllib.parse.parse_qs(request.query) for request in bucket.stores.seen if "list-type" in request.query]
    assert {listing["prefix"][0] for listing in listings} <= {
        "runs/a-",
        "runs/a-1/",
        "runs/a-2/",
        "runs/a-1",
        "runs/a-2",
    }
    with pytest.raises(FileNotFoundError, match=r"nothing matches the pattern s3://.*/runs/c-\*"):
        penstock.open(f"{bucket.url}/runs/c-*")


def test_a_large_file_is_uploaded_in_parts(bucket: Bucket, tmp_path: Path) -> None:
    content = np.random.default_rng(0).integers(0, 256, (110 << 20) + 5, np.uint8)
    (tmp_path / "large").write_bytes(content.tobytes())
    store = object_store(bucket.url)
    tries: list[str] = []

    def fault(request: Request) -> int | None:
        if request.method == "PUT" and "partNumber=2" in request.query:
            tries.append(request.query)
            return 503 if len(tries) == 1 else None
        return None

    bucket.stores.fault = fault
    store.put("folder/large", tmp_path / "large")
    parts = [request for request in bucket.stores.seen if "partNumber" in request.query]
    assert len(parts) >= 3
    assert len(tries) == 2
    assert store.stat("folder/large").size == len(content)
    ranges = [(0, 64), ((50 << 20) - 9, (50 << 20) + 9), (len(content) - 64, len(content))]
    assert store.read("folder/large", ranges) == [content[a:b].tobytes() for a, b in ranges]
    assert bucket.names() == ["folder/large"]


def test_errors_that_pass_are_repeated(bucket: Bucket) -> None:
    """Throttling, answers without their end and refused signatures change no value."""
    data = rows()
    penstock.convert(data, f"{bucket.url}/set", certificate=False)
    tries: dict[tuple[str, str, object], int] = {}

    def fault(request: Request) -> int | str | None:
        if request.path.endswith(".json"):
            return None
        key = request.method, request.path + request.query, request.range
        tries[key] = tries.get(key, 0) + 1
        return [503, "cut" if request.range else 500, None][min(tries[key], 3) - 1]

    bucket.stores.fault = fault
    with penstock.open(f"{bucket.url}/set") as remote:
        batch = remote.windows(3).shuffle(seed=1)[:40]
    expected = data.windows(3).shuffle(seed=1)[:40]
    np.testing.assert_array_equal(batch["observations/x"], expected["observations/x"])
    assert max(tries.values()) == 3


def test_throttling_that_lasts_is_an_error(bucket: Bucket, clock: Clock) -> None:
    """Each request is repeated in one place, so a store that is busy is not asked a hundred times."""
    bucket.put({"a.bin": RAW})
    store = object_store(bucket.url, {"max_retries": 3})
    version = store.stat("a.bin").version
    bucket.stores.seen.clear()
    bucket.stores.fault = lambda _: 503
    for ask in (store.list, lambda: store.read("a.bin", [(0, 5)], version)):
        with pytest.raises(TransientError, match=f"{bucket.url}"):
            ask()
    assert (len(bucket.stores.seen), len(clock.waits)) == (8, 6)


def test_an_object_that_changes_is_noticed(bucket: Bucket) -> None:
    penstock.convert(rows(), f"{bucket.url}/set", certificate=False)
    largest = max(object_store(bucket.url).list(), key=lambda info: info.size)
    name = largest.name
    with penstock.open(f"{bucket.url}/set") as remote:
        bucket.put({name: bytes(largest.size)})
        with pytest.raises(ChangedObjectError, match=f"{bucket.url}/{name} changed since it was opened"):
            remote.steps()[:]


def test_a_signature_that_is_refused_is_replaced_by_s3fs(bucket: Bucket) -> None:
    """Temporary credentials may expire before a URL does; s3fs renews them."""
    bucket.put({"a b+c%41'.bin": RAW})
    store = object_store(bucket.url)
    (info,) = store.list()
    bucket.stores.fault = lambda request: 403 if request.signed == "url" else None
    assert store.read(info.name, [(5, 9), (100, 70_000)], info.version) == [RAW[5:9], RAW[100:70_000]]
    assert [r.signed for r in bucket.ranges()] == ["url", "header", "header"]
    bucket.put({info.name: RAW[::-1]})
    with pytest.raises(ChangedObjectError):
        store.read(info.name, [(5, 9)], info.version)
    bucket.stores.fault = lambda _: None
    bucket.stores.seen.clear()
    assert store.read(info.name, [(5, 9)]) == [RAW[::-1][5:9]]
    assert [r.signed for r in bucket.ranges()] == ["url"]


def test_urls_are_signed_again_before_they_expire(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put({"a": RAW, "b": RAW})
    store = transports.S3Store(bucket.url)
    now = [1000.0]
    monkeypatch.setattr(
        transports, "time", SimpleNamespace(monotonic=lambda: now[0])
    )  # event loops of servers need the real one
    signed: list[object] = []
    for name, later in (("a", 0), ("a", transports.VALID / 2 - 1), ("a", 2), ("b", 0)):
        now[0] += later
        store.read(name, [(0, 2)])
        signed.append(store._signed[name][1])
    assert signed[0] is signed[1]
    assert len(set(signed)) == 3
    monkeypatch.setattr(transports, "_SIGNED", 2)
    bucket.put({"c": RAW})
    store.read("c", [(0, 2)])
    assert list(store._signed) == ["c"]


def test_options_that_need_headers_go_through_s3fs(bucket: Bucket) -> None:
    bucket.put({"a": RAW})
    store = object_store(bucket.url, {"requester_pays": True})
    assert store.read("a", [(0, 9)], store.stat("a").version) == [RAW[:9]]
    (request,) = bucket.ranges()
    assert (request.signed, request.headers["x-amz-request-payer"]) == ("header", "requester")
    bucket.stores.seen.clear()
    bucket.put({"private": RAW})
    bucket.put({"a": RAW}, public=True)
    bucket.stores.seen.clear()
    public = object_store(bucket.url, {"anon": True})
    assert public.read("a", [(0, 9)], public.stat("a").version) == [RAW[:9]]
    assert {r.signed for r in bucket.stores.seen} == {""}
    with pytest.raises(RemoteError, match="anon=True for public data"):
        public.stat("private")


def test_missing_credentials_are_said_at_once(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    store = object_store(bucket.url, {"use_listings_cache": True})  # a file system of its own
    for ask in (store.list, lambda: store.stat("a"), lambda: store.read("a", [(0, 1)])):
        with pytest.raises(RemoteError, match="Unable to locate credentials") as caught:
            ask()
        assert "anon=True" in str(caught.value)
    assert (clock.waits, bucket.stores.seen) == ([], [])


def texts(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + str(error.args)


@pytest.mark.parametrize("given", ["environment", "options"])
def test_credentials_are_in_no_text(
    bucket: Bucket, given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in reprs, metadata, fingerprints, certificates, pickles, the cache, logs of penstock, or errors."""
    caplog.set_level(logging.DEBUG, "penstock")
    options: dict[str, object] = {}
    if given != "environment":
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        options = {"client_kwargs": {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}}
    url = f"{bucket.url}/set"
    report = penstock.convert(rows(), url, storage_options=options)
    assert report.certificate is not None
    told = [repr(report), json.dumps(report.certificate.to_json())]
    with penstock.open(url, storage_options=options) as data:
        data.steps()[:5]
        loader = data.steps().shuffle(seed=1).loader(batch_size=4, threads=0)
        told += [
            repr(data),
            repr(data.source),
            str(data.metadata),
            data.source.fingerprint,
            json.dumps(loader.state_dict()),
        ]
        told.append(pickle.dumps(data.source).decode("latin-1"))
        for fault in (403, 404, 503, "cut"):
            MIRRORS.cache().evict(0)
            bucket.stores.fault = lambda _, fault=fault: fault
            for action in (
                lambda: data.steps()[:500],
                lambda: penstock.open(url, storage_options=options),
                lambda: penstock.convert(data, f"{bucket.url}/other", storage_options=options),
            ):
                try:
                    action()
                except (RemoteError, OSError) as error:
                    told.append(texts(error))
        arguments = ["info", url, *(f"--storage={name}={json.dumps(value)}" for name, value in options.items())]
        told.append(CliRunner().invoke(app, arguments).output)
    assert len(told) > 14
    told += caplog.messages
    told += [path.read_bytes().decode("latin-1") for path in (tmp_path / "cache").rglob("*.json")]
    for text in told:
        assert SECRET not in text
        assert KEY not in text
        assert "X-Amz" not in text


def test_a_forked_process_reads_on(bucket: Bucket) -> None:
    bucket.put({"a.bin": RAW})
    store = object_store(bucket.url, {"max_retries": 3})
    version = store.stat("a.bin").version
    assert store.read("a.bin", [(0, 5)], version) == [RAW[:5]]
    child = os.fork()
    if child == 0:
        try:
            same = store.read("a.bin", [(50, 60)], version) == [RAW[50:60]] and store.list()[0].size == len(RAW)
            os._exit(0 if same else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.read("a.bin", [(70, 80)], version) == [RAW[70:80]]


@pytest.mark.parametrize("url", ["s3://bucket/a", "s3a://bucket/a", "zip://a::s3://bucket/a.zip"])
def test_a_missing_library_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("s3", "s3a"):
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, name, raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingExtraError, match=r"s3fs.*pip install 'penstock\[s3\]'"):
        object_store(url)
