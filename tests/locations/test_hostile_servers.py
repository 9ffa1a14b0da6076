"""Servers that refuse, redirect, compress, or send something else than what was asked for, and caches that go away."""

# pyright: basic

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import penstock
from penstock.errors import ArgumentError, ChangedObjectError, DamageWarning, RemoteError
from penstock.files.mapping import map_file, read_mapped
from penstock.files.remote import read_bytes, remote_file
from penstock.files.sparse import room_of
from penstock.locations.blocks import BLOCK
from penstock.locations.fetching import REQUEST
from penstock.locations.mirror import _plain_query, mirror
from penstock.locations.objects import TransientError, shown
from penstock.locations.stores import object_store
from tests.locations.clock import Clock
from tests.locations.server import Reply, Request, Site, serving

DATA = np.random.default_rng(3).integers(0, 256, 40 * BLOCK + 5, np.uint8).tobytes()
NAMES = ["a b.bin", "what?.bin", "a#b.bin", "100%.bin", "100%25.bin", "ünï-日本.bin", "a+b&c=d;e.bin", "(x)[y]{z}'.bin"]


@pytest.fixture
def site() -> Iterator[Site]:
    with serving({"set/a.bin": DATA, "set/empty.bin": b"", "set/b.bin": b"small"}) as site:
        yield site


def read_or_error(function: Callable[[], object]) -> Any:
    """What a function returns, or the text of its error."""
    try:
        return function()
    except RemoteError as error:
        return str(error)
    except penstock.WorkerError as error:
        return str(error.__cause__)


@pytest.mark.parametrize("status", [405, 501, 403])
def test_head_may_be_refused(site: Site, status: int) -> None:
    site.fault = lambda request: status if request.method == "HEAD" else None
    store = object_store(f"{site.url}/set")
    assert [(info.name, info.size) for info in store.list()] == [("a.bin", len(DATA)), ("b.bin", 5), ("empty.bin", 0)]
    assert read_bytes(mirror(f"{site.url}/set/a.bin")) == DATA


def test_an_answer_to_head_may_lack_the_length(site: Site) -> None:
    site.fault = lambda request: Reply(200, b"", {"ETag": '"v1"'}, sized=False) if request.method == "HEAD" else None
    assert read_bytes(mirror(f"{site.url}/set/a.bin")) == DATA


def test_a_size_that_no_answer_tells_is_an_error(site: Site) -> None:
    site.sizes = site.ranges = False
    with pytest.raises(RemoteError, match=r"expected the size of .*/set/a\.bin, the server does not tell it"):
        mirror(f"{site.url}/set/a.bin")


def test_a_whole_object_in_answer_to_a_range_is_fetched_once(site: Site) -> None:
    """Also where it comes without its length, and several threads ask for ranges."""
    for sized in (True, False):
        site.ranges = False
        path = mirror(f"{site.url}/set/a.bin?sized={sized}")
        site.fault = lambda request, sized=sized: None if sized else Reply(200, DATA, {"ETag": '"v1"'}, sized=False)
        mapped = map_file(path, lazy=True)
        site.seen.clear()
        with ThreadPoolExecutor(4) as threads:
            read = [threads.submit(read_mapped, mapped[i * 9 * BLOCK : i * 9 * BLOCK + 7]) for i in range(4)]
            assert [bytes(each.result()) for each in read] == [DATA[i * 9 * BLOCK :][:7] for i in range(4)]
        assert sum(request.begin is None for request in site.seen) == 1
        assert bytes(read_mapped(mapped)) == DATA
        assert sum(request.begin is None for request in site.seen) == 1
        site.fault = lambda _: None


def test_answers_of_unknown_length_come_in_chunks(site: Site) -> None:
    """nginx and Apache send the pages of folders so."""
    page = b'<a href="/set/a.bin">a</a>'

    def fault(request: Request) -> Reply | None:
        if request.method == "HEAD" and request.name == "set/a.bin":
            return None
        body, kind = (page, "text/html") if request.name.rstrip("/") == "set" else (DATA, "application/octet-stream")
        headers = {"Transfer-Encoding": "chunked", "Content-Type": kind, "ETag": '"v1"'}
        return Reply(200, b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body), headers, sized=False)

    site.fault = fault
    path = mirror(f"{site.url}/set")
    assert {each.name: read_bytes(each) for each in path.iterdir()} == {"a.bin": DATA}


