"""Datasets of Hugging Face, read with its own client from a server on this machine."""

# pyright: basic

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import HfFileSystem, constants

import penstock
from penstock.errors import RemoteError
from penstock.locations.stores import object_store
from tests.locations.clock import Clock
from tests.locations.hub_server import TOKEN, Hub, hub_serving
from tests.locations.server import Reply, Request


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_serving() as hub:
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.url)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_LEROBOT_HOME", str(tmp_path / "lerobot"))
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub
        HfFileSystem.clear_instance_cache()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def data() -> penstock.EpisodeDataset:
    pixels = np.random.default_rng(3).integers(0, 256, (60, 32, 32, 3), np.uint8)
    return penstock.from_arrays({"observations": pixels, "rewards": np.arange(60.0)}, lengths=[20, 30, 10])


@pytest.fixture
def files(data: penstock.EpisodeDataset, tmp_path: Path) -> dict[str, bytes]:
    penstock.convert(data, tmp_path / "local", certificate=False)
    return files_of(tmp_path / "local")


@pytest.mark.parametrize("inside", ["", "v1/train"])
def test_a_dataset_is_read_in_place(hub: Hub, data: Any, files: dict[str, bytes], inside: str) -> None:
    hub.add("me/toy", {f"{inside}/{name}".lstrip("/"): raw for name, raw in {**files, "README.md": b"# toy"}.items()})
    url = f"hf://datasets/me/toy/{inside}".rstrip("/")
    remote = penstock.open(url)
    assert len(remote) == len(data)
    assert not hub.store.gets()
    assert np.array_equal(remote[1].observations, data[1].observations)
    assert all("Authorization" not in request.headers for request in hub.store.seen)
    assert len(penstock.open(f"{url.replace('me/toy', 'me/toy@main')}")) == len(data)


def test_a_branch_that_moves_does_not_change_what_is_open(hub: Hub, data: Any, files: dict[str, bytes]) -> None:
    repository = hub.add("me/toy", files)
    first = repository.branches["main"]
    remote = penstock.open("hf://datasets/me/toy")
    other = {name: raw[::-1] for name, raw in files.items() if name != "spec.json"}
    repository.commit({**files, **other})
    assert np.array_equal(remote[2].observations, data[2].observations)
    assert np.array_equal(pickle.loads(pickle.dumps(remote))[0].rewards, data[0].rewards)
    assert np.array_equal(penstock.open(f"hf://datasets/me/toy@{first}")[1].rewards, data[1].rewards)
    before = len(hub.seen)
    repository.commit(files)
    assert np.array_equal(penstock.open("hf://datasets/me/toy")[2].observations, data[2].observations)
    assert not any("/resolve/" in path for _, path in hub.seen[before:])  # its blocks are here


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(404, b"{}", {"X-Error-Code": "RepoNotFound"}), "nothing at hf://datasets/me/toy; if it is private, log in"),
        (Reply(404, b"{}", {"X-Error-Code": "RevisionNotFound"}), "nothing at hf://datasets/me/toy: no such revision"),
        (Reply(401, b"{}", {"X-Error-Code": "GatedRepo"}), "is gated: ask for access at http.*/datasets/me/toy, then log in"),
        (Reply(403, b"{}"), "refuses access .*hf auth login"),
        (Reply(418, b"{}"), "could not be read or written"),
        (Reply(200, b'{"id": "me/toy"}'), "expected a commit of hf://datasets/me/toy, got 'None'"),
        (Reply(200, b"{}"), "could not be read or written"),
        (Reply(200, b"not JSON"), "could not be read or written"),
    ],
)
def test_refusals_say_what_to_do(hub: Hub, files: dict[str, bytes], reply: Reply, said: str) -> None:
    hub.add("me/toy", files)
    hub.fault = lambda method, path: reply
    with pytest.raises((RemoteError, FileNotFoundError), match=said) as caught:
        penstock.open("hf://datasets/me/toy")
    assert TOKEN not in str(caught.value)
    assert len(hub.seen) == 1


def test_a_busy_hub_is_waited_for_as_long_as_it_says(hub: Hub, data: Any, files: dict[str, bytes], clock: Clock) -> None:
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
    assert np.array_equal(penstock.open("hf://datasets/me/toy")[:][1].observations, data[1].observations)
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
    with pytest.raises(RemoteError, match="refuses access"):
        store.read("a.bin", [(256, 300)])


def test_no_network_is_said_at_once(hub: Hub, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(RemoteError, match="is not on this machine, and HF_HUB_OFFLINE is set"):
        penstock.open("hf://datasets/me/toy")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(RemoteError, match="is not asked: no connection to http://127.0.0.1:9"):
        penstock.open("hf://datasets/me/toy")
    assert not hub.seen
    assert not clock.waits
