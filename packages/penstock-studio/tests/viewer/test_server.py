"""Requests to the running server: answers, errors, and who may ask."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

import penstock
from penstock.data.curation import Curation, default_path
from penstock.errors import ArgumentError, StateError
from penstock_studio.viewer.server import TURN, ViewerServer, _ShortTurns
from viewer.conftest import serving


def ask(
    viewer: ViewerServer,
    path: str,
    *,
    token: str | None = "",
    host: str | None = None,
    cookie: str = "",
    password: str | None = None,
):
    """Status, headers and body of an answer. `token=""` sends the right one in the address."""
    place = urlsplit(viewer.address)
    given = place.query.removeprefix("token=") if token == "" else token
    if given is not None:
        path += ("&" if "?" in path else "?") + f"token={given}"
    connection = http.client.HTTPConnection("127.0.0.1", place.port or 0, timeout=60)
    headers = {"Host": host or f"127.0.0.1:{place.port}"} | ({"Cookie": cookie} if cookie else {})
    if password is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(f"ann:{password}".encode()).decode()
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
    for name in (
        "app.js",
        "dataset.js",
        "episodes.js",
        "findings.js",
        "histogram.js",
        "complete.js",
        "palette.js",
        "share.js",
        "episode.js",
        "curate.js",
        "curves.js",
        "net.js",
        "side.js",
        "cameras.js",
        "style.css",
        "logo.svg",
    ):
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


def test_a_second_server_does_not_log_out_the_first(viewer: ViewerServer, datasets) -> None:
    """A browser sends its cookies to every port of a host, and keeps one value of each name."""
    with serving(datasets["kitchen"]) as second:
        answers = [ask(server, "/")[1]["Set-Cookie"].split(";")[0] for server in (viewer, second)]
        jar = dict(answer.split("=", 1) for answer in answers)
        cookie = "; ".join(f"{name}={value}" for name, value in jar.items())
        for server in (viewer, second):
            assert ask(server, "/api/datasets", token=None, cookie=cookie)[0] == 200


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
    assert len(body) == 40 * 4 + 10  # values, then flags
    status, headers, body = ask(viewer, "/api/v3_video/picture/1/7?camera=observations/images/top")
    assert (status, headers["Content-Type"], body[:4]) == (200, "image/png", b"\x89PNG")
    status, headers, body = ask(viewer, "/api/v3_video/picture/1/7?camera=observations/images/top&encoding=jpeg")
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
        "/api/kitchen/chunk/0/99?camera=observations/camera",
        "/api/kitchen/view/0",
        "/api/kitchen/view/0/array",
        "/api/kitchen/histograms?column=nothing",
        "/api/kitchen/episodes?column=nothing",
        "/api/kitchen/episodes?finding=nothing",
        "/api/kitchen/episodes?seed=x",
        "/api/kitchen/selection?where=1",
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


def post(viewer: Any, path: str, body: bytes, **headers: str) -> int:
    """Status of an answer. The token is sent as a cookie, and the headers are those of a page unless given."""
    place = urlsplit(viewer.address)
    sent = {
        "Cookie": f"penstock_token_{place.port}={place.query.removeprefix('token=')}",
        "Origin": f"http://127.0.0.1:{place.port}",
        "Content-Type": "application/json",
    }
    sent = {name: value for name, value in (sent | headers).items() if value}
    connection = http.client.HTTPConnection("127.0.0.1", place.port or 0, timeout=60)
    try:
        connection.request("POST", path, body, sent)
        return connection.getresponse().status
    finally:
        connection.close()


def change(after: str) -> bytes:
    return b'{"before": {}, "after": ' + after.encode() + b"}"


def test_only_a_page_of_this_server_sets_marks(viewer: ViewerServer, datasets) -> None:
    marks = "/api/clean/marks/2"
    file = default_path(datasets["clean"])
    folder = sorted(file.parent.iterdir())
    assert post(viewer, marks, b"{}", Cookie="") == 403
    assert post(viewer, marks, b"{}", Cookie=f"penstock_token_{urlsplit(viewer.address).port}=wrong") == 403
    for origin in ("", "null", "http://evil.example", "http://127.0.0.1:1", "https://127.0.0.1"):
        assert post(viewer, marks, b"{}", Origin=origin) == 403
    assert post(viewer, marks, b"{}", Host="evil.example", Origin="http://evil.example") == 403
    assert post(viewer, marks, b"{}", **{"Content-Type": "text/plain"}) == 415
    assert post(viewer, marks, b" " * (1 << 20) + b"{}") == 413
    for wrong in (b"", b"{", b"[" * 100_000, b"[]", b"{}", change('{"rating": 9}'), change('{"path": "/"}')):
        assert post(viewer, marks, wrong) == 400
    assert post(viewer, "/api/clean/marks/99", change("{}")) == 400
    assert post(viewer, "/api/other/marks/0", change("{}")) == 404
    assert post(viewer, "/api/clean/info", b"{}") == 405
    assert ask(viewer, marks)[0] == 405
    assert sorted(file.parent.iterdir()) == folder
    assert post(viewer, marks, change('{"rating": 2, "tags": ["slow"]}')) == 200
    assert Curation.read(file)[2].rating == 2
    assert set(file.parent.iterdir()) - set(folder) == {file}
    assert json.loads(ask(viewer, "/api/clean/episodes?where=rating%3D%3D2")[2])["total"] == 1


def test_where_marks_go(datasets, tmp_path: Path) -> None:
    kitchen, clean = str(datasets["kitchen"]), str(datasets["clean"])
    with pytest.raises(ArgumentError, match="one dataset"):
        ViewerServer([kitchen, clean], curation=tmp_path / "c.json")
    with ViewerServer([kitchen], curation=tmp_path / "c.json") as server:
        assert server.datasets[0].info()["curation"]["path"] == str(tmp_path / "c.json")
    Curation("other", 1).save(tmp_path / "c.json")
    with pytest.raises(StateError, match="made for"):
        ViewerServer([kitchen], curation=tmp_path / "c.json")
    copy = tmp_path / "copy"
    copy.symlink_to(kitchen)
    Curation("other", 1).save(tmp_path / "copy.curation.json")
    with ViewerServer([str(copy)]) as server:
        assert "read-only" in server.datasets[0].info()["curation"]["message"]


def test_threads_take_longer_turns_again_when_the_last_of_several_servers_ended() -> None:
    turns, other, before = _ShortTurns(), ExitStack(), sys.getswitchinterval()
    other.enter_context(turns)
    with turns:
        other.close()
        assert sys.getswitchinterval() == pytest.approx(TURN)
    assert sys.getswitchinterval() == pytest.approx(before)


def test_handlers_of_other_loggers_stay_open(datasets: dict[str, Path]) -> None:
    """uvicorn's own configuration of logging closes all handlers of the process; one of absl then closes stderr."""
    closed: list[str] = []

    class Handler(logging.Handler):
        def close(self) -> None:
            closed.append("closed")
            super().close()

    handler = Handler()
    with ViewerServer([str(datasets["kitchen"])]):
        assert closed == []
    handler.close()


