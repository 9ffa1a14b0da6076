"""Datasets of Hugging Face, read with its own client from a server on this machine."""

# pyright: basic

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import constants, snapshot_download
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app
from penstock.errors import RemoteError
from penstock.locations.stores import object_store
from tests.locations.clock import Clock
from tests.locations.hub_server import TOKEN, Hub, files_of
from tests.locations.server import Reply, Request
from tests.locations.test_commands import ARGUMENTS


@pytest.fixture
def files(toy: penstock.EpisodeDataset, tmp_path: Path) -> dict[str, bytes]:
    penstock.convert(toy, tmp_path / "local", certificate=False)
    return files_of(tmp_path / "local")


@pytest.mark.parametrize("inside", ["", "v1/train"])
def test_a_dataset_is_read_in_place(hub: Hub, toy: Any, files: dict[str, bytes], inside: str) -> None:
    hub.add("me/toy", {f"{inside}/{name}".lstrip("/"): raw for name, raw in {**files, "README.md": b"# toy"}.items()})
    url = f"hf://datasets/me/toy/{inside}".rstrip("/")
    remote = penstock.open(url)
    assert len(remote) == len(toy)
    assert not hub.store.gets()
    assert np.array_equal(remote[1].observations, toy[1].observations)
    assert all("Authorization" not in request.headers for request in hub.store.seen)
    assert len(penstock.open(f"{url.replace('me/toy', 'me/toy@main')}")) == len(toy)


def test_a_branch_that_moves_does_not_change_what_is_open(hub: Hub, toy: Any, files: dict[str, bytes]) -> None:
    repository = hub.add("me/toy", files)
    first = repository.branches["main"]
    remote = penstock.open("hf://datasets/me/toy")
    other = {name: raw[::-1] for name, raw in files.items() if name != "spec.json"}
    repository.commit({**files, **other})
    assert np.array_equal(remote[2].observations, toy[2].observations)
    assert np.array_equal(pickle.loads(pickle.dumps(remote))[0].rewards, toy[0].rewards)
    assert np.array_equal(penstock.open(f"hf://datasets/me/toy@{first}")[1].rewards, toy[1].rewards)
    before = len(hub.seen)
    repository.commit(files)
    assert np.array_equal(penstock.open("hf://datasets/me/toy")[2].observations, toy[2].observations)
    assert not any("/resolve/" in path for _, path in hub.seen[before:])  # its blocks are here


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            Reply(404, b"{}", {"X-Error-Code": "RepoNotFound"}),
            "nothing at hf://datasets/me/toy@main; if it is private, log in",
        ),
        (
            Reply(404, b"{}", {"X-Error-Code": "RevisionNotFound"}),
            "nothing at hf://datasets/me/toy@main: no such revision",
        ),
        (
            Reply(401, b"{}", {"X-Error-Code": "GatedRepo"}),
            "is gated: ask for access at http.*/datasets/me/toy, then log in",
        ),
        (Reply(403, b"{}"), "refuses access .*hf auth login"),
        (Reply(418, b"{}"), "could not be read or written"),
        (Reply(200, b'{"id": "me/toy"}'), "expected a commit of hf://datasets/me/toy@main, got 'None'"),
        (Reply(200, b"{}"), "could not be read or written"),
        (Reply(200, b"not JSON"), "could not be read or written"),
    ],
)
def test_refusals_say_what_to_do(hub: Hub, files: dict[str, bytes], reply: Reply, said: str) -> None:
    hub.add("me/toy", files)
    hub.fault = lambda method, path: reply
    with pytest.raises((RemoteError, FileNotFoundError), match=said) as caught:
        penstock.open("hf://datasets/me/toy@main")
    assert TOKEN not in str(caught.value)
    assert len(hub.seen) == 1


def test_a_busy_hub_is_waited_for_as_long_as_it_says(hub: Hub, toy: Any, files: dict[str, bytes], clock: Clock) -> None:
    hub.add("me/toy", files)
    left = {"revision": 2, "resolve": 2}

    def busy(method: str, path: str) -> Reply | None:
        kind = next((kind for kind in left if kind in path), "")
        if not left.get(kind):
            return None
        left[kind] -= 1
        return Reply(429, b"{}", {"Retry-After": "17"}) if left[kind] else Reply(503, b"{}")

    hub.fault = busy
    hub.store.fault = iter_faults(["cut", 500, "cut"])
    assert np.array_equal(penstock.open("hf://datasets/me/toy")[:][1].observations, toy[1].observations)
    assert sum(wait >= 17 for wait in clock.waits) == 2


def iter_faults(faults: list[Any]) -> Any:
    left = iter(faults)
    return lambda request: next(left, None)


