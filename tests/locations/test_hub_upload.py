"""Datasets written to repositories of Hugging Face, with its own client, and what a killed upload leaves."""

# pyright: basic

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.conversion.certificate import Certificate
from penstock.errors import DataError, RemoteError, StateError
from penstock.locations import hub_upload
from penstock.locations.location import MARKER, Url
from penstock.locations.upload import uploading
from tests.locations.clock import Clock
from tests.locations.hub_server import Hub, files_of
from tests.locations.server import Reply, Request

# The client passes files to its HTTP library in a way that this library calls old.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

TOY = "hf://datasets/me/toy"


def commits(hub: Hub) -> int:
    return sum("/commit/" in path for _, path in hub.seen)


def puts(hub: Hub) -> int:
    return sum(request.method == "PUT" for request in hub.store.seen)


@pytest.mark.parametrize("inside", ["", "/v1/train", "@other/v2"])
def test_a_dataset_appears_with_one_commit(hub: Hub, toy: Any, inside: str, tmp_path: Path) -> None:
    report = penstock.convert(toy, TOY + inside)
    repository = hub.repositories["me/toy"]
    assert (report.status, report.out, commits(hub)) == ("converted", TOY + inside, 1)
    assert repository.private
    branch = repository.branches["other" if "@" in inside else "main"]
    assert report.revision == branch == report.to_json()["revision"]
    penstock.convert(toy, tmp_path / "local", certificate=False)
    below = inside.partition("/")[2]
    written = {f"{below}/{name}".lstrip("/"): raw for name, raw in files_of(tmp_path / "local").items()}
    certificate = f"{below}.certificate.json"
    assert repository.commits[branch].keys() == {".gitattributes", certificate, *written}
    assert {name: repository.commits[branch][name] for name in written} == written
    assert Certificate.read(TOY + inside).to_json() == report.certificate.to_json()
    opened = penstock.open(TOY + inside)
    assert np.array_equal(opened[2].observations, toy[2].observations)
    assert list((tmp_path / "cache" / "uploads").iterdir()) == []


def test_a_single_archive_of_a_public_repository(hub: Hub, toy: Any) -> None:
    to = f"{TOY}/data/demo.tar"
    result = penstock.convert(toy, to, format="webdataset", storage_options={"private": False}, certificate=False)
    assert not hub.repositories["me/toy"].private
    assert hub.repositories["me/toy"].files.keys() == {".gitattributes", "data/demo.tar"}
    assert penstock.open(f"{TOY}@{result.revision}/data/demo.tar").total_steps == toy.total_steps
    with pytest.raises(DataError, match="expected a private repository, me/toy is public"):
        penstock.convert(toy, f"{TOY}/more", storage_options={"private": True})
    penstock.convert(toy, f"{TOY}/more")
    assert penstock.open(f"{TOY}/more").total_steps == toy.total_steps