def test_files_without_bytes_are_read(site: Site) -> None:
    path = mirror(f"{site.url}/set")
    assert (read_bytes(path / "empty.bin"), map_file(path / "empty.bin", lazy=True).size) == (b"", 0)
    assert site.gets("set/empty.bin") == []


def test_weak_etags_are_versions(site: Site) -> None:
    weak = {"set/a.bin": "v1"}

    def fault(request: Request) -> Reply | None:
        if request.name != "set/a.bin":
            return None
        etag = weak["set/a.bin"]
        if request.method == "HEAD":
            return Reply(200, DATA, {"ETag": f'W/"{etag}"'})
        part = DATA[request.begin : request.end + 1]
        sent = f"bytes {request.begin}-{request.end}/{len(DATA)}"
        return Reply(206, part, {"ETag": f'"{etag}"', "Content-Range": sent})

    site.fault = fault
    path = mirror(f"{site.url}/set/a.bin")
    mapped = map_file(path, lazy=True)
    assert bytes(read_mapped(mapped[:9])) == DATA[:9]
    assert all("If-Match" not in request.headers for request in site.seen)
    weak["set/a.bin"] = "v2"
    with pytest.raises(ChangedObjectError):
        read_mapped(mapped[30 * BLOCK :])


def test_an_object_that_changes_between_two_ranges_of_a_read_is_an_error(site: Site) -> None:
    mapped = map_file(mirror(f"{site.url}/set/a.bin"), lazy=True)

    def fault(request: Request) -> None:
        if request.begin:
            site.versions["set/a.bin"] = "v2"

    site.fault = fault
    with pytest.raises(ChangedObjectError, match="open the dataset again"):
        read_mapped(mapped)


def test_bytes_that_are_compressed_for_sending_are_refused(site: Site) -> None:
    site.objects["set/a.json.gz"] = packed = gzip.compress(b"{}" * 99)
    headers = {"Content-Encoding": "gzip", "ETag": '"v1"', "Content-Type": "application/json"}

    def fault(request: Request) -> Reply:
        whole = gzip.compress(DATA[:999]) if request.name == "set/a.bin" else packed
        if request.begin is None:
            return Reply(200, whole, headers)
        part = whole[request.begin : request.end + 1]
        return Reply(206, part, {**headers, "Content-Range": f"bytes {request.begin}-{request.end}/{len(whole)}"})

    site.fault = fault
    with pytest.raises(RemoteError, match=r"set/a\.bin as it is stored, got it compressed for sending .*: gzip"):
        mirror(f"{site.url}/set/a.bin")
    assert read_bytes(mirror(f"{site.url}/set/a.json.gz")) == packed  # the file itself, as servers call it
    assert {request.headers["Accept-Encoding"] for request in site.seen} == {"identity"}


def test_redirects_lose_credentials_at_other_hosts_alone(site: Site) -> None:
    with serving({"real/ä b.bin": DATA}) as other:
        site.fault = lambda _: Reply(307, b"", {"Location": f"{other.url}/real/%C3%A4 b.bin?sig=1"})
        url = site.url.replace("//", "//me:secret@")
        options = {"headers": {"X-Key": "secret"}}
        assert read_bytes(mirror(f"{url}/set/a.bin?token=secret", options)) == DATA
        sent = {"Authorization", "X-Key"}
        assert all(sent <= request.headers.keys() for request in site.seen)
        assert other.seen
        assert not any((sent | {"Referer"}) & request.headers.keys() for request in other.seen)
        site.fault = lambda request: Reply(302, b"", {"Location": f"/{request.name}"})
        with pytest.raises(RemoteError, match="expected at most 5 redirects"):
            mirror(f"{site.url}/set/b.bin")
        site.fault = lambda _: Reply(302, b"", {"Location": "file:///etc/passwd"})
        with pytest.raises(RemoteError, match="redirects"):
            mirror(f"{site.url}/set/b.bin")


@pytest.mark.parametrize(("text", "waited"), [("7", 7), ("100000", 60), ("Mon, 01 Jan 2001 00:00:00 GMT", 0), ("?", 0)])
def test_servers_say_when_to_ask_again(site: Site, text: str, waited: float, clock: Clock) -> None:
    path = mirror(f"{site.url}/set/b.bin")
    site.fault = lambda _: None if clock.waits else Reply(429, b"slow down", {"Retry-After": text})
    assert read_bytes(path) == b"small"
    assert clock.waits == [pytest.approx(waited + 0.075, abs=0.03)]


