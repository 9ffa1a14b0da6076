"""Objects of a web server: ranges by HTTP/1.1 over connections that stay open.

Every answer is checked: its version (`If-Match` is sent, and the ETag or time of change is compared), its range and
its length. A server that ignores `Range` is recognised by its answer. Folders are listed from the links of the page
that the server makes of them. The variables `http_proxy`, `https_proxy` and `no_proxy`
name proxies.

Why no library: with 16 threads and 20 ms of latency, clients in Rust and on an event loop are not faster, and neither
tells the version of the object that a range came from in all cases (docs/decisions.md has the figures).
"""

from __future__ import annotations

import base64
import http.client
import os
import re
import weakref
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

from typing_extensions import override

from penstock.errors import ChangedObjectError, RemoteError
from penstock.flow import map_on_threads
from penstock.locations.objects import NoRangesError, ObjectInfo, ObjectStore, TransientError, joined, shown

REDIRECTS = 5
IDLE = 64  # open connections to one host that wait for a request
LISTED = 1 << 20  # objects of a listing at most
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # statuses that another try may not give
_ANSWERS = 16  # threads that ask for the sizes of listed objects
_PAGE = 64 << 20  # bytes of a page of links
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class HttpStore(ObjectStore):
    """Objects below a URL of a web server.

    Args:
        url: URL of an object, or of a folder that the server lists. A query is sent with every request.
        headers: Headers of every request, such as `Authorization`. They are not sent to other hosts. The default is
            none.
        timeout: Seconds to wait for bytes. The default is 30.
    """

    verifies = True

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, timeout: float = 30.0) -> None:
        super().__init__(shown(url))
        split = urlsplit(url)
        if not split.hostname:
            raise RemoteError(f"expected a URL with a host, got {self.url}")
        self._arguments = url, dict(headers or {}), timeout
        self._headers = dict(headers or {})
        self._timeout = timeout
        if split.username is not None:
            plain = f"{unquote(split.username)}:{unquote(split.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(plain.encode()).decode()
        self._origin = f"{split.scheme}://{split.netloc.rpartition('@')[2]}"
        self._path = quote(split.path, safe="/%:@!$&'()*+,;=~-._") or "/"
        self._query = f"?{split.query}" if split.query else ""
        self._connections = _connections_of(timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        return HttpStore, self._arguments

    def _url(self, name: str) -> str:
        if not name:
            return self._origin + self._path + self._query
        return f"{self._origin}{self._path.rstrip('/')}/{quote(name)}{self._query}"

    @override
    def list(self, prefix: str = "", beginning: str = "") -> list[ObjectInfo]:
        head = self._ask("HEAD", self._url(prefix), prefix)
        if not _is_page(head):
            return [_info_of(prefix, head, self)]
        folder = f"{prefix}/" if prefix else ""
        names = sorted(name for name in self._names(folder) if name.startswith(folder + beginning))
        return map_on_threads(self.stat, names, _ANSWERS, name="penstock-list")

    def _names(self, folder: str) -> list[str]:
        """The names of all objects below a folder, from the pages of the server."""
        names: list[str] = []
        folders = [folder]
        while folders and len(names) <= LISTED:
            folder = folders.pop()
            base = self._url(folder)
            base = base if base.endswith("/") else base + "/"
            answer = self._ask("GET", base, folder, body=_PAGE)
            links = _Links()
            links.feed(answer.body.decode("utf-8", "replace"))
            for link in dict.fromkeys(links.found):
                place = urljoin(base, link).split("#")[0]
                inside = place.removeprefix(base)
                if inside == place or not inside or "?" in inside or inside.strip("/").count("/"):
                    continue
                name = unquote(inside)
                if name.rstrip("/") in ("", ".", "..") or "/" in name.rstrip("/") or "\0" in name:
                    continue
                (folders if inside.endswith("/") else names).append(folder + name)
        return names

    @override
    def stat(self, name: str) -> ObjectInfo:
        return _info_of(name, self._ask("HEAD", self._url(name), name), self)

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
        if answer.status in (412, 416) or (version and answer.version not in ("", version)):
            raise ChangedObjectError(place)
        if answer.status == 200 and (begin or answer.length != end):
            raise NoRangesError(f"{place} ignores ranges")
        content_range = _RANGE.fullmatch(answer.headers.get("content-range", ""))
        if answer.status == 206 and (
            content_range is None or (int(content_range[1]), int(content_range[2])) != (begin, end - 1)
        ):
            raise (
                ChangedObjectError(place)
                if content_range and int(content_range[1]) == begin
                else TransientError(
                    f"expected the bytes {begin} to {end - 1}, got {answer.headers.get('content-range')!r} - at {place}"
                )
            )
        if len(answer.body) != end - begin:
            raise TransientError(
                f"expected {end - begin} bytes from byte {begin} on, got {len(answer.body)} - at {place}"
            )
        return answer.body

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
    ) -> _Answer:
        """One answer, of which `body` bytes are read. Raises for every status that a caller need not know."""
        place = joined(self.url, name)
        for _ in range(REDIRECTS + 1):
            sent = {"User-Agent": "penstock", "Accept-Encoding": "identity", **(headers or {})}
            if url.startswith(self._origin + "/"):
                sent |= self._headers
            try:
                answer = self._connections.ask(method, url, sent, body, upload)
            except (OSError, http.client.HTTPException) as error:
                raise TransientError(f"{place} does not answer ({type(error).__name__}: {error})") from None
            if answer.status in (301, 302, 303, 307, 308) and "location" in answer.headers:
                url = urljoin(url, answer.headers["location"])
                if urlsplit(url).scheme not in ("http", "https"):
                    break
                continue
            return _checked(answer, place)
        raise RemoteError(f"{place} leads from one place to the next; expected at most {REDIRECTS} redirects")


