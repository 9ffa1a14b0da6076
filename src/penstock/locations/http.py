"""Objects of a web server: ranges by HTTP/1.1 over connections that stay open.

Every answer is checked: its version (`If-Match` is sent, and the ETag or time of change is compared), its range and
its length. A server that ignores `Range` is recognised by its answer. Folders are listed from the links of the page
that the server makes of them. The variables `http_proxy`, `https_proxy` and `no_proxy`
name proxies.

Why no library: with 16 threads and 20 ms of latency, clients in Rust and on an event loop are not faster, and neither
tells the version of the object that a range came from in all cases.

A folder that links to itself, or to a folder above it, has no end: `run/latest/latest/...`. A folder with the names of
a folder above it, and the sizes and versions of all its files, is such a link, and is left out: its objects are listed
already, and reading a local folder does not follow such links either. A folder with the names of many folders above it
is an error where its files have no versions, and left out with a warning where it has folders alone.
"""

from __future__ import annotations

import base64
import http.client
import os
import re
import weakref
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from typing_extensions import override

from penstock.core.damage import warn_damage
from penstock.errors import ArgumentError, ChangedObjectError, RemoteError
from penstock.flow import map_on_threads
from penstock.locations.objects import PIECE, NoRangesError, ObjectInfo, ObjectStore, TransientError, joined, shown

LISTED = 1 << 20  # objects of a listing at most
REPEATED = 8  # folders on one path that may have the same names
_ANSWERS = 64  # threads that ask for the sizes of listed objects


class Listing:
    """One listing of the objects below a folder."""

    def __init__(self, names: Callable[[str], Sequence[str]], stat: Callable[[str], ObjectInfo], url: str) -> None:
        self._names = names
        self._stat = stat
        self._url = url
        self._infos: dict[str, ObjectInfo | None] = {}

    def objects(self, folder: str, beginning: str) -> list[ObjectInfo]:
        """Return all objects below a folder whose names begin with a text, sorted by name."""
        names = sorted(name for name in self._below(folder) if name.startswith(folder + beginning))
        infos = self._infos_of(names)
        objects = [info for name in names if (info := infos[name]) is not None]
        if len(objects) < len(names):  # not left out: a missing chunk of Zarr is not missing data, but a fill value
            gone = next(name for name in names if infos[name] is None)
            message = f"{joined(self._url, gone)} is listed, and cannot be found: a link that leads nowhere?"
            raise RemoteError(f"{message} Remove it, or give the URLs of the files")
        return objects

    def _below(self, top: str) -> list[str]:
        """The names of all objects below a folder."""
        names: list[str] = []
        folders: list[tuple[str, tuple[str, ...]]] = [(top, ())]
        pages: dict[str, list[str]] = {}
        while folders:
            folder, above = folders.pop()
            page = pages[folder] = sorted(self._names(folder))
            alike = [each for each in above if pages[each] == page]
            if any(self._is_same(folder, each, page) for each in alike):
                continue
            files = [folder + name for name in page if not name.endswith("/")]
            if len(alike) > REPEATED and not files:
                warn_damage(f"{joined(self._url, folder)} seems to be a link to a folder above it, and is left out")
                continue
            names += files
            folders += [(folder + name, (*above, folder)) for name in page if name.endswith("/")]
            if len(alike) > REPEATED or len(names) > LISTED:
                message = f"{LISTED} objects, and no folder that links to itself"
                raise RemoteError(
                    f"expected at most {message}, got {joined(self._url, folder)}; give the URLs of files"
                )
        return names

    def _is_same(self, folder: str, above: str, names: Sequence[str]) -> bool:
        """Whether the files of two folders have the same sizes and versions; False where a file has no version."""
        files = [name for name in names if not name.endswith("/")]
        both = self._infos_of([place + name for name in files for place in (above, folder)])
        states = [[_state(both[place + name]) for name in files] for place in (above, folder)]
        return bool(files) and states[0] == states[1] and None not in states[0]

    def _infos_of(self, names: Sequence[str]) -> dict[str, ObjectInfo | None]:
        """Size and version of each object, asked for once; None for what cannot be found."""
        unknown = [name for name in names if name not in self._infos]
        self._infos |= zip(unknown, map_on_threads(self._info, unknown, _ANSWERS, name="penstock-list"), strict=True)
        return {name: self._infos[name] for name in names}

    def _info(self, name: str) -> ObjectInfo | None:
        try:
            return self._stat(name)
        except FileNotFoundError:
            return None


def _state(info: ObjectInfo | None) -> tuple[int, str] | None:
    if info is None:
        return -1, ""  # it cannot be found
    return (info.size, info.version) if info.version else None


