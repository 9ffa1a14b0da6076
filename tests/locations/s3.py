"""An S3 server on this machine: moto, an independent implementation, behind faults that a test asks for."""

# pyright: basic

from __future__ import annotations

import http.client
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

KEY, SECRET = "AKIDEXAMPLEPENSTOCK", "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLE"
AUTHORIZATION = f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@dataclass
class Request:
    """What a client asked for: the path without the query, and how it proved who it is."""

    method: str
    path: str
    query: str
    headers: dict[str, str]

    @property
    def signed(self) -> str:
        """How the request is signed: by its "header", by its "url", or "" """
        if KEY in self.headers.get("authorization", ""):
            return "header"
        return "url" if KEY in self.query and "X-Amz-Signature=" in self.query else ""

    @property
    def range(self) -> tuple[int, int] | None:
        told = self.headers.get("range", "")
        first, _, last = told.removeprefix("bytes=").partition("-")
        return (int(first), int(last)) if told else None


@dataclass
class Stores:
    """A running server, the requests it saw, and how it misbehaves.

    `fault` is called with each request and may return a status to answer, "cut" for an answer without its end.
    """

    url: str = ""
    fault: Callable[[Request], int | str | None] = lambda _: None
    seen: list[Request] = field(default_factory=list)

    made: int = 0


@dataclass
class Bucket:
    """One bucket of a server."""

    stores: Stores
    name: str

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    def put(self, objects: dict[str, bytes], public: bool = False) -> None:
        """Put objects, which others may read if they are public."""
        for name, content in objects.items():
            access = {"x-amz-acl": "public-read"} if public else {}
            self._ask("PUT", f"/{self.name}/{urllib.parse.quote(name)}", content, access)

    def names(self) -> list[str]:
        """The names of all objects, as moto has them."""
        page = self._ask("GET", f"/{self.name}?list-type=2")
        return [urllib.parse.unquote(name) for name in re.findall(r"<Key>(.*?)</Key>", page.decode())]

    def get(self, name: str) -> bytes:
        """The content of an object."""
        return self._ask("GET", f"/{self.name}/{urllib.parse.quote(name)}")

    def delete(self, name: str) -> None:
        """Delete an object."""
        self._ask("DELETE", f"/{self.name}/{urllib.parse.quote(name)}", status=204)

    def ranges(self) -> list[Request]:
        return [request for request in self.stores.seen if request.method == "GET" and request.range]

    def _ask(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None, status: int = 200
    ) -> bytes:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.stores.url).netloc)
        connection.request(method, target, body, {"Authorization": AUTHORIZATION, **(headers or {})})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if answer.status != status:
            raise RuntimeError(f"{method} {target} -> {answer.status}: {content!r}")
        return content


def bucket_on(stores: Stores, set_variable: Callable[[str, str], None]) -> Bucket:
    """An empty bucket, after the environment has the server and the credentials for it, and nothing else of AWS."""
    stores.fault = lambda _: None
    stores.made += 1
    bucket = Bucket(stores, f"bucket-{stores.made}")
    bucket._ask("PUT", f"/{bucket.name}")
    stores.seen.clear()
    for name, value in ENVIRONMENT.items():
        set_variable(name, value)
    set_variable("AWS_ENDPOINT_URL", stores.url)
    return bucket


@contextmanager
def serving_s3() -> Iterator[Stores]:
    """Serve buckets at `stores.url`, which are all gone after the block."""
    stores = Stores()
    application = DomainDispatcherApplication(create_backend_app)

    def faulty(environ, start_response):
        headers = {name[5:].replace("_", "-").lower(): v for name, v in environ.items() if name.startswith("HTTP_")}
        request = Request(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"], headers)
        stores.seen.append(request)
        fault = stores.fault(request)
        if isinstance(fault, int):
            code = {403: "AccessDenied", 503: "SlowDown"}.get(fault, "InternalError")
            body = f"<Error><Code>{code}</Code><Message>{code} {request.query}</Message></Error>".encode()
            start_response(f"{fault} {code}", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]
        answer = b"".join(application(environ, start_response))
        return [answer[: len(answer) // 2] if fault == "cut" else answer]

    class Handler(MotoRequestHandler):
        def log_request(self, *_) -> None:
            pass

        def handle(self) -> None:
            with suppress(ConnectionError):
                super().handle()

    server = make_server("127.0.0.1", 0, faulty, threaded=True, request_handler=Handler)
    server.daemon_threads = True  # pyright: ignore[reportAttributeAccessIssue]
    stores.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield stores
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