def test_truncated_bodies_are_asked_for_again(site: Site) -> None:
    path = mirror(f"{site.url}/set/a.bin")
    short = Reply(206, b"12", {"Content-Range": f"bytes 0-1/{len(DATA)}", "ETag": '"v1"'})
    faults = {0: short, REQUEST * BLOCK: "cut"}
    site.fault = lambda request: faults.pop(request.begin, None)
    with pytest.raises(ChangedObjectError):  # the server says that the object ends there
        read_bytes(path)
    assert read_bytes(path) == DATA


def test_a_server_that_stalls_is_asked_again(site: Site) -> None:
    stalled, end = threading.Event(), threading.Event()

    def fault(request: Request) -> None:
        if not stalled.is_set():
            stalled.set()
            end.wait(30)

    store = object_store(f"{site.url}/set", {"timeout": 0.2, "max_retries": 0})
    site.fault = fault
    with pytest.raises(TransientError, match="does not answer"):
        store.read("b.bin", [(0, 5)])
    end.set()
    assert object_store(f"{site.url}/set").read("b.bin", [(0, 5)]) == [b"small"]


def test_names_of_all_kinds(tmp_path: Path, bucket) -> None:
    contents = {f"set/{name}": name.encode() * 99 for name in NAMES} | {"set/ü b/c.bin": b"deep"}
    bucket.put(contents)
    fsspec.filesystem("memory").pipe({f"/{tmp_path.name}/{name}": raw for name, raw in contents.items()})
    with serving(contents) as site:
        for url in (site.url, bucket.url, f"memory://{tmp_path.name}"):
            path = mirror(f"{url}/set")
            assert {f"set/{p.relative_to(path)}": read_bytes(p) for p in path.rglob("*.bin")} == contents
        quoted = f"{site.url}/set/%C3%BC%20b"
        for url in (quoted, f"{site.url}/set/ü b", f"{site.url}/set/%c3%bc%20b/"):
            assert read_bytes(mirror(url) / "c.bin") == b"deep"
    fsspec.filesystem("memory").rm(f"/{tmp_path.name}", recursive=True)


def test_queries_name_objects_and_signatures_do_not(site: Site) -> None:
    """One URL with two queries may be two objects; a new signature is the same object."""
    for query in ("id=1", "id=2"):
        mirror(f"{site.url}/set/b.bin?{query}")
    one = remote_file(mirror(f"{site.url}/set/b.bin?id=1&sig=x"))
    two = remote_file(mirror(f"{site.url}/set/b.bin?id=2&sig=x"))
    again = remote_file(mirror(f"{site.url}/set/b.bin?id=1&sig=y"))
    assert one.identity == again.identity != two.identity
    assert _plain_query("zip://a?x=1::https://h/b?X-Goog-Signature=1&access_token=2&n=3#f") == "x=1&n=3"


@pytest.mark.parametrize("header", ["Bearer secret\n", "Bearer secret\r\nX: y", "Bearer sécret"])
def test_headers_that_cannot_be_sent_are_refused_without_their_text(header: str) -> None:
    with pytest.raises(ArgumentError, match="got another text in 'Authorization'") as caught:
        object_store("https://host/a", {"headers": {"Authorization": header}})
    assert "cret" not in str(caught.value)


def test_a_password_with_reserved_characters_is_not_shown() -> None:
    for password in ("pa/secret", "pa#secret", "pa?secret", "[secret", "se:cret@secret"):
        url = f"https://me:{password}@host/a.tar?token=secret"
        assert "secret" not in shown(url) + shown(f"zip://x::{url}")
        told = read_or_error(lambda url=url: object_store(url).url)
        assert "secret" not in told
        assert told == "https://host/a.tar" or "percent-encode" in told


HEADERS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "a length of 5000 digits": ({"Content-Length": "9" * 5000}, {}),
    "a length beyond all files": ({"Content-Length": str(1 << 63)}, {}),
    "a place of 5000 digits": ({}, {"Content-Range": f"bytes {'9' * 5000}-1/2"}),
    "a negative chunk": ({}, {"Transfer-Encoding": "chunked", "Content-Range": f"bytes 0-4/{len(DATA)}"}),
    "no host in brackets": ({"Location": "http://[::1/x"}, {}),
    "a host that is too long": ({"Location": f"http://{'a' * 300}/x"}, {}),
    "a host with an empty part": ({"Location": "http://a..b/x"}, {}),
    "a version of several lines": ({"ETag": '"a\r\n b"'}, {}),
}
"""Headers of answers to `HEAD`, and to `GET` of a range."""