REDIRECTS = 5
IDLE = 64  # open connections to one host that wait for a request
PASSING = {408, 425, 429, 500, 502, 503, 504}  # statuses that another try may not give
_PAGE = 64 << 20  # bytes of a page of links
_TEXT = 1 << 16  # bytes that are read of any answer, such as the text of an error
_PACKED = (".gz", ".tgz")  # servers call the bytes of such files encoded, and send them as they are
_NO_HEAD = {400, 401, 403, 405, 501}  # statuses of HEAD where GET may answer: signed URLs are for one method
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_QUERY = "/%:@!$&'()*+,;=~-._?"  # characters of a query that are not percent-encoded
_HEADER_NAME = re.compile(r"[!-9;-~]+")
_HEADER_VALUE = re.compile(r"[ -~\t]*")


class HttpStore(ObjectStore):
    """Objects below a URL of a web server."""

    verifies = True
    advice = "give credentials with the option headers"
    """What a refused caller can do."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, timeout: float = 30.0) -> None:
        super().__init__(shown(url))
        try:
            split = urlsplit(url)
            _ = split.port
        except ValueError:
            message = "a URL with a host and perhaps a port; percent-encode '/', '?', '#' and '[' in a password"
            raise RemoteError(f"expected {message}, got {self.url}") from None
        if not split.hostname:
            raise RemoteError(f"expected a URL with a host, got {self.url}")
        for name, value in (headers or {}).items():
            if not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
                raise ArgumentError(f"expected headers of one line of printable ASCII, got another text in {name!r}")
        self._arguments = url, dict(headers or {}), timeout
        self._headers = dict(headers or {})
        self._timeout = timeout
        if split.username is not None:
            plain = f"{unquote(split.username)}:{unquote(split.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(plain.encode()).decode()
        self._origin = f"{split.scheme}://{split.netloc.rpartition('@')[2]}"
        self._path = quote(split.path, safe="/%:@!$&'()*+,;=~-._") or "/"
        self._query = f"?{quote(split.query, safe=_QUERY)}" if split.query else ""
        self._connections = _connections_of(timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        return HttpStore, self._arguments

    def _url(self, name: str) -> str:
        if not name:
            return self._origin + self._path + self._query
        return f"{self._origin}{self._path.rstrip('/')}/{quote(name)}{self._query}"

    @override
    def list(self, prefix: str = "", beginning: str = "") -> list[ObjectInfo]:
        head = self._described(prefix)
        if not _is_page(head):
            return [_info_of(prefix, head, self)]
        return Listing(self._links, self.stat, self.url).objects(f"{prefix}/" if prefix else "", beginning)

    def _links(self, folder: str) -> list[str]:
        """The names in a folder, from the page that the server makes of it; names of folders end with `/`."""
        base = f"{self._origin}{self._path.rstrip('/')}/{quote(folder)}"
        answer = self._ask("GET", base + self._query, folder, body=_PAGE)
        links = _Links()
        links.feed(answer.body.decode("utf-8", "replace"))
        names = [_name_below(base, urljoin(base, link)) for link in links.found]
        return list(dict.fromkeys(name for name in names if name))

    @override
    def stat(self, name: str) -> ObjectInfo:
        return _info_of(name, self._described(name), self)

    def _described(self, name: str) -> _Answer:
        """The answer to `HEAD`; of a server that refuses it or does not tell the size, to `GET` of the first byte."""
        url = self._url(name)
        head = self._ask("HEAD", url, name, passed=_NO_HEAD)
        if head.status < 300 and (head.length is not None or _is_page(head)):
            return head
        return self._ask("GET", url, name, {"Range": "bytes=0-0"}, body=1).of_whole()

    @override
    def read(self, name: str, ranges: Sequence[tuple[int, int]], version: str = "") -> list[bytes]:
        return [self._range(name, begin, end, version) for begin, end in ranges]

    def _range(self, name: str, begin: int, end: int, version: str) -> bytes:
        if end <= begin:
            return b""
        headers = {"Range": f"bytes={begin}-{end - 1}"}
        if version.startswith('"'):
            headers["If-Match"] = version
        answer = self._ask("GET", self._url(name), name, headers, body=end - begin)
        place = joined(self.url, name)
        if answer.status in (412, 416):
            raise ChangedObjectError(place)
        self.check(answer, name, version)
        if answer.status == 200 and (begin or len(answer.body) != end):
            raise NoRangesError(f"{place} ignores ranges")
        sent = _RANGE.fullmatch(answer.headers.get("content-range", ""))
        if answer.status == 206 and (sent is None or (int(sent[1]), int(sent[2])) != (begin, end - 1)):
            if sent and int(sent[1]) == begin:
                raise ChangedObjectError(place)
            got = answer.headers.get("content-range")
            raise TransientError(f"expected the bytes {begin} to {end - 1}, got {got!r} - at {place}")
        return answer.body

    @override
    def read_all(self, name: str, size: int, version: str, write: Callable[[int, bytes], None]) -> None:
        answer = self._ask("GET", self._url(name), name, body=size, write=write)
        self.check(answer, name, version)

    def check(self, answer: _Answer, name: str, version: str) -> None:
        """Raise an error for an answer with another version, or with compressed bytes."""
        place = joined(self.url, name)
        if not answer.is_version(version):
            raise ChangedObjectError(place)
        encoding = answer.headers.get("content-encoding", "identity").lower()
        packed = (name or self._path).lower().endswith(_PACKED) and encoding in ("gzip", "x-gzip")
        if encoding != "identity" and not packed:
            raise RemoteError(
                f"expected {place} as it is stored, got it compressed for sending (Content-Encoding: {encoding[:40]}), "
                "where ranges have no meaning; turn this off on the server, or save the file and open it"
            )

    @override
    def put(self, name: str, path: Path) -> None:
        self._ask("PUT", self._url(name), name, {"Content-Length": str(path.stat().st_size)}, upload=path)

    @override
    def delete(self, name: str) -> None:
        self._ask("DELETE", self._url(name), name)

    def _ask(
        self,
        method: str,
        url: str,
        name: str,
        headers: Mapping[str, str] | None = None,
        *,
        body: int = 0,
        upload: Path | None = None,
        write: Callable[[int, bytes], None] | None = None,
        passed: Container[int] = (412, 416),
    ) -> _Answer:
        """One answer, of which `body` bytes are read. Statuses from 300 on are errors, unless `passed` has them."""
        place = joined(self.url, name)
        for _ in range(REDIRECTS + 1):
            sent = {"User-Agent": "penstock", "Accept-Encoding": "identity", **(headers or {})}
            if url.startswith(self._origin + "/"):
                sent |= self._headers
            try:
                answer = self._connections.ask(method, url, sent, body, upload, write)
            except http.client.InvalidURL:  # its text has the query
                raise RemoteError(f"expected a URL that can be asked for, got {shown(url)}") from None
            except (OSError, http.client.HTTPException) as error:
                text = str(error) if str(error).isprintable() else ascii(str(error)[:100])  # a server may send anything
                raise TransientError(f"{place} does not answer ({type(error).__name__}: {text})") from None
            if answer.status in (301, 302, 303, 307, 308) and "location" in answer.headers:
                url = urljoin(url, quote(answer.headers["location"], safe=_QUERY + "#[]"))
                if urlsplit(url).scheme not in ("http", "https"):
                    break
                continue
            return answer if answer.status in passed else _checked(answer, place, self.advice)
        raise RemoteError(f"{place} leads from one place to the next; expected at most {REDIRECTS} redirects")


def _checked(answer: _Answer, place: str, advice: str) -> _Answer:
    status = answer.status
    if status in (404, 410):
        raise FileNotFoundError(f"nothing at {place}")
    if status in (401, 403):
        raise RemoteError(f"{place} refuses access (status {status}); {advice}")
    if status in PASSING:
        raise TransientError(f"{place} answers with status {status}", seconds_of(answer.headers.get("retry-after", "")))
    if status >= 300:
        raise RemoteError(f"{place} answers with status {status}")
    return answer


def seconds_of(text: str) -> float:
    """The seconds of a header `Retry-After`, which has a number or a time; 0 for anything else."""
    if text.isdecimal():
        return float(text[:9])
    try:
        return max((parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds(), 0.0)
    except (TypeError, ValueError):
        return 0.0


class _Answer:
    """Status, headers by name in lower case, and the body as far as it was read."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def of_whole(self) -> _Answer:
        """The headers of the whole object, from an answer with its first byte."""
        part = _RANGE.fullmatch(self.headers.get("content-range", ""))
        size = part[3] if part else self.headers.get("content-length", "") if self.status == 200 else ""
        if self.status == 416:
            size = "0"  # there is no first byte
        return _Answer(200, {**self.headers, "content-length": size}, b"")

    def is_version(self, version: str) -> bool:
        """Whether this is an answer of a version, as far as it tells. Weak and strong ETags are compared alike."""
        mine = self.headers.get("last-modified" if version.endswith("GMT") else "etag", "")
        return not (mine and version) or mine.removeprefix("W/") == version.removeprefix("W/")

    @property
    def version(self) -> str:
        return self.headers.get("etag") or self.headers.get("last-modified", "")

    @property
    def length(self) -> int | None:
        length = self.headers.get("content-length", "")
        return int(length) if length.isdecimal() else None


