"""Who may ask the viewer, and what its pages may load.

The token is in the address that the command prints. It comes back in a cookie that other sites cannot use. Requests for
another host name are refused, so that another page in the browser cannot reach the server under another name. Pages
load nothing from elsewhere (`Content-Security-Policy`). Only a page of this server may send values (`Origin`).

A server for others may also have a password, which browsers ask for, and the name that a proxy has for it. It has no
route that changes anything.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from dataclasses import dataclass
from typing import Any

HOSTS = ("127.0.0.1", "localhost", "testserver")
POLICY = "default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; frame-ancestors 'none'"
MOST_BODY = 1 << 20  # bytes of a request that sends values


def cookie_name(scope: Any) -> str:
    """Return the name of the cookie with the token. Browsers do not separate cookies by port, so the name does."""
    _, port = scope.get("server") or ("", None)
    return f"penstock_token_{port}"


@dataclass(frozen=True)
class Access:
    """Who may ask: people with the token, or with the password if there is one, under the names of this machine."""

    token: str
    password: str | None = None
    name: str | None = None
    """Another host name of the server, which a proxy has."""
    read_only: bool = False


class Guard:
    """Lets requests through that have the token and the name of this machine; adds headers to all answers."""

    def __init__(self, app: Any, access: Access) -> None:
        self._app = app
        self._access = access
        self._hosts = (*HOSTS, access.name) if access.name else HOSTS

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from starlette import requests, responses

        request = requests.Request(scope)
        given = request.query_params.get("token")
        allowed = [each for each in (given, request.cookies.get(cookie_name(scope))) if each is not None]
        is_known = any(_equal(each, self._access.token) for each in allowed)
        if request.url.hostname not in self._hosts:
            await responses.PlainTextResponse("wrong host", 403)(scope, receive, send)
        elif is_known or self._has_password(request):
            cookie = f"{cookie_name(scope)}={self._access.token}" if given and is_known else None
            await self._app(scope, receive, _with_headers(send, cookie))
        elif self._access.password is not None:
            asked = {"WWW-Authenticate": 'Basic realm="penstock", charset="UTF-8"'}
            await responses.PlainTextResponse("expected the password", 401, asked)(scope, receive, send)
        else:
            message = "open the address that penstock printed: it has a token"
            await responses.PlainTextResponse(message, 403)(scope, receive, send)

    def _has_password(self, request: Any) -> bool:
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if self._access.password is None or kind.lower() != "basic":
            return False
        try:
            _, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
        return _equal(password, self._access.password)


def _equal(given: str, expected: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def _with_headers(send: Any, cookie: str | None) -> Any:
    """Add headers to an answer: what pages may load, and the cookie, `name=token`, if the token was in the address."""
    added = [(b"content-security-policy", POLICY.encode()), (b"x-content-type-options", b"nosniff")]
    added.append((b"referrer-policy", b"no-referrer"))
    if cookie is not None:
        added.append((b"set-cookie", f"{cookie}; Path=/; HttpOnly; SameSite=Strict".encode()))

    async def sent(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *added]
        await send(message)

    return sent


async def sent_json(request: Any) -> tuple[bytes, Any]:
    """Return the body of a request that sends values, or the answer that refuses it."""
    from starlette import responses

    given = request.headers
    if given.get("origin") != f"http://{given.get('host')}":
        return b"", responses.PlainTextResponse("expected a page of this server to ask", 403)
    if given.get("content-type", "").split(";")[0].strip() != "application/json":
        return b"", responses.PlainTextResponse("expected JSON", 415)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY:
            return b"", responses.JSONResponse({"error": f"expected at most {MOST_BODY:,} bytes of marks"}, 413)
    return body, None
