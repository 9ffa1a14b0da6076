"""Who may ask the viewer, and what its pages may load.

The token is in the address that the command prints. It comes back in a cookie that other sites cannot use. Requests for
another host name are refused, so that another page in the browser cannot reach the server under another name. Pages
load nothing from elsewhere (`Content-Security-Policy`). Only a page of this server may send values (`Origin`).
"""

from __future__ import annotations

import secrets
from typing import Any

HOSTS = ("127.0.0.1", "localhost", "testserver")
POLICY = "default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; frame-ancestors 'none'"
MOST_BODY = 1 << 20  # bytes of a request that sends values


def cookie_name(scope: Any) -> str:
    """Return the name of the cookie with the token. Browsers do not separate cookies by port, so the name does."""
    _, port = scope.get("server") or ("", None)
    return f"penstock_token_{port}"


class Guard:
    """Lets requests through that have the token and the name of this machine; adds headers to all answers."""

    def __init__(self, app: Any, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from starlette import requests, responses

        request = requests.Request(scope)
        given = request.query_params.get("token")
        allowed = [each for each in (given, request.cookies.get(cookie_name(scope))) if each is not None]
        if request.url.hostname not in HOSTS:
            await responses.PlainTextResponse("wrong host", 403)(scope, receive, send)
        elif not any(secrets.compare_digest(each.encode(), self._token.encode()) for each in allowed):
            message = "open the address that penstock printed: it has a token"
            await responses.PlainTextResponse(message, 403)(scope, receive, send)
        else:
            await self._app(
                scope, receive, _with_headers(send, f"{cookie_name(scope)}={self._token}" if given else None)
            )


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
