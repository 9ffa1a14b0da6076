"""Stores of objects: the same contract over HTTP, S3 and fsspec, answers that are wrong, and secrets in messages."""

# pyright: basic

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import ArgumentError, ChangedObjectError, DataError, MissingExtraError, RemoteError
from penstock.locations.objects import NoRangesError, TransientError
from penstock.locations.proven import ProvenStore
from penstock.locations.retry import Retry
from penstock.locations.stores import object_store
from penstock.locations.transports import S3Store
from tests.locations.clock import Clock
from tests.locations.server import Site, serving

CONTENT = {"set/a.bin": bytes(range(256)) * 4, "set/deep/b c.bin": b"hello", "other.bin": b"other"}


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(dict(CONTENT)) as site:
        yield site


@pytest.fixture(params=["http", "memory", "file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProvenStore]:
    if request.param == "http":
        yield object_store(request.getfixturevalue("site").url + "/set")
        return
    if request.param == "s3":
        bucket = request.getfixturevalue("bucket")
        root, url = object_store(bucket.url), f"{bucket.url}/set"
    elif request.param == "memory":
        root = object_store(f"memory://{tmp_path.name}")
        url = f"memory://{tmp_path.name}/set"
    else:
        root, url = object_store(f"local://{tmp_path}"), f"local://{tmp_path}/set"
    for name, content in CONTENT.items():
        (tmp_path / "up").write_bytes(content)
        root.put(name, tmp_path / "up")
    yield object_store(url)


def test_objects_are_listed_and_read(store: ProvenStore) -> None:
    listed = store.list()
    assert [(info.name, info.size) for info in listed] == [("a.bin", 1024), ("deep/b c.bin", 5)]
    assert store.stat("a.bin") == listed[0]
    assert listed[0].version
    assert store.read("a.bin", [(3, 6), (1000, 1024)]) == [b"\3\4\5", CONTENT["set/a.bin"][1000:]]
    assert store.read("deep/b c.bin", [(0, 5)], listed[1].version) == [b"hello"]
    assert [info.name for info in store.list("deep")] == ["deep/b c.bin"]


def test_objects_are_put(store: ProvenStore, tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"new")
    store.put("deep/er/new.bin", tmp_path / "new")
    assert store.read("deep/er/new.bin", [(0, 3)]) == [b"new"]


def test_objects_are_deleted(store: ProvenStore) -> None:
    store.delete("a.bin")
    assert [info.name for info in store.list()] == ["deep/b c.bin"]
    if isinstance(store.transport, S3Store):  # S3 does not tell
        store.delete("a.bin")
        return
    with pytest.raises(FileNotFoundError):
        store.delete("a.bin")


def test_what_is_missing_is_not_found(store: ProvenStore) -> None:
    for ask in (lambda: store.stat("none"), lambda: store.read("none", [(0, 1)]), lambda: store.list("none")):
        with pytest.raises(FileNotFoundError, match=r"nothing at|no object at"):
            ask()


def test_stores_travel_to_other_processes(store: ProvenStore) -> None:
    assert pickle.loads(pickle.dumps(store)).read("a.bin", [(0, 2)]) == [b"\0\1"]


def test_an_object_is_a_store_of_one(site: Site) -> None:
    store = object_store(site.url + "/other.bin")
    assert [(info.name, info.size) for info in store.list()] == [("", 5)]
    assert store.read("", [(1, 3)]) == [b"th"]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_passing_statuses_are_transient(site: Site, status: int) -> None:
    site.fault = lambda _: status
    with pytest.raises(TransientError, match=str(status)):
        object_store(site.url).read("other.bin", [(0, 1)])


def test_answers_without_their_end_are_transient(site: Site) -> None:
    site.fault = lambda _: "cut"
    with pytest.raises(TransientError, match="IncompleteRead"):
        object_store(site.url).read("other.bin", [(0, 5)])


def test_a_server_that_ignores_ranges_is_recognised(site: Site) -> None:
    site.ranges = False
    store = object_store(site.url)
    with pytest.raises(NoRangesError):
        store.read("other.bin", [(1, 3)])
    assert store.read("other.bin", [(0, 5)]) == [b"other"]


@pytest.mark.parametrize("etags", [True, False])
def test_a_change_is_noticed(site: Site, etags: bool) -> None:
    store = object_store(site.url)
    version = store.stat("other.bin").version
    assert version == ('"v1"' if etags else version)
    site.change("other.bin", b"new other")
    with pytest.raises(ChangedObjectError, match=r"other\.bin changed since it was opened; open the dataset again"):
        store.read("other.bin", [(0, 5)], version)
    site.change("other.bin", b"n")
    with pytest.raises(ChangedObjectError):
        store.read("other.bin", [(4, 5)], version)


def test_refused_access_says_what_to_do(site: Site) -> None:
    site.fault = lambda request: None if request.headers.get("Authorization") == "Basic bWU6c2VjcmV0" else 401
    with pytest.raises(RemoteError, match=r"refuses access \(status 401\); give credentials"):
        object_store(site.url).stat("other.bin")
    inside = object_store(site.url.replace("//", "//me:secret@"))
    assert inside.stat("other.bin").size == 5
    assert "secret" not in repr(inside)


def test_a_connection_that_the_server_closed_is_made_again(site: Site) -> None:
    store = object_store(site.url)
    site.fault = lambda request: "cut" if request.method == "HEAD" else None  # a whole answer, then closed
    assert store.stat("other.bin").size == store.stat("other.bin").size == 5


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("pipe:cat a.tar", DataError, "'pipe:': its command would be run"),
        ("file:///a", DataError, "'file:': it is a local path"),
        ("nothing://a", DataError, "nothing://a"),
    ],
)
def test_urls_that_are_no_store(url: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        object_store(url)


def test_a_missing_library_is_named() -> None:
    with pytest.raises((MissingExtraError, DataError), match="dropbox"):
        object_store("dropbox://a/b")


@pytest.mark.parametrize(
    ("url", "library", "extra"),
    [
        ("gs://bucket/a", "gcsfs", "gcp"),
        ("hf://datasets/a/b", "huggingface_hub", "hf"),
        ("memory://a", "fsspec", "remote"),
    ],
)
def test_the_extra_of_a_scheme_is_named(url: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"pip install '?\"?penstock\[{extra}\]"):
        object_store(url)


def test_unknown_options_are_named(site: Site) -> None:
    with pytest.raises(ArgumentError, match="'headers', 'timeout', 'max_retries', 'retry_timeout'"):
        object_store(site.url, {"tokens": 1})


def test_retry_waits_longer_each_time_and_ends(clock: Clock) -> None:
    tries = 0

    def fail() -> None:
        nonlocal tries
        tries += 1
        raise TransientError("later")

    with pytest.raises(TransientError, match=r"later; tried 5 times in [4-9] s, .* max_retries and retry_timeout"):
        Retry(max_retries=4, first=1.0, longest=3.0)(fail)
    assert tries == 5
    assert all(low / 2 <= wait <= low for wait, low in zip(clock.waits, [1, 2, 3, 3], strict=True))
    assert len(set(clock.waits)) == 4
