"""Datasets written to URLs: in which order, and what a killed upload leaves."""

# pyright: basic

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.cli.reshard import reshard
from penstock.errors import DataError, RemoteError, StateError
from penstock.locations.location import Url
from penstock.locations.stores import object_store
from penstock.locations.upload import MARKER, uploading
from tests.locations.server import Request, Site, serving


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    with serving({}) as site:
        yield site


@pytest.fixture
def data() -> penstock.EpisodeDataset:
    return penstock.from_arrays({"observations": np.arange(7.0), "rewards": np.arange(5.0)}, lengths=[2, 3])


def written(site: Site) -> list[str]:
    return [f"{request.method} {request.name}" for request in site.seen if request.method in ("PUT", "DELETE")]


def fill(path: Path, *names: str, text: str = "content") -> None:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"{text} of {name}")


def test_a_dataset_appears_with_its_last_object(site: Site, data: penstock.EpisodeDataset, tmp_path: Path) -> None:
    report = penstock.convert(data, f"{site.url}/set/demo")
    assert (report.out, report.status, report.episodes) == (f"{site.url}/set/demo", "converted", 2)
    order = written(site)
    assert order[:2] == ["PUT set/demo.certificate.json", f"PUT set/demo/{MARKER}"]
    assert json.loads(site.objects.pop("set/demo.certificate.json")) == report.certificate.to_json()
    assert order[-1] == f"DELETE set/demo/{MARKER}"
    assert order[-2] == "PUT set/demo/spec.json"
    assert list((tmp_path / "cache" / "uploads").iterdir()) == []
    penstock.convert(data, tmp_path / "local")
    for name, content in site.objects.items():
        assert (tmp_path / "local" / name.removeprefix("set/demo/")).read_bytes() == content
    assert len(site.objects) == sum(path.is_file() for path in (tmp_path / "local").rglob("*"))


@pytest.mark.parametrize("out", ["demo", "demo.tar"])
def test_what_exists_is_refused(site: Site, data: penstock.EpisodeDataset, out: str) -> None:
    penstock.convert(data, f"{site.url}/{out}", format="webdataset")
    before = dict(site.objects)
    with pytest.raises(FileExistsError, match=rf"expected nothing at {site.url}/{out}, got 1 objects, first"):
        penstock.convert(data, f"{site.url}/{out}", format="webdataset", overwrite=True)
    assert site.objects == before


def test_a_single_archive_is_one_object(site: Site, data: penstock.EpisodeDataset) -> None:
    penstock.convert(data, f"{site.url}/demo.tgz", format="webdataset")
    assert written(site) == ["PUT demo.tgz.certificate.json", "PUT demo.tgz"]


def test_a_killed_upload_is_completed(site: Site, data: penstock.EpisodeDataset) -> None:
    puts: list[str] = []

    def dying(request: Request) -> int | None:
        puts.append(request.name)
        return 403 if request.method == "PUT" and len(site.objects) >= 3 else None

    site.fault = dying
    with pytest.raises(RemoteError, match="refuses access"):
        penstock.convert(data, f"{site.url}/demo", certificate=False)
    there = {name: raw for name, raw in site.objects.items() if not name.endswith(MARKER)}
    assert f"demo/{MARKER}" in site.objects
    assert "demo/spec.json" not in there
    assert there
    site.fault = lambda _: None
    site.seen.clear()
    assert penstock.convert(data, f"{site.url}/demo", certificate=False).status == "complete"
    assert not {f"PUT {name}" for name in there} & set(written(site))
    assert written(site)[-1] == f"DELETE demo/{MARKER}"
    assert "demo/spec.json" in site.objects


def test_an_unfinished_upload_of_other_data_is_refused(site: Site) -> None:
    url = Url(f"{site.url}/set")
    site.objects[f"set/{MARKER}"] = json.dumps({"old": [3, "digest"], "a": [1, "digest"]}).encode()
    site.objects["set/old"] = b"old"
    site.objects["set/others"] = b"others"
    with pytest.raises(StateError, match="got one of other files; delete its objects"), uploading(url) as path:
        fill(path, "a", "spec.json")
    with uploading(url, overwrite=True) as path:
        assert path.is_dir()  # from the call that was refused
    assert sorted(site.objects) == ["set/a", "set/others", "set/spec.json"]


def test_locks_and_leftovers_stay_here(site: Site) -> None:
    with uploading(Url(f"{site.url}/set")) as path:
        fill(path, "a/b", ".lock", ".a.lock", ".a.0123456789ab.penstock", ".zgroup")
    assert sorted(site.objects) == ["set/.zgroup", "set/a/b"]


def test_a_marker_that_is_damaged_is_an_error(site: Site) -> None:
    site.objects[f"set/{MARKER}"] = b"[]"
    with (
        pytest.raises(penstock.errors.FormatError, match=f"files of an upload.* at {MARKER}"),
        uploading(Url(f"{site.url}/set")) as path,
    ):
        fill(path, "a")


def test_an_error_uploads_nothing_and_keeps_what_was_written(site: Site) -> None:
    url = Url(f"{site.url}/set")
    with pytest.raises(FileExistsError), uploading(url) as path:
        fill(path, "a", "a/b")
    assert written(site) == []
    with uploading(url) as path:
        assert (path / "a").read_text() == "content of a"


def test_through_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: penstock.EpisodeDataset) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    url = f"memory://{tmp_path.name}/demo"
    penstock.convert(data, url, format="minari", fill_missing=True, rename={"rewards": "actions"})
    names = [info.name for info in object_store(url).list()]
    assert names == ["data/main_data.hdf5", "data/metadata.json"]


def test_shards_are_written_again_to_a_url(site: Site, data: penstock.EpisodeDataset, tmp_path: Path) -> None:
    penstock.convert(data, tmp_path / "one.tar", format="webdataset")
    reshard(str(tmp_path / "one.tar"), f"{site.url}/shards", shard_episodes=1)
    assert sorted(site.objects) == ["shards/shard-000000.tar", "shards/shard-000001.tar"]


def test_what_appends_needs_a_local_disk() -> None:
    space = penstock.spaces.Discrete(2)
    with pytest.raises(DataError, match="path on this machine to write to, got s3://bucket/demo; convert writes"):
        penstock.Recorder("s3://bucket/demo", observation_space=space, action_space=space)
