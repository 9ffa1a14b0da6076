"""Requests to the running server: answers, errors, and who may ask."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import numpy as np
import pytest

from penstock.errors import ArgumentError
from penstock.viewer.server import ViewerServer


def ask(viewer: ViewerServer, path: str, *, token: str | None = "", host: str | None = None, cookie: str = ""):
    """Status, headers and body of an answer. `token=""` sends the right one in the address."""
    place = urlsplit(viewer.address)
    given = place.query.removeprefix("token=") if token == "" else token
    if given is not None:
        path += ("&" if "?" in path else "?") + f"token={given}"
    connection = http.client.HTTPConnection("127.0.0.1", place.port or 0, timeout=60)
    headers = {"Host": host or f"127.0.0.1:{place.port}"} | ({"Cookie": cookie} if cookie else {})
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_pages_and_what_they_may_load(viewer: ViewerServer) -> None:
    status, headers, body = ask(viewer, "/")
    assert status == 200
    assert b"static/app.js" in body
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    for name in ("app.js", "dataset.js", "episode.js", "curves.js", "net.js", "style.css", "logo.svg"):
        status, _, body = ask(viewer, f"/static/{name}")
        assert status == 200
        assert b"http://" not in body.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"https://" not in body
    for name in ("app.py", "..%2Fapp.py", "../app.py", "%2e%2e/app.py"):
        assert ask(viewer, f"/static/{name}")[0] == 404


def test_only_the_token_opens(viewer: ViewerServer) -> None:
    assert ask(viewer, "/api/datasets", token=None)[0] == 403
    assert ask(viewer, "/api/datasets", token="wrong")[0] == 403
    assert ask(viewer, "/static/app.js", token=None)[0] == 403
    status, headers, _ = ask(viewer, "/")
    cookie = headers["Set-Cookie"].split(";")[0]
    assert "HttpOnly" in headers["Set-Cookie"]
    assert "SameSite=Strict" in headers["Set-Cookie"]
    assert ask(viewer, "/api/datasets", token=None, cookie=cookie)[0] == 200
    assert ask(viewer, "/api/datasets", token=None, cookie=cookie + "x")[0] == 403
    assert status == 200


def test_other_host_names_are_refused(viewer: ViewerServer) -> None:
    assert ask(viewer, "/", host="evil.example")[0] == 403
    assert ask(viewer, "/", host="localhost")[0] == 200


def test_answers(viewer: ViewerServer) -> None:
    listed = json.loads(ask(viewer, "/api/datasets")[2])
    assert [(data["name"], data["format"], data["episodes"]) for data in listed] == [
        ("kitchen", "columns", 5),
        ("clean", "minari", 5),
        ("v3_video", "lerobot", 4),
    ]
    info = json.loads(ask(viewer, "/api/v3_video/info")[2])
    assert info["cameras"] == ["observations/images/top", "observations/images/wrist"]
    status, headers, body = ask(viewer, "/api/kitchen/series/2?column=actions&points=10")
    assert (status, headers["X-Shape"]) == (200, "10,2,2")
    assert np.frombuffer(body, "<f4").shape == (40,)
    status, headers, body = ask(viewer, "/api/v3_video/picture/1/7?camera=observations/images/top")
    assert (status, headers["Content-Type"], body[:2]) == (200, "image/jpeg", b"\xff\xd8")
    assert json.loads(ask(viewer, "/api/kitchen/episodes?where=total_steps%3E70&limit=1")[2])["total"] == 3


@pytest.mark.parametrize(
    "path",
    [
        "/api/kitchen/episodes?where=__import__('os')",
        "/api/kitchen/episodes?sort=nothing",
        "/api/kitchen/episodes?limit=many",
        "/api/kitchen/episode/99",
        "/api/kitchen/series/0?column=observations/camera",
        "/api/kitchen/picture/0/999?camera=observations/camera",
        "/api/kitchen/histogram?column=nothing",
    ],
)
def test_errors_are_messages(viewer: ViewerServer, path: str) -> None:
    status, _, body = ask(viewer, path.replace("'", "%27").replace("(", "%28").replace(")", "%29"))
    assert status == 400
    assert json.loads(body)["error"]


def test_an_unknown_dataset(viewer: ViewerServer) -> None:
    assert ask(viewer, "/api/other/info")[0] == 404


def test_without_datasets() -> None:
    with pytest.raises(ArgumentError, match="at least one"):
        ViewerServer([])
    with pytest.raises(FileNotFoundError):
        ViewerServer(["./nothing-is-here"])


def test_two_datasets_of_one_name(viewer: ViewerServer, datasets) -> None:
    with ViewerServer([str(datasets["kitchen"]), str(datasets["kitchen"])]) as server:
        assert [data.name for data in server.datasets] == ["kitchen", "kitchen-2"]
