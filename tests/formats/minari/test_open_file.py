"""The HDF5 file and its `metadata.json` stay open between episodes; what others do with them meanwhile is kept."""

from __future__ import annotations

import json
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from penstock.containers.hdf5 import writer as appender
from penstock.formats.minari import FORMAT
from penstock.testing.writers import killed_after
from tests.formats.minari.conftest import simple_episode, simple_spec

SPEC = simple_spec()
LAYOUTS: list[dict[str, Any]] = [{}, {"layout": "0.4"}, {"sync": "episode"}]


def episode(e: int) -> Any:
    return simple_episode(SPEC, 1 + e % 5, e)


def seeds(path: Path) -> list[int]:
    """The seed of each episode, whose values are those of the seed, as h5py reads them."""
    found: list[int] = []
    with h5py.File(path / "data" / "main_data.hdf5") as file:
        names = sorted(file, key=lambda name: int(name.removeprefix("episode_")))
        assert names == [f"episode_{e}" for e in range(len(names))]
        for name in names:
            found.append(int(file[name].attrs["seed"]))
            for column, values in episode(found[-1]).columns.items():
                np.testing.assert_array_equal(file[name][column][()], values)
    return found


def stored(path: Path) -> dict[str, Any]:
    return json.loads((path / "data" / "metadata.json").read_text())


@pytest.mark.parametrize("options", LAYOUTS)
def test_writers_that_take_turns(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "x-v0"
    with FORMAT.create(path, SPEC, {}, **options) as one, FORMAT.append(path) as other:
        order = np.random.default_rng(3).integers(0, 2, 30)
        assert [(one, other)[who].write(episode(e)) for e, who in enumerate(order)] == list(range(30))
    assert seeds(path) == list(range(30))
    with FORMAT.open(path) as source:
        steps = sum(len(episode(e)) for e in range(30))
        assert (source.metadata["total_episodes"], source.metadata["total_steps"]) == (30, steps)


def test_totals_change_in_place_and_are_json_at_any_time(tmp_path: Path) -> None:
    path = tmp_path / "x-v0"
    with FORMAT.create(path, SPEC, {"author": "me"}) as writer:
        places = set[int]()
        for e in range(12):
            writer.write(episode(e))
            places.add((path / "data" / "metadata.json").stat().st_ino)
            assert (stored(path)["total_episodes"], stored(path)["author"]) == (e + 1, ["me"])
        assert len(places) == 1
        raw = (path / "data" / "metadata.json").read_bytes()
        assert [raw[end - 2 : end + 1].strip()[-1:] for end in (32, 64, 96)] == [b","] * 3
        writer.update_metadata({"description": "new"})
        writer.write(episode(12))
        assert (stored(path)["total_episodes"], stored(path)["description"]) == (13, "new")


def test_what_others_change_between_episodes_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "x-v0"
    main = path / "data" / "main_data.hdf5"
    with FORMAT.create(path, SPEC, {}) as writer:
        for e in range(4):
            writer.write(episode(e))
        with h5py.File(main, "a") as file:  # which the writer does not keep locked
            del file["episode_3"]
            file["episode_1"].attrs["note"] = "kept"
        assert writer.write(episode(7)) == 3
        changed = json.dumps({**stored(path), "author": ["somebody"]})
        with open(path / "data" / "metadata.json", "w") as file:  # as Minari does, in place
            file.write(changed)
        assert writer.write(episode(8)) == 4
        with FORMAT.append(path) as other:
            other.update_episodes({0: {"task": "first"}})
        assert writer.write(episode(9)) == 5
        os.unlink(path / "data" / ".main_data.hdf5.lock")
        assert writer.write(episode(10)) == 6
    assert seeds(path) == [0, 1, 2, 7, 8, 9, 10]
    with h5py.File(main) as file:
        assert (file["episode_1"].attrs["note"], file["episode_0"].attrs["task"]) == ("kept", "first")
    assert (stored(path)["author"], stored(path)["total_episodes"]) == (["somebody"], 7)


def test_a_dataset_that_takes_the_place_of_another_gets_the_next_episode(tmp_path: Path) -> None:
    path, other = tmp_path / "x-v0", tmp_path / "y-v0"
    FORMAT.create(other, SPEC, {}).close()
    with FORMAT.create(path, SPEC, {}) as writer:
        writer.write(episode(0))
        os.rename(path, tmp_path / "old-v0")
        os.rename(other, path)
        assert [writer.write(episode(e)) for e in (5, 6)] == [0, 1]
    assert (seeds(path), seeds(tmp_path / "old-v0")) == ([5, 6], [0])


def test_a_forked_process_shares_no_lock_with_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "x-v0"
    with FORMAT.create(path, SPEC, {}) as writer:
        writer.write(episode(0))

        def child() -> Iterator[int]:
            for e in range(1, 1000):
                yield writer.write(episode(e))

        assert killed_after(4, child)[:4] == [1, 2, 3, 4]
        found = seeds(path)
        assert writer.write(episode(7)) == len(found)
    assert seeds(path) == [*range(len(found)), 7]


def test_threads_that_share_a_writer(tmp_path: Path) -> None:
    path, numbers = tmp_path / "x-v0", list[int]()
    with FORMAT.create(path, SPEC, {}) as writer:
        threads = [
            threading.Thread(target=lambda k=k: numbers.extend(writer.write(episode(e)) for e in range(k, 40, 4)))
            for k in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(numbers) == list(range(40))
    assert sorted(seeds(path)) == list(range(40))


def test_a_full_disk_loses_nothing_and_the_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "x-v0"
    FORMAT.create(path, SPEC, {}).close()

    def limited() -> Iterator[int]:
        with FORMAT.append(path) as writer:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
            saved = 0
            for _ in range(100):
                try:
                    writer.write(episode(saved))
                    saved += 1
                except OSError:
                    pass
            assert 3 < saved < 100
            yield saved
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            yield writer.write(episode(saved))
            while True:
                yield -1

    saved, number = killed_after(2, limited)[:2]
    assert number == saved
    assert seeds(path) == list(range(saved + 1))


def test_nodes_leave_memory_and_descriptors_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender, "RELOAD", 7)
    path, before = tmp_path / "x-v0", len(os.listdir("/proc/self/fd"))
    with FORMAT.create(path, SPEC, {}) as writer:
        for e in range(60):
            writer.write(episode(e))
    writer = FORMAT.append(path)
    writer.write(episode(60))
    del writer
    assert len(os.listdir("/proc/self/fd")) == before
    assert seeds(path) == list(range(61))
