"""`open`, streams and commands read URLs: globs, braces, lists, archives in archives, and what is refused."""

# pyright: basic

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.containers.tar import END, member
from penstock.errors import DamageWarning, FormatError, RemoteError
from penstock.formats.webdataset.source import ShardSource
from penstock.formats.webdataset.streaming import ShardStream
from penstock.locations.location import MARKER
from penstock.locations.stores import object_store
from tests.locations.server import Request, Site, serving


def shard(number: int) -> bytes:
    return member(f"{number}.cls", b"%d" % number) + END


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    objects = {f"set/s-{i}.tar": shard(i) for i in (0, 1, 2, 10)}
    for day in range(2):
        data = penstock.from_arrays({"rewards": np.arange(3.0) + day}, lengths=[1, 2])
        penstock.convert(data, tmp_path / f"run-{day}", certificate=False)
        (tmp_path / f"run-{day}.certificate.json").touch()
        objects[f"run-{day}.certificate.json"] = b""
        for path in (p for p in (tmp_path / f"run-{day}").rglob("*") if p.is_file()):
            objects[path.relative_to(tmp_path).as_posix()] = path.read_bytes()
    with serving(objects) as site:
        yield site


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("set/s-2.tar", [2]),
        ("set/s-*.tar", [0, 1, 2, 10]),
        ("set/s-{10,0,1}.tar", [10, 0, 1]),
        ("set", [0, 1, 2, 10]),
        ("**/s-[01].tar", [0, 1]),
    ],
)
def test_shards_behind_urls(site: Site, given: str, expected: list[int]) -> None:
    with penstock.open(f"{site.url}/{given}") as data:
        assert isinstance(data.source, ShardSource)
        assert data.steps()[:]["cls"].tolist() == expected
        assert site.url in repr(data.source)
        assert "mirror.penstock" not in repr(data)
    assert [int(n) for block in ShardStream(f"{site.url}/{given}")() for n in block["cls"]] == expected


def test_datasets_behind_urls_are_joined(site: Site, tmp_path: Path) -> None:
    with penstock.open([f"{site.url}/run-{{0..1}}", tmp_path / "run-0"]) as data:
        assert [len(episode) for episode in data] == [1, 2, 1, 2, 1, 2]
        names = [part["name"] for part in data.metadata["parts"]]
        assert names == [f"{site.url}/run-0", f"{site.url}/run-1", str(tmp_path / "run-0")]
    with penstock.open(f"{site.url}/run-*") as data:
        assert data.steps()[:]["rewards"].tolist() == [0, 1, 2, 1, 2, 3]


def test_fsspec_reads_memory_and_zip_archives(site: Site, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name, content in site.objects.items():
            archive.writestr(name, content)
    store = object_store(f"memory://{tmp_path.name}")
    store.put("all.zip", tmp_path / "all.zip")
    for number in (3, 20):
        (tmp_path / "shard").write_bytes(shard(number))
        store.put(f"s-{number}.tar", tmp_path / "shard")
    url = f"memory://{tmp_path.name}"
    assert penstock.open(f"{url}/s-*.tar").steps()[:]["cls"].tolist() == [3, 20]
    assert penstock.open(f"zip://set/s-1*.tar::{url}/all.zip").steps()[:]["cls"].tolist() == [1, 10]
    assert penstock.open(f"zip://run-1::{url}/all.zip").steps()[:]["rewards"].tolist() == [1, 2, 3]


def test_what_cannot_be_opened_is_said(site: Site) -> None:
    with pytest.raises(FileNotFoundError, match=f"nothing at {site.url}/none"):
        penstock.open(f"{site.url}/none")
    with pytest.raises(
        FileNotFoundError, match=r"nothing matches the pattern .*/set/t-\*\.tar; web servers that do not"
    ):
        penstock.open(f"{site.url}/set/t-*.tar")
    site.lists = False
    with pytest.raises(FileNotFoundError, match="that do not list folders need the names of all files"):
        penstock.open(f"{site.url}/set/s-*.tar")
    site.lists = True
    site.objects[f"run-0/{MARKER}"] = b"{}"
    with pytest.raises(RemoteError, match=f"a complete dataset at {site.url}/run-0, got an upload that was not"):
        penstock.open(f"{site.url}/run-0")


def test_options_reach_the_store_and_no_message(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def private(request: Request) -> int | None:
        return None if request.headers.get("Authorization") == "Bearer secret" else 403

    site.fault = private
    with pytest.raises(RemoteError, match="refuses access"):
        penstock.open(f"{site.url}/set/s-*.tar")
    options = {"headers": {"Authorization": "Bearer secret"}}
    with penstock.open(f"{site.url}/set/s-*.tar", storage_options=options) as data:
        told = repr(data) + repr(data.source) + str(data.metadata) + data.source.fingerprint
        assert "secret" not in told
        assert b"secret" not in pickle.dumps(data.source)
        assert data.steps()[:]["cls"].tolist() == [0, 1, 2, 10]
    monkeypatch.setenv("COLUMNS", "200")
    arguments = ["info", "--json", f"{site.url}/set/s-*.tar"]
    assert CliRunner().invoke(app, arguments).exit_code == 2
    storage = 'headers={"Authorization": "Bearer secret"}'
    answer = CliRunner().invoke(app, [*arguments, "--storage", storage])
    assert (answer.exit_code, '"episodes": 4' in answer.stdout, "secret" in answer.output) == (0, True, False)


def test_commands_compare_datasets_behind_urls(site: Site, tmp_path: Path) -> None:
    site.fault = lambda request: None if request.headers.get("X-Key") == "secret" else 403
    storage = ["--storage", 'headers={"X-Key": "secret"}']
    penstock.convert(tmp_path / "run-1", f"{site.url}/out", storage_options={"headers": {"X-Key": "secret"}})
    for arguments, code, told in (
        (["diff", f"{site.url}/run-1", str(tmp_path / "run-1"), *storage], 0, "no difference"),
        (["diff", f"{site.url}/run-1", f"{site.url}/run-0", *storage], 1, "rewards"),
        (["diff", f"{site.url}/run-1", f"{site.url}/run-1"], 2, "refuses access"),
        (["diff", str(tmp_path / "run-1"), str(tmp_path / "run-1"), *storage], 2, "expected --storage with a URL"),
        (["certificate", f"{site.url}/out", str(tmp_path / "run-1"), "--verify", *storage], 0, "nothing changed since"),
    ):
        answer = CliRunner().invoke(app, arguments)
        assert (answer.exit_code, told in answer.output) == (code, True), answer.output
        assert "secret" not in answer.output


def test_damage_behind_urls_is_named_by_the_url(site: Site) -> None:
    site.objects["run-0/spec.json"] = b"{"
    with pytest.raises(FormatError, match=f"{site.url}/run-0/spec.json") as caught:
        penstock.open(f"{site.url}/run-0", format="columns")
    assert "mirror.penstock" not in str(caught.value)
    site.objects["set/s-1.tar"] = site.objects["set/s-1.tar"][:-1024]
    with pytest.warns(DamageWarning, match=f"{site.url}/set/s-1.tar: left out .*the end-of-archive marker"):
        penstock.open(f"{site.url}/set/s-1.tar")


def test_urls_are_converted(site: Site, tmp_path: Path) -> None:
    report = penstock.convert(f"{site.url}/run-*", f"{site.url}/joined.tar", format="webdataset")
    assert (report.episodes, report.steps, report.out) == (4, 6, f"{site.url}/joined.tar")
    assert penstock.open(f"{site.url}/joined.tar").steps()[:]["rewards"].tolist() == [0, 1, 2, 1, 2, 3]