class _Connections:
    """Open connections that wait for their next request, by host. A forked process makes its own."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._idle: dict[tuple[int, str, str, str | None], list[http.client.HTTPConnection]] = {}
        weakref.finalize(self, _close_all, self._idle)

    def ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: int,
        upload: Path | None,
        write: Callable[[int, bytes], None] | None,
    ) -> _Answer:
        """Send one request over an open connection, or a new one, and return its answer."""
        split = urlsplit(url)
        target = (split.path or "/") + (f"?{split.query}" if split.query else "")
        proxy = getproxies().get(split.scheme)
        if proxy and proxy_bypass(split.netloc):
            proxy = None
        if proxy and split.scheme == "http":
            target = url
        idle = self._idle.setdefault((os.getpid(), split.scheme, split.netloc, proxy), [])
        while True:
            try:
                connection, reused = idle.pop(), True
            except IndexError:
                connection, reused = self._connect(split.scheme, split.netloc, proxy), False
            try:
                answer, alive = _exchange(connection, method, target, headers, body, upload, write)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                connection.close()
                if reused:
                    continue  # the server closed a connection that was idle
                raise
            except BaseException:
                connection.close()
                raise
            if alive and len(idle) < IDLE:
                idle.append(connection)
            else:
                connection.close()
            return answer

    def _connect(self, scheme: str, host: str, proxy: str | None) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        if proxy is None:
            return kind(host, timeout=self._timeout)
        through = urlsplit(proxy if "://" in proxy else f"http://{proxy}").netloc.rpartition("@")[2]
        connection = kind(through, timeout=self._timeout)
        if scheme == "https":
            connection.set_tunnel(host)
        return connection


_shared: weakref.WeakValueDictionary[float, _Connections] = weakref.WeakValueDictionary()


def _connections_of(timeout: float) -> _Connections:
    """The connections of all stores with this timeout: the objects of one host share them."""
    return _shared.get(timeout) or _shared.setdefault(timeout, _Connections(timeout))


def _exchange(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: int,
    upload: Path | None,
    write: Callable[[int, bytes], None] | None,
) -> tuple[_Answer, bool]:
    """Send one request and read its answer; and whether the connection can be used again.

    A body that is longer than `body` bytes is not read to its end.
    """
    if upload is None:
        connection.request(method, target, headers=dict(headers))
    else:
        with upload.open("rb") as file:
            connection.request(method, target, file, dict(headers))
    response = connection.getresponse()
    try:
        return _read(response, method, body, write)
    except BaseException:
        response.close()
        raise


def _read(
    response: http.client.HTTPResponse, method: str, body: int, write: Callable[[int, bytes], None] | None
) -> tuple[_Answer, bool]:
    """Read an answer; and whether its connection can be used again."""
    answer = _Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, b"")
    if method == "GET" and response.status == 200 and (answer.length or 0) > body:
        return answer, False  # the whole object, where a range was asked for
    if write is not None and response.status == 200:
        received = 0
        while (raw := response.read(PIECE)) and received + len(raw) <= body:
            write(received, raw)
            received += len(raw)
        return answer, response.isclosed() and not response.will_close
    limit = max(body, _TEXT)
    answer.body = response.read() if (answer.length or limit + 1) <= limit else response.read(limit + 1)
    return answer, response.isclosed() and not response.will_close


def _close_all(idle: Mapping[Any, Sequence[http.client.HTTPConnection]]) -> None:
    for connections in idle.values():
        for connection in connections:
            connection.close()


class _Links(HTMLParser):
    """The targets of all links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def _is_page(answer: _Answer) -> bool:
    return answer.headers.get("content-type", "").startswith("text/html")


def _name_below(base: str, link: str) -> str:
    """The name of a link to an object in a folder, with `/` at its end for a folder; empty for another link."""
    place = unquote(link.split("#", maxsplit=1)[0])
    name = place.removeprefix(unquote(base))
    inside = name.rstrip("/")
    if "?" in link or name == place or inside in ("", ".", "..") or "/" in inside or "\0" in name:
        return ""
    return name


def _info_of(name: str, answer: _Answer, store: HttpStore) -> ObjectInfo:
    store.check(answer, name, "")
    if answer.length is None:
        raise RemoteError(f"expected the size of {joined(store.url, name)}, the server does not tell it")
    return ObjectInfo(name, answer.length, answer.version)
