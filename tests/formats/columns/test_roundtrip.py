"""Any spec, any values: what was written is read, whoever wrote it, and NumPy alone reads the same."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Field, Spec
from penstock.errors import FormatError
from penstock.formats.columns import FORMAT, table
from penstock.formats.columns.compact import compact
from penstock.formats.columns.layout import packable
from penstock.formats.columns.source import ColumnsSource
from penstock.formats.columns.writer import ColumnsWriter
from penstock.testing.compare import assert_same_array, assert_same_episode, brute_force, random_selection, rows_of
from penstock.testing.examples import DTYPES, FLAT, NESTED, random_episode

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
METADATA = st.dictionaries(
    st.text(),
    st.recursive(PLAIN, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(), v, max_size=3)),
    max_size=4,
)


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    """Nested paths, every dtype, ragged and text columns, rows without bytes; one column at least follows the steps."""
    fields: dict[str, Field] = {}
    names = draw(st.lists(st.text(min_size=1, max_size=12).filter(_sound), min_size=1, max_size=5, unique=True))
    for i, name in enumerate(names):
        kind = draw(st.sampled_from(("array", "array", "ragged", "text")))
        dtype = np.dtype("u1" if kind == "text" else draw(st.sampled_from((*DTYPES, ">i4", "<M8[s]", "S3", "<U2"))))
        shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3))) if kind == "array" else ()
        align = draw(st.sampled_from(("step", "boundary", "episode") if i else ("step", "boundary")))
        fields[f"group {i}/{name}"] = Field(dtype, shape, align, kind)
    return Spec(fields)


def _sound(name: str) -> bool:
    unicode = not any("\ud800" <= c <= "\udfff" for c in name)
    return unicode and len(name.encode()) < 50 and all(name.split("/"))  # a path has no empty part


@settings(max_examples=40, deadline=None)
@given(
    spec=specs(),
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    writers=st.integers(1, 3),
    metadata=METADATA,
    seed=st.integers(0, 1 << 32),
    level=st.none() | st.integers(0, 9),
)
def test_any_dataset(
    spec: Spec, lengths: list[int], writers: int, metadata: dict[str, Any], seed: int, level: int | None
) -> None:
    rng = np.random.default_rng(seed)
    episodes = [_described(rng, random_episode(rng, spec, n, e), metadata) for e, n in enumerate(lengths)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        held = [_created(path, spec, metadata, level), *(ColumnsWriter(path) for _ in range(writers - 1))]
        for e, episode in enumerate(episodes):
            assert held[rng.integers(writers)].write(episode) == e
        for writer in held:
            writer.close()
        _same(path, episodes, metadata, rng)
        assert list(FORMAT.check(path)) == []
        compact(path, path.with_name("compact"), compression=None if seed % 2 else "keep")
        with ColumnsSource(path) as a, ColumnsSource(path.with_name("compact")) as b:
            assert a.fingerprint == b.fingerprint
            _same(b.path, episodes, metadata, rng)


def _created(path: Path, spec: Spec, metadata: dict[str, Any], level: int | None) -> ColumnsWriter:
    able = any(packable(field) for field in spec.values())
    return ColumnsWriter.create(path, spec, metadata, compression=level if able else None, block_steps=2)


def _described(rng: np.random.Generator, episode: Episode, metadata: dict[str, Any]) -> Episode:
    return Episode(episode.spec, episode.columns, episode.id, {**metadata, "seed": int(rng.integers(9))})


def _same(path: Path, episodes: list[Episode], metadata: dict[str, Any], rng: np.random.Generator) -> None:
    with ColumnsSource(path) as source:
        assert source.metadata == metadata
        for found, expected in zip(source.episodes(), episodes, strict=True):
            assert_same_episode(found, expected)
            assert found.metadata == expected.metadata
        some = rng.integers(0, len(episodes), rng.integers(0, 9)).tolist()
        assert source.episode_metadata(some) == [episodes[e].metadata for e in some]
        assert source.episode_metadata(range(len(source))) == [episode.metadata for episode in episodes]
        for name, field in source.spec.fields.items():
            rows = rows_of(episodes, name)
            selection = random_selection(rng, len(rows), 4, 3)
            assert_same_array(source.read([name], selection)[name], brute_force(rows, field, selection), name)


def test_numpy_alone_reads_the_columns(tmp_path: Path) -> None:
    episodes = NESTED.episodes()
    with ColumnsWriter.create(tmp_path / "store", NESTED.spec) as writer:
        writer.write_all(episodes)
    segment = tmp_path / "store" / "segments" / "0"
    for path, field in NESTED.spec.fields.items():
        name = path.replace("/", "%2F")
        found = np.fromfile(segment / f"{name}.values", field.dtype).reshape(-1, *field.shape)
        expected = np.concatenate([np.asarray(episode.columns[path]) for episode in episodes])
        assert found.tobytes() == expected.tobytes()
    lines = (segment / "metadata.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [episode.metadata for episode in episodes]
    assert np.fromfile(tmp_path / "store" / "episodes", table.ENTRY)["steps"].tolist() == list(NESTED.lengths)


def test_a_short_episode_costs_little_and_files_are_few(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    numbers = {f"rewards_{name}": float(rng.normal()) for name in ("max", "mean", "min", "std", "sum")}
    episodes = [random_episode(rng, FLAT.spec, 5) for _ in range(100)]
    with ColumnsWriter.create(tmp_path / "store", FLAT.spec) as writer:
        writer.write_all(Episode(FLAT.spec, e.columns, metadata={"seed": 1 << 40, **numbers}) for e in episodes)
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    payload = sum(array.nbytes for episode in episodes for array in episode.columns.values())
    fixed = (tmp_path / "store" / "spec.json").stat().st_size
    assert (sum(path.stat().st_size for path in files) - fixed - payload) / 100 <= 512
    assert len(list((tmp_path / "store/segments/0").iterdir())) <= len(FLAT.spec) + 4


def test_views_are_read_only_and_outlive_the_source(tmp_path: Path) -> None:
    episode = random_episode(np.random.default_rng(0), FLAT.spec, 5)
    with ColumnsWriter.create(tmp_path / "store", FLAT.spec) as writer:
        writer.write(episode)
    source = ColumnsSource(tmp_path / "store")
    found = source.episode(0)
    source.close()
    source.close()
    assert_same_episode(found, episode)
    with pytest.raises(ValueError, match="read-only"):
        found.rewards[0] = 1
    with pytest.raises(FormatError, match="closed"):
        source.episode(0)


def test_a_pickled_source_keeps_its_extent(tmp_path: Path) -> None:
    with ColumnsWriter.create(tmp_path / "store", FLAT.spec) as writer:
        writer.write_all(FLAT.episodes())
        with ColumnsSource(tmp_path / "store", episodes=2) as source:
            assert (len(source), source.refresh(), len(source)) == (2, True, 4)
        with pytest.raises(FormatError, match="at least 5"):
            ColumnsSource(tmp_path / "store", episodes=5)


def test_text_is_bytes_whatever_they_are(tmp_path: Path) -> None:
    spec = Spec({"say": Field(np.dtype("u1"), (), "step", "text")})
    with ColumnsWriter.create(tmp_path / "store", spec) as writer:
        writer.write(Episode(spec, {"say": Ragged.from_bytes([b"\xff\x00", b""])}))
    with ColumnsSource(tmp_path / "store") as source:
        assert source.episode(0).columns["say"].blobs() == [b"\xff\x00", b""]
