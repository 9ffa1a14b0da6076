"""What training on shards can rely on: one seed is one order, resuming is exact, memory is bounded by settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.formats.webdataset import FORMAT

SEEDS = (0, 1)


@pytest.fixture(scope="module", params=["seed", "npy", "gzip"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 archives of episodes: more threads read them than there are."""
    folder = tmp_path_factory.mktemp("data") / request.param
    flag = penstock.Field(np.dtype("bool"))
    options = {"compression": "gzip"} if request.param == "gzip" else {"layout": request.param}
    spec = penstock.Spec(
        {
            "observations": penstock.Field(np.dtype("u1"), (3, 8, 8), "boundary"),
            "actions": penstock.Field(np.dtype("i8")),
            "terminations": flag,
            "truncations": flag,
        }
    )
    rng = np.random.default_rng(0)
    with FORMAT.create(folder, spec, shard_episodes=20, **options) as writer:
        for _ in range(60):
            n = int(rng.integers(2, 20))
            last = np.arange(n) == n - 1
            columns = {"observations": rng.integers(256, size=(n + 1, 3, 8, 8), dtype=np.uint8)}
            columns |= {"actions": rng.integers(9, size=n), "terminations": last, "truncations": last & False}
            writer.write(penstock.Episode(spec, columns))
    return folder


def digests(loader: penstock.Loader) -> list[bytes]:
    return [batch["observations"].tobytes() + batch["actions"].tobytes() for batch in loader]


def loader(path: Path, cache: Path, seed: int, threads: int) -> penstock.Loader:
    data = penstock.open(path, cache=cache).windows(2).shuffle(seed=seed)
    return data.loader(batch_size=16, threads=threads)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_seed_is_one_order_at_any_number_of_threads(path: Path, seed: int, tmp_path: Path) -> None:
    orders = [digests(loader(path, tmp_path, seed, threads)) for threads in (1, 2, 7)]
    assert len(orders[0]) > 10
    assert orders[0] == orders[1] == orders[2]
    assert orders[0] != digests(loader(path, tmp_path, seed + 10, 1))


def test_resumed_in_the_middle_with_another_number_of_threads(path: Path, tmp_path: Path) -> None:
    whole = digests(loader(path, tmp_path, 3, 1))
    for stop, threads in ((1, 2), (len(whole) // 2, 5), (len(whole) - 1, 1)):
        first = loader(path, tmp_path, 3, 2)
        batches = iter(first)
        begun = [
            b["observations"].tobytes() + b["actions"].tobytes() for _, b in zip(range(stop), batches, strict=False)
        ]
        state = first.state_dict()
        again = loader(path, tmp_path, 3, threads)
        again.load_state_dict(state)
        assert [*begun, *digests(again)] == whole


MEASURED = """
import sys
from pathlib import Path
import numpy as np
import penstock
from penstock.formats.webdataset import FORMAT

def anonymous():
    line = next(x for x in open("/proc/self/status") if x.startswith("RssAnon"))
    return int(line.split()[1]) // 1024

def peak(episodes, root, compression):
    flag = penstock.Field(np.dtype("bool"))
    spec = penstock.Spec({"observations": penstock.Field(np.dtype("u1"), (8192,), "boundary"),
        "actions": penstock.Field(np.dtype("i8")), "terminations": flag, "truncations": flag})
    last = np.arange(100) == 99
    columns = {"observations": np.ones((101, 8192), np.uint8), "actions": np.arange(100), "terminations": last,
        "truncations": last & False}
    with FORMAT.create(root, spec, layout="seed", compression=compression) as writer:
        for _ in range(episodes):
            writer.write(penstock.Episode(spec, columns))
    top = 0
    data = penstock.open(root, cache=Path(sys.argv[1]) / "cache").windows(2).shuffle(seed=0)
    for i, batch in enumerate(data.loader(batch_size=64, threads=1, memory=16 << 20)):
        top = max(top, anonymous()) if i % 20 == 0 else top
    return top

root = Path(sys.argv[1])
compression = "gzip" if sys.argv[2] == "gzip" else None
few = peak(20, root / "few", compression)
print(peak(160, root / "many", compression) - few)
"""


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_memory_is_that_of_batches_and_not_of_data(compression: str, tmp_path: Path) -> None:
    """260 MB of archives, of which a sixth is the limit."""
    command = [sys.executable, "-c", MEASURED, str(tmp_path), compression]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 48


@pytest.mark.parametrize("path", ["seed", "npy"], indirect=True)
def test_opened_for_each_episode_the_same_archives_are_written(path: Path, tmp_path: Path) -> None:
    with penstock.open(path) as whole:
        spec = whole.spec
        with FORMAT.create(tmp_path / "again", spec, shard_episodes=20, layout=path.name):
            pass
        for episode in whole:
            with FORMAT.append(tmp_path / "again", shard_episodes=20) as writer:
                writer.write(episode)
    names = sorted(p.name for p in path.glob("*.tar"))
    assert sorted(p.name for p in (tmp_path / "again").glob("*.tar")) == names
    assert [(path / n).read_bytes() for n in names] == [(tmp_path / "again" / n).read_bytes() for n in names]