def _checked(answer: _Answer, place: str) -> _Answer:
    status = answer.status
    if status in (404, 410):
        raise FileNotFoundError(f"nothing at {place}")
    if status in (401, 403):
        raise RemoteError(f"{place} refuses access (status {status}); give credentials with the option headers")
    if status in _PASSING:
        raise TransientError(f"{place} answers with status {status}")
    if status >= 300 and status not in (412, 416):
        raise RemoteError(f"{place} answers with status {status}")
    return answer


class _Answer:
    """Status, headers by name in lower case, and the body as far as it was read."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def version(self) -> str:
        return self.headers.get("etag") or self.headers.get("last-modified", "")

    @property
    def length(self) -> int | None:
        length = self.headers.get("content-length", "")
        return int(length) if length.isdigit() else None


class _Connections:
    """Open connections that wait for their next request, by host. A forked process makes its own."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._idle: dict[tuple[int, str, str, str | None], list[http.client.HTTPConnection]] = {}
        weakref.finalize(self, _close_all, self._idle)

    def ask(self, method: str, url: str, headers: Mapping[str, str], body: int, upload: Path | None) -> _Answer:
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
                answer, alive = _exchange(connection, method, target, headers, body, upload)
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
) -> tuple[_Answer, bool]:
    """Send one request and read its answer; and whether the connection can be used again."""
    if upload is None:
        connection.request(method, target, headers=dict(headers))
    else:
        with upload.open("rb") as file:
            connection.request(method, target, file, dict(headers))
    response = connection.getresponse()
    received = {name.lower(): value for name, value in response.getheaders()}
    length = received.get("content-length", "")
    if method == "GET" and response.status == 200 and length.isdigit() and int(length) > max(body, _PAGE):
        return _Answer(response.status, received, b""), False  # the whole object, where a range was asked for
    raw = response.read()
    return _Answer(response.status, received, raw), not response.will_close


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


def _info_of(name: str, answer: _Answer, store: HttpStore) -> ObjectInfo:
    if answer.length is None:
        raise RemoteError(f"expected the size of {joined(store.url, name)}, the server does not tell it")
    return ObjectInfo(name, answer.length, answer.version)
