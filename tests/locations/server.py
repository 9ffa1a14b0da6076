"""A web server on this machine that serves bytes by ranges, and misbehaves where a test asks for it."""

# pyright: basic

from __future__ import annotations

import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Request:
    """What a client asked for; `begin` and `end` are None without a range."""

    method: str
    name: str
    begin: int | None
    end: int | None
    headers: dict[str, str]


@dataclass
class Reply:
    """A whole answer; `sized` says whether it tells its length."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    sized: bool = True


@dataclass
class Site:
    """The objects of a server, the requests it saw, and how it misbehaves.

    `fault` is called with each request and may return a status to answer, "cut" for an answer without its end, or a
    whole answer. Without `sizes`, no answer tells its length.
    """

    url: str
    objects: dict[str, bytes]
    versions: dict[str, str] = field(default_factory=dict)
    fault: Callable[[Request], Reply | int | str | None] = lambda _: None
    ranges: bool = True
    etags: bool = True
    lists: bool = True
    sizes: bool = True
    seen: list[Request] = field(default_factory=list)

    def gets(self, name: str | None = None) -> list[Request]:
        """The requests for ranges of bytes."""
        return [r for r in self.seen if r.method == "GET" and r.begin is not None and name in (None, r.name)]

    def change(self, name: str, content: bytes) -> None:
        """Replace an object."""
        self.objects[name] = content
        self.versions[name] = self.versions.get(name, "v1") + "+"


class Server(ThreadingHTTPServer):
    """A server that ends its connections, and with them its threads."""

    request_queue_size = 128

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.open: set[socket.socket] = set()

    def process_request(self, request: socket.socket, client_address: object) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def end(self) -> None:
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is none of the test's."""


@contextmanager
def serving(objects: dict[str, bytes]) -> Iterator[Site]:
    """Serve objects at `site.url` until the end of the block."""
    site = Site("", objects)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            answer(self, site)

        do_HEAD = do_PUT = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.end()
        thread.join()


def answer(handler: BaseHTTPRequestHandler, site: Site) -> None:
    name = urllib.parse.unquote(urllib.parse.urlsplit(handler.path).path).lstrip("/")
    told = handler.headers.get("Range", "")
    begin, end = (int(part) for part in told[6:].split("-")) if told else (None, None)
    request = Request(handler.command, name, begin, end, dict(handler.headers))
    site.seen.append(request)
    fault = site.fault(request)
    if isinstance(fault, Reply | int):
        handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        given = Reply(fault) if isinstance(fault, int) else fault
        reply(handler, given.status, given.body, given.headers, sized=given.sized)
        return
    if handler.command == "PUT":
        size = int(handler.headers["Content-Length"])
        content = handler.rfile.read(size)
        if len(content) == size:  # of a client that lives
            site.objects[name] = content
            reply(handler, 201, b"", {})
        return
    if handler.command == "DELETE" and name in site.objects:
        del site.objects[name]
        reply(handler, 204, b"", {})
        return
    if name not in site.objects:
        page = listing(site, name)
        if page is None:
            reply(handler, 404, b"", {})
        else:
            reply(handler, 200, page, {"Content-Type": "text/html"})
        return
    content = site.objects[name]
    headers = {"Last-Modified": "Mon, 02 Nov 2026 10:00:00 GMT", "Content-Type": "application/octet-stream"}
    if site.etags:
        headers["ETag"] = f'"{site.versions.get(name, "v1")}"'
        if handler.headers.get("If-Match", headers["ETag"]) != headers["ETag"]:
            reply(handler, 412, b"", headers)
            return
    status = 200
    if begin is not None and site.ranges:
        if begin >= len(content):
            reply(handler, 416, b"", headers)
            return
        end = min(end, len(content) - 1)
        headers["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
        content, status = content[begin : end + 1], 206
    reply(handler, status, content, headers, cut=fault == "cut", sized=site.sizes)


def reply(
    handler: BaseHTTPRequestHandler,
    status: int,
    body: bytes,
    headers: dict[str, str],
    cut: bool = False,
    sized: bool = True,
) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header(*(("Content-Length", str(len(body))) if sized else ("Connection", "close")))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body[: len(body) // 2] if cut else body)
    if cut or not sized:
        handler.close_connection = True


def listing(site: Site, name: str) -> bytes | None:
    """The page of links of a folder, or None if there is no such folder."""
    folder = f"{name.rstrip('/')}/" if name else ""
    inside = sorted(
        {
            n[len(folder) :].partition("/")[0] + n[len(folder) :].partition("/")[1]
            for n in site.objects
            if n.startswith(folder)
        }
    )
    if not inside or not site.lists:
        return None
    links = "".join(f'<a href="/{urllib.parse.quote(folder + entry)}">{entry}</a>\n' for entry in inside)
    return f'<html><a href="../">up</a><a href="?order=name">Name</a>{links}</html>'.encode()