def test_the_command_says_the_revision(hub: Hub, toy: Any, tmp_path: Path) -> None:
    penstock.convert(toy, tmp_path / "local", certificate=False)
    arguments = ["convert", str(tmp_path / "local"), TOY, "--storage", "private=true"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert f"revision {hub.repositories['me/toy'].branches['main']}" in result.output
    info = CliRunner().invoke(app, ["info", TOY], catch_exceptions=False)
    assert re.search(r"episodes\s+3", info.output)
    in_parts = CliRunner().invoke(app, ["convert", str(tmp_path / "local"), f"{TOY}/parts", "--jobs", "2"])
    assert in_parts.exit_code == 2
    assert "takes no parts" in in_parts.output


def fill(path: Path, count: int, text: str = "content") -> None:
    path.mkdir(parents=True)
    for n in range(count):
        (path / f"{n}.npy").write_text(f"{text} of {n}")


def test_a_killed_upload_goes_on(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    url = Url(TOY)

    def dying(request: Request) -> int | None:
        return 403 if request.method == "PUT" and puts(hub) > 3 else None

    hub.store.fault = dying
    with pytest.raises(RemoteError, match="refuses access"), uploading(url) as path:
        fill(path, 6)
    assert hub.repositories["me/toy"].files.keys() == {".gitattributes"}
    assert len(hub.store.objects) == 3
    hub.store.fault = lambda request: None
    before, said = puts(hub), []
    with uploading(url, on_commit=said.append) as again:
        assert sorted(file.name for file in again.iterdir()) == [f"{n}.npy" for n in range(6)]
    assert puts(hub) - before == 3
    assert hub.repositories["me/toy"].files.keys() == {".gitattributes", *(f"{n}.npy" for n in range(6))}
    assert said == [hub.repositories["me/toy"].branches["main"]]
    with (
        pytest.raises(FileExistsError, match=r"expected nothing at hf://datasets/me/toy, got 6 files, first 0.npy"),
        uploading(url),
    ):
        raise AssertionError


def test_a_lost_answer_to_a_commit_is_no_second_commit(hub: Hub) -> None:
    lost = iter([True])

    def losing(method: str, path: str) -> Reply | None:
        return None

    hub.after = lambda method, path: Reply(503) if "/commit/" in path and next(lost, False) else None
    hub.fault = losing
    with uploading(Url(TOY)) as path:
        fill(path, 2)
    assert commits(hub) == 1
    assert len(hub.repositories["me/toy"].commits) == 2


def test_many_files_are_several_commits_of_which_none_is_believed_before_the_last(
    hub: Hub,
    toy: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_upload, "FILES", 3)
    hub.add("me/toy", {"other/file.txt": b"of somebody else"})
    made = iter(range(100))

    def dying(method: str, path: str) -> int | None:
        return 403 if "/commit/" in path and next(made) == 1 else None

    hub.fault = dying
    with pytest.raises(RemoteError, match="refuses access"):
        penstock.convert(toy, f"{TOY}/v1", certificate=False)
    assert f"v1/{MARKER}" in hub.repositories["me/toy"].files
    with pytest.raises(RemoteError, match=r"expected a complete dataset .*, got an upload that was not finished"):
        penstock.open(f"{TOY}/v1")
    other = penstock.from_arrays({"rewards": np.arange(9.0)}, lengths=[9])
    hub.fault = lambda method, path: None
    with pytest.raises(StateError, match="to be of the same conversion, got one of another source"):
        penstock.convert(other, f"{TOY}/v1", certificate=False)
    assert penstock.convert(toy, f"{TOY}/v1", certificate=False).status == "complete"
    files = hub.repositories["me/toy"].files
    assert f"v1/{MARKER}" not in files
    assert files["other/file.txt"] == b"of somebody else"
    assert np.array_equal(penstock.open(f"{TOY}/v1")[1].observations, toy[1].observations)


def test_an_unfinished_upload_of_other_data_is_replaced_when_asked(
    hub: Hub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.add("me/toy", {MARKER: b'{"0.npy": 3, "old.npy": 3}', "0.npy": b"old", "old.npy": b"old"})
    with pytest.raises(StateError, match="got one of other files; delete its objects"), uploading(Url(TOY)) as path:
        fill(path, 2)
    with uploading(Url(TOY), overwrite=True) as path:
        (path / "README.md").write_text("# A dataset with a card of its own")
    assert hub.repositories["me/toy"].files.keys() == {".gitattributes", "0.npy", "1.npy", "README.md"}


def test_a_branch_that_moves_meanwhile_is_looked_at_again(hub: Hub, clock: Clock) -> None:
    repository = hub.add("me/toy", {})
    moves = iter([True])

    def moving(method: str, path: str) -> None:
        if "/commit/" in path and next(moves, False):
            repository.commit({**repository.files, "notes.md": b"of somebody else"})

    hub.fault = moving
    with uploading(Url(f"{TOY}/v1")) as path:
        fill(path, 2)
    assert repository.files.keys() == {".gitattributes", "notes.md", "v1/0.npy", "v1/1.npy"}
    assert len(clock.waits) == 1


def test_files_that_a_repository_leaves_out_are_an_error(hub: Hub) -> None:
    hub.ignored.add("v1/1.npy")
    said = r"expected 2 files at .*, the repository left out 1, first v1/1.npy; look at its file .gitignore"
    with pytest.raises(RemoteError, match=said), uploading(Url(f"{TOY}/v1")) as path:
        fill(path, 2)


def test_writing_needs_a_token_a_branch_and_a_repository(
    hub: Hub,
    toy: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for url, said in {
        "hf://datasets/me": "expected hf://datasets/OWNER/NAME to write to",
        f"{TOY}@{'a' * 40}": "expected a branch to write to, got the commit",
    }.items():
        with pytest.raises(DataError, match=said):
            penstock.convert(toy, url)
    with pytest.raises(DataError, match="expected the storage option private to be true or false, got 'no'"):
        penstock.convert(toy, TOY, storage_options={"private": "no"})
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(RemoteError, match=r"expected a token to write to .*hf auth login"):
        penstock.convert(toy, TOY)
    assert "me/toy" not in hub.repositories