def test_a_signed_url_that_ended_is_made_anew(hub: Hub, files: dict[str, bytes]) -> None:
    content = bytes(range(256)) * 500
    hub.add("me/toy", {"a.bin": content})
    store = object_store("hf://datasets/me/toy")
    assert store.read("a.bin", [(0, 5)]) == [content[:5]]
    refused = iter([403])

    def ended(request: Request) -> int | None:
        return next(refused, None)

    hub.store.fault = ended
    assert store.read("a.bin", [(256, 300)]) == [content[256:300]]
    hub.store.fault = lambda request: 403
    with pytest.raises(RemoteError, match=r"refuses access .*hf auth login"):
        store.read("a.bin", [(256, 300)])


def test_no_network_is_said_at_once(hub: Hub, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(RemoteError, match="is not on this machine, and HF_HUB_OFFLINE is set"):
        penstock.open("hf://datasets/me/toy")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(RemoteError, match=r"is not asked: no connection to http://127.0.0.1:9"):
        penstock.open("hf://datasets/me/toy")
    assert not hub.seen
    assert not clock.waits


class Elsewhere:
    """Folders of this machine, where datasets of hubs would be."""

    def __init__(self, root: Path) -> None:
        self.lerobot, self.minari, self.cache = root / "lerobot", root / "minari", root / "hub"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return Elsewhere(tmp_path)


def lerobot_files(folder: Path, steps: int) -> dict[str, bytes]:
    data = penstock.from_arrays(
        {
            "observations": np.arange(2.0 * steps, dtype=np.float32).reshape(-1, 2),
            "actions": np.zeros((steps, 1), "f4"),
        },
        lengths=[steps],
    )
    penstock.convert(data, folder, format="lerobot", options={"fps": 10}, certificate=False, fill_missing=True)
    return files_of(folder)


def test_a_name_is_a_folder_here_then_lerobots_then_the_hubs(hub: Hub, here: Elsewhere, tmp_path: Path) -> None:
    hub.add("lerobot/toy", lerobot_files(tmp_path / "remote", 3))
    data = penstock.open("lerobot/toy")
    assert (data.total_steps, data.source.location) == (3, "hf://datasets/lerobot/toy")
    lerobot_files(here.lerobot / "lerobot" / "toy", 4)
    before = len(hub.seen)
    assert penstock.open("lerobot/toy").total_steps == 4
    lerobot_files(Path("lerobot/toy"), 5)
    assert penstock.open("lerobot/toy").total_steps == 5
    assert len(hub.seen) == before
    Path("lerobot/empty").mkdir()
    with pytest.raises(penstock.errors.UnknownFormatError, match=r"before the dataset .* hf://datasets/lerobot/empty"):
        penstock.open("lerobot/empty")


def test_what_the_client_downloaded_is_opened(hub: Hub, here: Elsewhere, tmp_path: Path) -> None:
    repository = hub.add("lerobot/toy", lerobot_files(tmp_path / "remote", 3))
    snapshot = Path(snapshot_download("lerobot/toy", repo_type="dataset"))
    hub.seen.clear()
    data = penstock.open("lerobot/toy")
    assert (data.total_steps, Path(data.source.location)) == (3, snapshot)
    assert not hub.seen
    assert penstock.open("hf://datasets/lerobot/toy")[0].actions.shape == (3, 1)
    assert [path for _, path in hub.seen] == ["/api/datasets/lerobot/toy/revision/main"]
    # An older commit is taken for what it is where the name of the hub is given, and so is a part of a dataset.
    repository.commit(lerobot_files(tmp_path / "newer", 6))
    assert penstock.open("hf://datasets/lerobot/toy").total_steps == 6
    assert penstock.open("lerobot/toy").total_steps == 3
    (snapshot / ".gitattributes").unlink()
    assert penstock.open("lerobot/toy").total_steps == 6
    with pytest.MonkeyPatch.context() as offline:
        offline.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.warns(penstock.errors.RemoteWarning, match=r"which may lack files: .*HF_HUB_OFFLINE"):
            assert penstock.open("lerobot/toy").total_steps == 3
        rows = penstock.open("hf://datasets/lerobot/toy/data/chunk-000", format="tables")  # whole, as far as asked
        assert rows.total_steps == 3


@pytest.mark.parametrize("remote", ["hf://farama-minari", None, "memory://minari-hub"])
def test_minari_names_are_of_the_hub_that_minari_asks(
    hub: Hub, here: Elsewhere, tmp_path: Path, toy: Any, monkeypatch: pytest.MonkeyPatch, remote: str | None
) -> None:
    monkeypatch.setenv("MINARI_REMOTE", remote or "")
    penstock.convert(toy, tmp_path / "human-v2", format="minari", fill_missing=True, certificate=False)
    files = files_of(tmp_path / "human-v2")
    hub.add("farama-minari/D4RL", {f"door/human-v2/{name}": raw for name, raw in files.items()})
    if remote and remote.startswith("memory"):
        penstock.convert(tmp_path / "human-v2", f"{remote}/D4RL/door/human-v2", format="minari", certificate=False)
    opened = penstock.open("D4RL/door/human-v2")
    expected = remote.replace("hf://", "hf://datasets/") if remote else "hf://datasets/farama-minari"
    assert opened.source.location == f"{expected}/D4RL/door/human-v2"
    assert np.array_equal(opened[1].rewards, toy[1].rewards)
    before = len(hub.seen)
    penstock.convert(toy, here.minari / "D4RL/door/human-v2", format="minari", fill_missing=True, certificate=False)
    assert Path(penstock.open("D4RL/door/human-v2").source.location).is_relative_to(here.minari)
    assert len(hub.seen) == before


def test_a_name_that_is_nowhere_says_where_it_was_looked_for(hub: Hub, here: Elsewhere, monkeypatch: Any) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        penstock.open("lerobot/toy")
    text = str(caught.value)
    assert (
        f"nothing at {Path('lerobot/toy').absolute()}, nor at {here.lerobot / 'lerobot/toy'} (HF_LEROBOT_HOME)" in text
    )
    assert (
        f"nor in {here.cache} (HF_HUB_CACHE). On its hub: nothing at hf://datasets/lerobot/toy; if it is private"
        in text
    )
    assert f"hf download lerobot/toy --repo-type dataset --local-dir {here.lerobot / 'lerobot/toy'}" in text
    with pytest.raises(FileNotFoundError) as caught:
        penstock.open("D4RL/door/human-v2")
    text = str(caught.value)
    assert f"nor at {here.minari / 'D4RL/door/human-v2'} (MINARI_DATASETS_PATH)" in text
    assert "On its hub: nothing at hf://datasets/farama-minari/D4RL/door/human-v2" in text
    assert text.endswith("To have it here: minari download D4RL/door/human-v2")
    hub.fault = lambda method, path: 403
    with pytest.raises(RemoteError, match=r"On its hub: .* refuses access"):
        penstock.open("lerobot/toy")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match=r"On its hub: .*HF_HUB_OFFLINE is set"):
        penstock.open("lerobot/toy")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        FileNotFoundError, match=r"On its hub: .*pip install 'penstock\[hf\]'.* hf download lerobot/toy"
    ):
        penstock.open("lerobot/toy")