def test_a_server_for_others_changes_nothing(datasets, tmp_path: Path) -> None:
    file, secret = tmp_path / "c.json", "correct horse"
    with penstock.open(datasets["kitchen"]) as data, Curation.edit(file, data.source) as curation:
        curation[1] = penstock.curation.EpisodeMarks(rating=3)
    given = {"read_only": True, "password": secret, "name": "viewer.example"}
    with serving(datasets["kitchen"], curation=file, **given) as server:
        info = json.loads(ask(server, "/api/kitchen/info")[2])
        assert info["curation"] == {"path": "", "message": "this server is read-only"}
        assert post(server, "/api/kitchen/marks/1", change('{"rating": 2}')) == 404
        asked = "/api/kitchen/episodes?where=rating%3D%3D3"
        for host in (None, "viewer.example", "viewer.example:443"):
            status, headers, body = ask(server, asked, token=None, password=secret, host=host)
            assert (status, json.loads(body)["total"], headers["Set-Cookie"]) == (200, 1, None)
        for wrong in ("", secret + "x", secret[:-1], secret.upper(), "\u00e9"):
            assert ask(server, asked, token=None, password=wrong)[0] == 401
        status, headers, _ = ask(server, asked, token=None)
        assert (status, headers["WWW-Authenticate"][:5]) == (401, "Basic")
        assert ask(server, asked, token=None, password=secret, host="evil.example")[0] == 403
        assert ask(server, asked, token="wrong")[0] == 401
    assert Curation.read(file)[1].rating == 3
    with pytest.raises(ArgumentError, match="read_only"):
        ViewerServer([str(datasets["kitchen"])], password=secret)
    with pytest.raises(ArgumentError, match="at least 12 characters"):
        ViewerServer([str(datasets["kitchen"])], read_only=True, password="short")


def test_a_password_does_not_open_a_server_without_one(viewer: ViewerServer) -> None:
    for password in ("", "None", urlsplit(viewer.address).query.removeprefix("token=")):
        assert ask(viewer, "/api/datasets", token=None, password=password)[0] == 403


def test_marks_survive_a_killed_server(datasets, tmp_path: Path) -> None:
    """Every change that was answered is in the file, whenever the server is killed; so are those of another one."""
    file, script = tmp_path / "c.json", "import sys; from penstock_studio.viewer.server import ViewerServer\n"
    script += "server = ViewerServer(sys.argv[1:2], curation=__import__('pathlib').Path(sys.argv[2]))\n"
    script += "print(server.address, flush=True)\nserver.run()\n"
    with serving(datasets["clean"], curation=file) as other:
        command = [sys.executable, "-c", script, str(datasets["clean"]), str(file)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            killed = SimpleNamespace(address=process.stdout.readline().strip())
            for number in range(12):
                assert post(killed if number % 2 else other, f"/api/clean/marks/{number % 5}", tagged(number)) == 200
            process.kill()
    assert {tag for _, marks in Curation.read(file).marks() for tag in marks.tags} == {f"t{n}" for n in range(12)}


def tagged(number: int) -> bytes:
    return change(f'{{"tags": ["t{number}"]}}')