@pytest.mark.parametrize("kind", HEADERS)
def test_headers_that_make_no_sense_are_errors_of_the_server(site: Site, kind: str) -> None:
    head, get = HEADERS[kind]

    def fault(request: Request) -> Reply | None:
        headers = {"HEAD": head, "GET": get}[request.method]
        known = {"Content-Length": "5"} if "Content-Range" in headers or "Content-Length" not in headers else {}
        status = 302 if "Location" in headers else 206 if "Content-Range" in headers else 200
        return Reply(status, b"-5\r\nabc", {**known, **headers}, sized=False) if headers else None

    site.fault = fault
    told = read_or_error(lambda: read_bytes(mirror(f"{site.url}/set/b.bin")))
    assert told == b"small" or ("127.0.0.1" in told and told.isprintable())  # the object itself, of an odd version


def test_an_answer_that_is_cut_never_becomes_zeros(site: Site, tmp_path: Path) -> None:
    """Of a server without ranges that does not tell the length: in an epoch whose blocks are requested ahead, again in
    the next one, and in a read of episodes. When it answers whole again, all values are there."""
    data = penstock.from_arrays({"rewards": np.arange(1.0, 6001.0)}, lengths=[100] * 60)
    penstock.convert(data, tmp_path / "run", certificate=False)
    files = {p.relative_to(tmp_path).as_posix(): p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    site.objects.update(files)
    site.ranges = False
    values = next(name for name in files if name.endswith("rewards.values"))
    with penstock.open(f"{site.url}/run", storage_options={"max_retries": 1}) as remote:
        for part in (len(files[values]) // 2, len(files[values]) - 1, 0):
            cut = Reply(200, files[values][:part], {"ETag": '"v1"'}, sized=False)
            site.fault = lambda request, cut=cut: cut if request.name == values and request.method == "GET" else None
            for threads in (2, 0):
                loader = remote.windows(1).shuffle(seed=0).loader(batch_size=100, threads=threads)
                with pytest.raises((penstock.WorkerError, RemoteError), match="expected 48000 bytes"):
                    next(iter(loader))
            with pytest.raises(RemoteError, match="expected 48000 bytes"):
                remote[3].rewards.sum()
        site.fault = lambda _: None
        assert remote.windows(1)[:]["rewards"].ravel().tolist() == data.windows(1)[:]["rewards"].ravel().tolist()


@pytest.mark.parametrize(("links", "etags"), [(("self",), True), (("up", "twin"), True), (("self",), False)])
def test_folders_that_link_to_themselves_have_an_end(site: Site, links: tuple[str, ...], etags: bool) -> None:
    """`self` leads to its own folder, `deep/up` to the folder above, and `deep/twin` to `deep`. Without versions, an
    object and a link to it cannot be told apart, which is an error after some folders."""
    pages = {"set": ["a.bin", "b.bin", "empty.bin", "deep/"], "set/deep": []}
    for link in links:
        pages["set" if link == "self" else "set/deep"].append(f"{link}/")
    site.etags = etags

    def fault(request: Request) -> Reply | None:
        parts = [part for part in request.name.rstrip("/").split("/") if part not in ("self", "twin")]
        while "up" in parts:
            del parts[parts.index("up") - 1 : parts.index("up") + 1]
        real = "/".join(parts)
        if real in pages:
            body = "".join(f'<a href="/{request.name.rstrip("/")}/{name}">x</a>' for name in pages[real]).encode()
            return Reply(200, body, {"Content-Type": "text/html"})
        if real not in site.objects:
            return None
        return Reply(200, site.objects[real], {"ETag": f'"{real}"'} if etags else {})

    site.fault = fault
    store = object_store(f"{site.url}/set")
    if not etags:
        with pytest.raises(RemoteError, match="no folder that links to itself"):
            store.list()
        return
    with pytest.warns(DamageWarning, match="a link to a folder above it") if "twin" in links else nullcontext():
        assert [info.name for info in store.list()] == ["a.bin", "b.bin", "empty.bin"]
    assert len(site.seen) < 80


def test_a_listed_object_that_cannot_be_found_is_not_left_out(site: Site) -> None:
    """Zarr would read its fill value."""
    site.fault = lambda request: 404 if request.name == "set/b.bin" else None
    with pytest.raises(RemoteError, match=r"set/b\.bin is listed, and cannot be found"):
        object_store(f"{site.url}/set").list()


def test_a_folder_with_the_names_of_the_folder_above_it_is_read(site: Site) -> None:
    """It is another folder where a file has another size or version."""
    site.objects = {f"run/{folder}meta.json": b"{}" for folder in ("", "eval/", "eval/eval/")}
    site.objects["run/eval/eval/eval/last"] = b"x"
    site.versions = {name: str(number) for number, name in enumerate(site.objects)}
    assert len(object_store(f"{site.url}/run").list()) == 4


# --- the cache ----------------------------------------------------------------------------------------------------


DELETED = "the cache of remote data was deleted while it was in use; open the dataset again"


def test_a_cache_that_is_deleted_is_an_error_and_then_made_again(site: Site, cache: Path) -> None:
    """Maps of files that are gone never show zeros: their bytes are as they were, or the read is an error."""
    path = mirror(f"{site.url}/set")
    mapped = map_file(path / "a.bin", lazy=True)
    read_mapped(mapped[:9])
    shutil.rmtree(cache)
    for begin in (0, 20 * BLOCK):
        got = read_or_error(lambda begin=begin: bytes(read_mapped(mapped[begin : begin + 9])))
        assert got in (DATA[begin : begin + 9], DELETED)
    with pytest.raises((RemoteError, OSError)):
        read_bytes(path / "b.bin")
    again = mirror(f"{site.url}/set")
    assert (read_bytes(again / "b.bin"), read_bytes(again / "a.bin")) == (b"small", DATA)
    assert read_or_error(lambda: bytes(read_mapped(mapped[30 * BLOCK :]))) in (DATA[30 * BLOCK :], DELETED)
    code = "import sys; from penstock.locations.mirror import mirror; from penstock.files.remote import read_bytes\n"
    code += "sys.stdout.buffer.write(read_bytes(mirror(sys.argv[1]) / 'a.bin'))"
    done = subprocess.run([sys.executable, "-c", code, f"{site.url}/set"], stdout=subprocess.PIPE, check=True)
    assert done.stdout == DATA


def test_an_epoch_over_a_cache_that_another_process_deletes(site: Site, cache: Path, tmp_path: Path) -> None:
    """It ends with an error that says so, or has the right rows; opened again, it has all."""
    rows = np.random.default_rng(0).integers(0, 256, (300, 5000), np.uint8)
    data = penstock.from_arrays({"observations/x": rows}, [30] * 10, align={"observations/x": "step"})
    penstock.convert(data, tmp_path / "run")
    site.objects.update(
        {f"run/{p.relative_to(tmp_path / 'run')}": p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    )

    def epoch(remote: penstock.EpisodeDataset, delete_at: int) -> None:
        both = [d.steps().shuffle(seed=1).loader(batch_size=20, threads=0) for d in (remote, data)]
        for number, (found, wanted) in enumerate(zip(*both, strict=True)):
            assert np.array_equal(found["observations/x"], wanted["observations/x"])
            if number == delete_at:
                subprocess.run(["rm", "-rf", str(cache)], check=True)
                penstock.open(f"{site.url}/run").close()  # the files are there again, and are others

    with penstock.open(f"{site.url}/run") as remote:
        assert read_or_error(lambda: epoch(remote, 2)) in (None, DELETED)
    with penstock.open(f"{site.url}/run") as remote:
        epoch(remote, -1)


def test_tables_of_the_cache_have_their_room(site: Site, cache: Path) -> None:
    """They are written through maps, and a map of a file without room ends the process where the disk is full."""
    read_bytes(mirror(f"{site.url}/set/a.bin"))
    tables = [p for p in cache.rglob("*") if p.name == "table" or p.name.startswith("pins.")]
    assert len(tables) == 2
    assert all(room_of(table) >= table.stat().st_size > 0 for table in tables)


def test_a_disk_without_room_for_tables_says_what_to_do(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"no room for remote data: .*PENSTOCK_CACHE"):
        read_bytes(mirror(f"{site.url}/set/a.bin"))
    monkeypatch.undo()