@pytest.mark.parametrize("name", ["runs/toy", "lerobot/toy.tar", "./lerobot/toy", "/lerobot/toy", "a b/toy", "toy"])
def test_paths_ask_no_hub(hub: Hub, here: Elsewhere, name: str) -> None:
    Path("runs").mkdir()
    with pytest.raises(FileNotFoundError, match="nothing at"):
        penstock.open(name)
    said = rf"nothing at lerobot/toy in {Path.cwd()}; public datasets have names, OWNER/NAME on Hugging Face"
    with pytest.raises(FileNotFoundError, match=said):
        penstock.open(Path("lerobot/toy"))
    assert not hub.seen


def test_files_of_a_pattern_are_of_one_commit(hub: Hub, here: Elsewhere, toy: Any, tmp_path: Path) -> None:
    options = {"shard_episodes": 1}
    penstock.convert(toy, tmp_path / "shards", format="webdataset", options=options, certificate=False)
    files = {f"data/{name}": raw for name, raw in files_of(tmp_path / "shards").items()}
    repository = hub.add("me/shards", files)

    def moving(method: str, path: str) -> None:
        if "/tree/" in path:  # between the pattern and its files
            repository.commit({})

    hub.fault = moving
    assert penstock.open("hf://datasets/me/shards/data/*.tar").total_steps == toy.total_steps


@pytest.mark.parametrize("command", ["certificate", "check", "convert", "diff", "index", "info", "split"])
def test_commands_take_names(hub: Hub, here: Elsewhere, toy: Any, tmp_path: Path, command: str) -> None:
    for name, format in {"run": "columns", "made": "webdataset", "shards": "webdataset"}.items():
        penstock.convert(toy, tmp_path / name, format=format, certificate=name == "made")
        hub.add(f"me/{name}", files_of(tmp_path / name))
    hub.repositories["me/made"].commit(
        {**files_of(tmp_path / "made"), ".certificate.json": (tmp_path / "made.certificate.json").read_bytes()}
    )
    given = [each.format(url="me", folder=tmp_path) for each in ARGUMENTS[command]]
    if command == "convert":
        given[1] = str(tmp_path / "copy")
    if command == "certificate":
        given[0] = "hf://datasets/me/made"
    result = CliRunner().invoke(app, [command, *given], catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    assert "Error" not in result.output
    assert any("/resolve/" in path for _, path in hub.seen)
