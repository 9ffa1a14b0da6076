from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from penstock.core.spec import Spec
from penstock.formats.minari import FORMAT
from penstock.testing.examples import FLAT, IMAGES, NESTED, NUMBERS, RAGGED, TEXT, Example
from penstock.testing.sources import SourceContract
from penstock.testing.writers import WriterContract


def _rank(path):
    return path if path.startswith(("infos", "extra")) else ""


def _without(example, name, unwanted):
    """Without some fields; infos and extras sorted, as the groups of HDF5 sort them."""
    kept = {path: f for path, f in example.spec.fields.items() if not unwanted(f)}
    fields = dict(sorted(kept.items(), key=lambda item: (item[0].startswith("extra"), _rank(item[0]))))
    return Example(name, Spec(fields, example.spec.observation_space, example.spec.action_space), example.lengths)


_REAL = _without(NUMBERS, "real numbers", lambda f: f.dtype.kind == "c")  # neither back-end has complex numbers
_BYTES = _without(RAGGED, "extras", lambda f: f.kind == "ragged")
_EMPTY = replace(_BYTES, name="empty", lengths=(0, 2, 0, 1, 0))
_HDF5 = (FLAT, IMAGES, NESTED, _REAL, TEXT, _BYTES, _EMPTY)
_ARROW = (*_HDF5, RAGGED)
_SOLID = _without(_REAL, "solid numbers", lambda f: 0 in f.shape)  # Parquet has no rows without values
_PARQUET = (FLAT, IMAGES, NESTED, _SOLID, TEXT, _BYTES, _EMPTY, RAGGED)


class _Source(SourceContract):
    options = MappingProxyType({})

    def open(self, path, episodes):
        target = path / "dataset-v0"
        with FORMAT.create(target, episodes[0].spec, {}, **self.options) as writer:
            writer.write_all(episodes)
        return FORMAT.open(target)


class _Writer(WriterContract):
    options = MappingProxyType({})
    several = True
    growing = True

    def create(self, path, spec, metadata):
        return FORMAT.create(path, spec, metadata, **self.options)

    def append(self, path):
        return FORMAT.append(path)

    def open(self, path):
        return FORMAT.open(path)

    def test_what_is_written_is_read(self, path, example):
        episodes = example.episodes()
        with self.create(path, example.spec, {"author": ["me"], "algorithm_name": "random"}) as writer:
            assert [writer.write(episode) for episode in episodes] == list(range(len(episodes)))
        self.same(path, episodes)
        with self.open(path) as source:
            assert source.spec == example.spec
            assert source.metadata["algorithm_name"] == "random"
            assert source.metadata["author"] == ("me" if self.options.get("layout") == "0.4" else ["me"])

    def test_metadata_is_added_and_replaced(self, path):
        with self.create(path, FLAT.spec, {"author": "me", "description": "first"}) as writer:
            writer.write_all(FLAT.episodes())
            writer.update_metadata({"description": "second", "tags": ["a"]})
        with self.open(path) as source:
            found = {name: source.metadata[name] for name in ("author", "description", "tags", "total_episodes")}
        author = "me" if self.options.get("layout") == "0.4" else ["me"]
        assert found == {"author": author, "description": "second", "tags": ["a"], "total_episodes": 4}


class TestHdf5Source(_Source):
    examples = _HDF5


class TestHdf5Writer(_Writer):
    examples = _HDF5


class TestLegacySource(_Source):
    examples = _HDF5
    options = MappingProxyType({"layout": "0.4"})


class TestLegacyWriter(_Writer):
    examples = (NESTED, TEXT)
    options = MappingProxyType({"layout": "0.4"})


class TestArrowSource(_Source):
    examples = _ARROW
    options = MappingProxyType({"data_format": "arrow"})


class TestArrowWriter(_Writer):
    examples = (NESTED, TEXT, RAGGED)
    options = MappingProxyType({"data_format": "arrow"})


class TestParquetSource(_Source):
    examples = _PARQUET
    options = MappingProxyType({"data_format": "parquet"})


class TestParquetWriter(_Writer):
    examples = (NESTED, TEXT, RAGGED)
    options = MappingProxyType({"data_format": "parquet"})
