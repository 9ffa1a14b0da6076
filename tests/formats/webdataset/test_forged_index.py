"""An index that came with the data is not believed, whatever it says: values are those of the archive."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.core.ragged import Ragged
from penstock.formats.webdataset import source
from penstock.formats.webdataset.content import index_file, index_state
from penstock.formats.webdataset.source import ShardSource

FORGED = 200


def npy(array: np.ndarray) -> bytes:
    np.save(file := io.BytesIO(), array)
    return file.getvalue()


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(source, "WORTH", 1)
    numbers = np.random.default_rng(0)
    path = tmp_path / "data" / "a.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as file:
        for i in range(9):
            for name, data in (
                ("cls", b"%d" % i),
                ("txt", b"t" * (i + 1)),
                ("npy", npy(numbers.integers(0, 9, (2, 3)))),
                ("bin", numbers.bytes(40)),
            ):
                member = tarfile.TarInfo(f"{i:03d}.{name}")
                member.size = len(data)
                file.addfile(member, io.BytesIO(data))
    return path


def values(found: ShardSource) -> dict[str, Any]:
    """Every value of a dataset, as bytes."""
    told: dict[str, Any] = {"offsets": found.offsets.tolist(), "layout": found.layout, "metadata": dict(found.metadata)}
    for i, episode in enumerate(found.episodes()):
        for name, array in episode.columns.items():
            raw = (array.values, array.offsets) if isinstance(array, Ragged) else (np.asarray(array),)
            told[f"{i}/{name}"] = [(each.dtype.str, each.shape, each.tobytes()) for each in raw]
    return told


def forged(key: str, header: dict[str, Any], arrays: dict[str, Any], numbers: random.Random) -> bytes:
    """An index as the first version kept next to the archive, sealed, with something in it changed."""
    arrays = {name: array.copy() for name, array in arrays.items()}
    listed = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    header = json.loads(json.dumps(header, default=np.ndarray.tolist))
    kind = numbers.randrange(4)
    if kind == 0:
        array = arrays[numbers.choice([name for name, a in arrays.items() if a.size and a.dtype.kind == "i"])]
        array.reshape(-1)[numbers.randrange(array.size)] += numbers.choice([1, -1, 8, 512, -512, 1 << 40])
    elif kind == 1:
        entry = numbers.choice(listed)
        entry[1 + numbers.randrange(2)] = numbers.choice(["<f4", "|O", "<i2", [], [3], [-1], [1 << 40], None])
    elif kind == 2:
        header[numbers.choice(sorted(header))] = numbers.choice([None, [], {}, "seed", 3, [[]], -1])
    else:
        column = numbers.choice(sorted(header["columns"]))
        header["columns"][column] = header["columns"][numbers.choice(sorted(header["columns"]))]
        array = arrays[f"{numbers.randrange(4)}/offset"]
        array += numbers.randrange(600)
    raw = json.dumps({"key": key, "content": header, "arrays": listed}).encode()
    body = b"".join(
        (
            b"penstock shards 1\n",
            len(raw).to_bytes(8, "little"),
            raw,
            *(np.ascontiguousarray(a) for a in arrays.values()),
        )
    )
    return body + hashlib.sha256(body).digest()


def test_an_index_next_to_the_data_is_not_believed(archive: Path) -> None:
    with ShardSource(archive, index=False) as found:
        expected, (header, arrays), key = values(found), found.state.content.packed(), found._key
    numbers = random.Random(12)
    places = [archive.parent / f".{archive.name}.penstock-index", archive.parent / ".penstock-index"]
    for _ in range(FORGED):
        content = forged(key, header, arrays, numbers)
        for place in places:
            place.write_bytes(content)
        for location in (archive, archive.parent):
            index_file(location).path.unlink(missing_ok=True)
        with ShardSource(archive) as one:
            assert values(one) == expected
    with ShardSource(archive.parent) as folder:
        assert values(folder) == expected


def test_a_damaged_index_in_the_cache_is_made_again(archive: Path) -> None:
    with ShardSource(archive) as found:
        expected = values(found)
    place = index_file(archive).path
    good = place.read_bytes()
    numbers = random.Random(5)
    for _ in range(60):
        i, n = numbers.randrange(len(good)), numbers.randrange(1, 9)
        damaged = [good[:i], good[:i] + numbers.randbytes(n) + good[i + n :], good[:i] + good[i + n :]]
        place.write_bytes(numbers.choice(damaged))
        with ShardSource(archive) as found:
            assert values(found) == expected
    assert place.read_bytes() == good


def test_an_index_does_not_serve_another_archive_of_the_same_name_size_and_time(archive: Path) -> None:
    ShardSource(archive).close()
    state = archive.stat()
    changed = archive.read_bytes().replace(b"t" * 5, b"u" * 5, 1)
    archive.write_bytes(changed)
    os.utime(archive, ns=(state.st_atime_ns, state.st_mtime_ns))
    with ShardSource(archive, index=False) as plain, ShardSource(archive) as found:
        assert values(found) == values(plain)
    whole = [np.frombuffer(changed, np.uint8)]
    before = index_state("key", [archive], whole)
    archive.rename(archive.with_name("kept"))
    archive.write_bytes(changed)  # another file with the same bytes
    os.utime(archive, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert index_state("key", [archive], whole) != before
