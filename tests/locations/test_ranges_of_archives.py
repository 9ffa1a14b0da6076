"""ZIP archives and Arrow files behind URLs: the members and columns that are read are fetched, and no others."""

# pyright: basic

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.core.selection import Selection
from penstock.formats.minari import arrow_table
from penstock.locations.mirror import MIRRORS
from tests.locations.server import Site, serving


def fetched(site: Site) -> int:
    return sum((request.end or 0) + 1 - (request.begin or 0) for request in site.gets())


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def noise() -> penstock.EpisodeDataset:
    rng = np.random.default_rng(0)
    columns = {
        "observations/image": rng.integers(0, 256, (2000, 48, 48), np.uint8),
        "actions": rng.normal(size=(2000, 3)),
    }
    return penstock.from_arrays(columns, [500] * 4, align={"observations/image": "step"})


def test_windows_of_a_zip_archive_fetch_their_chunks(tmp_path: Path) -> None:
    penstock.convert(noise(), tmp_path / "buffer.zarr", format="zarr")
    archive = tmp_path / "buffer.zarr.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as out:
        for name, content in files_of(tmp_path / "buffer.zarr").items():
            out.writestr(name, content)
    size = archive.stat().st_size
    with serving({archive.name: archive.read_bytes()}) as site, penstock.open(f"{site.url}/{archive.name}") as remote:
        assert fetched(site) < size / 4
        with penstock.open(archive) as local:
            windows = [data.windows(4).shuffle(seed=1)[:2]["observations/image"] for data in (remote, local)]
        np.testing.assert_array_equal(windows[0], windows[1])
        assert fetched(site) < size / 2


def test_columns_of_minaris_arrow_files_are_fetched_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    penstock.convert(noise(), tmp_path / "set", format="minari", options={"data_format": "arrow"}, fill_missing=True)
    monkeypatch.setattr(arrow_table, "MAPPED", 1 << 16)
    files = files_of(tmp_path / "set")
    url_files = {f"set/{name}": content for name, content in files.items()}
    with (
        serving(url_files) as site,
        penstock.open(f"{site.url}/set") as remote,
        penstock.open(tmp_path / "set") as local,
    ):
        MIRRORS.cache().evict(0)
        site.seen.clear()
        rows = np.array([3, 700, 1999])
        selection = Selection(rows * 0, rows, rows * 0 + 1, np.arange(3), (3, 1))
        actions = np.empty((2, 3, *local.spec["actions"].shape), local.spec["actions"].dtype)
        for data, out in zip((remote, local), actions, strict=True):
            data.source.read_array("actions", selection, out)
        np.testing.assert_array_equal(*actions)
        assert 0 < fetched(site) < sum(map(len, files.values())) / 4
        np.testing.assert_array_equal(remote[1].columns["observations/image"], local[1].columns["observations/image"])
