"""Every format reads the same from a web server as from this disk."""

# pyright: basic

from __future__ import annotations

import random
import warnings
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.containers.tar import END, member
from penstock.errors import DamageWarning, FormatError
from penstock.formats.base.format import available
from penstock.formats.webdataset.streaming import ShardStream
from penstock.locations.blocks import BLOCK
from penstock.locations.fetching import REQUEST
from penstock.locations.mirror import MIRRORS, mirror
from tests.fuzz.targets import Target, targets
from tests.locations.server import serving

DATASETS = [target for target in targets().values() if target.format in available()]


def outcome(target: Target, path: Path) -> object:
    """The digest of all values, or how the data are refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        try:
            return target.read(path, random.Random(1))
        except FormatError as error:
            return type(error)


@pytest.mark.parametrize("target", DATASETS, ids=lambda target: target.key)
def test_values_are_the_same(target: Target, tmp_path: Path) -> None:
    files = target.files()
    local = tmp_path / "local"
    for name, content in files.items():
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        (local / name).write_bytes(content)
    with serving({f"set/{name}": content for name, content in files.items()}) as site:
        remote = mirror(f"{site.url}/set")
        found = outcome(target, remote)
        assert found == outcome(target, local)
        assert site.gets() or isinstance(found, type)


def test_urls_are_opened(tmp_path: Path) -> None:
    data = penstock.from_arrays({"rewards": np.arange(9.0)}, lengths=[4, 5])
    penstock.convert(data, tmp_path / "set")
    files = {
        f"set/{p.relative_to(tmp_path / 'set')}": p.read_bytes() for p in (tmp_path / "set").rglob("*") if p.is_file()
    }
    with serving(files) as site, penstock.open(f"{site.url}/set") as remote:
        windows = [each.windows(2).shuffle(seed=1) for each in (remote, data)]
        assert windows[0][:]["rewards"].tolist() == windows[1][:]["rewards"].tolist()
        with penstock.open([f"{site.url}/set", tmp_path / "set"]) as both:
            assert len(both) == 4


def test_streams_read_ahead(tmp_path: Path) -> None:
    """The requests for an archive that is read in order become longer, and each byte is fetched once."""
    content = b"".join(member(f"{i}.bin", bytes([i]) * 600_000) for i in range(20)) + END
    with serving({"a.tar": content}) as site:
        blocks = list(ShardStream(f"{site.url}/a.tar", rows=20, threads=1)())
        assert len(blocks) == 1
        assert sum((r.end or 0) + 1 - (r.begin or 0) for r in site.gets()) == len(content)
        assert max((r.end or 0) - (r.begin or 0) for r in site.gets()) + 1 == REQUEST * BLOCK


def test_shards_are_indexed_once_and_then_read_by_ranges(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (600, 5000), np.uint8)
    data = penstock.from_arrays({"observations/x": rows}, lengths=[60] * 10, align={"observations/x": "step"})
    penstock.convert(data, tmp_path / "set", format="webdataset")
    found = [p for p in (tmp_path / "set").rglob("*.tar") if p.is_file()]
    with serving({str(p.relative_to(tmp_path)): p.read_bytes() for p in found}) as site:
        with penstock.open(f"{site.url}/set"):
            pass
        MIRRORS.cache().evict(0)
        before = len(site.gets())
        with penstock.open(f"{site.url}/set") as remote:
            batch = remote.windows(2).shuffle(seed=2)[:4]
            got = sum((r.end or 0) + 1 - (r.begin or 0) for r in site.gets()[before:])
            assert np.array_equal(batch["observations/x"], data.windows(2).shuffle(seed=2)[:4]["observations/x"])
        assert got <= 16 * BLOCK < rows.nbytes / 2
