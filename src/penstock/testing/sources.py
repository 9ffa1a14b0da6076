"""What every `Source` must do, as tests to subclass."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from penstock.core.columns import Columns
from penstock.core.episode import Episode
from penstock.core.selection import Selection
from penstock.core.spec import Align, Field
from penstock.errors import ExpiredRowError
from penstock.formats.base.source import Source
from penstock.testing.compare import assert_same_array, assert_same_episode, brute_force, random_selection, rows_of
from penstock.testing.examples import EXAMPLES, Example

ALIGNS: tuple[Align, ...] = ("step", "boundary", "episode")


class SourceContract(ABC):
    """The tests that every source must pass, for pytest.

    Derive a class whose name starts with `Test`, and define `open`. Set `examples` to the datasets that the format can
    store; leave out datasets with columns that it cannot store.

    Example:
        >>> from penstock.testing.examples import FLAT
        >>> class TestMine(SourceContract):
        ...     examples = (FLAT,)
        ...     def open(self, path, episodes):
        ...         ...  # write the episodes below path, and return the source that reads them
        >>> len([name for name in dir(TestMine) if name.startswith("test_")]) > 10
        True
    """

    examples: ClassVar[Sequence[Example]] = EXAMPLES

    @abstractmethod
    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        """Store episodes below a folder by any means, and open them.

        Args:
            path: An empty folder.
            episodes: Episodes of one spec.
        """

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run every test for every example.

        Args:
            metafunc: The test, as pytest passes it.
        """
        if "example" in metafunc.fixturenames:
            metafunc.parametrize("example", self.examples, ids=repr, scope="class")

    @pytest.fixture(scope="class")
    @classmethod
    def episodes(cls, example: Example) -> list[Episode]:
        """Return the stored episodes.

        Args:
            example: The dataset.
        """
        return example.episodes(seed=3)

    @pytest.fixture(scope="class")
    @classmethod
    def source(cls, tmp_path_factory: pytest.TempPathFactory, episodes: list[Episode]) -> Iterator[Source]:
        """Return the same episodes, opened once for all tests that read them.

        Args:
            tmp_path_factory: Makes an empty folder.
            episodes: The episodes.
        """
        with cls().open(tmp_path_factory.mktemp("source"), episodes) as source:
            yield source

    def test_the_spec_is_what_was_written(self, source: Source, example: Example) -> None:
        """Columns in order, fields and spaces."""
        assert list(source.spec) == list(example.spec)
        assert source.spec == example.spec

    def test_offsets_cut_the_rows_into_episodes(self, source: Source, example: Example) -> None:
        """In all three row spaces."""
        lengths = np.array(example.lengths)
        assert source.offsets.dtype == np.int64
        assert source.offsets.tolist() == [0, *np.cumsum(lengths).tolist()]
        assert source.rows("boundary").tolist() == [0, *np.cumsum(lengths + 1).tolist()]
        assert source.rows("episode").tolist() == list(range(len(lengths) + 1))
        assert (len(source), source.steps, source.extent) == (len(lengths), lengths.sum(), (0, lengths.sum()))

    def test_episodes_come_back_to_the_bit(self, source: Source, episodes: list[Episode]) -> None:
        """One by one, from the end, in a row, and in any order, with repetitions."""
        for e, expected in enumerate(episodes):
            assert source.episode(e).id == e
            assert_same_episode(source.episode(e), expected)
            assert_same_episode(source.episode(e - len(episodes)), expected)
        order: list[int] = np.random.default_rng(6).integers(-len(episodes), len(episodes), 20).tolist()
        for numbers in (range(len(episodes)), order, []):
            for episode, e in zip(source.episodes(numbers), numbers, strict=True):
                assert_same_episode(episode, episodes[e])

    def test_reads_equal_a_loop_over_rows(self, source: Source, episodes: list[Episode]) -> None:
        """Random spans with padding, at every width, of every column."""
        rng = np.random.default_rng(5)
        for path in source.spec:
            rows = rows_of(episodes, path)
            for n, width in ((0, 3), (1, 1), (2, 9), (5, 4)):
                self._same(source, path, rows, random_selection(rng, len(rows), n, width))

    def test_all_rows_in_one_span(self, source: Source, episodes: list[Episode]) -> None:
        """The seams between episodes, and wherever the format cuts its data. Rows that need no copy are the same."""
        for path, field in source.spec.items():
            rows = rows_of(episodes, path)
            zero = np.zeros(1 if rows else 0, np.int64)
            self._same(source, path, rows, Selection(zero, zero, zero + len(rows), zero, (1, len(rows))))
            for first, last in ((0, len(rows)), (1, len(rows)), (len(rows) // 2, len(rows) // 2 + 1)):
                if rows and first < last and not field.ragged:
                    view = source.view_array(path, first, last - first)
                    assert view is None or view.flags.aligned
                    if view is not None:
                        assert_same_array(view, np.stack(rows[first:last]), path)

    def _same(self, source: Source, path: str, rows: Sequence[Any], selection: Selection) -> None:
        array = source.read([path], selection)[path]
        assert_same_array(array, brute_force(rows, source.spec[path], selection), path)

    def test_values_of_ragged_columns_are_read_by_their_numbers(self, source: Source, episodes: list[Episode]) -> None:
        """As if all rows were laid end to end; padding stays as the caller had it, and others are refused."""
        rng = np.random.default_rng(7)
        for path in [path for path, field in source.spec.items() if field.ragged]:
            values = np.concatenate([np.zeros(0, source.spec[path].dtype), *rows_of(episodes, path)])
            offsets = source.value_offsets(path)
            assert offsets.tolist() == [0, *np.cumsum([len(row) for row in rows_of(episodes, path)]).tolist()]
            for n, width in ((0, 3), (2, 9), (5, 4)):
                chosen, out = random_selection(rng, len(values), n, width), np.ones(n * width, values.dtype)
                source.read_values(path, chosen, out)
                rows = chosen.rows().ravel()
                expected = np.ones(n * width, values.dtype)
                expected[rows >= 0] = values[rows[rows >= 0]]
                np.testing.assert_array_equal(out, expected)
            one = np.ones(1, np.int64)
            beyond = Selection(one * 0, one * len(values), one, one * 0, (1, 1))
            with pytest.raises(ExpiredRowError):
                source.read_values(path, beyond, np.zeros(1, values.dtype))

    def test_covered_places_alone_are_written(self, source: Source, episodes: list[Episode]) -> None:
        """`read_array` leaves padding as the caller had it."""
        one = np.ones(1, np.int64)
        for path, field in source.spec.fields.items():
            if not field.ragged and field.row_bytes and rows_of(episodes, path):
                out = np.frombuffer(b"\7" * 3 * field.row_bytes, field.dtype).reshape(3, *field.shape).copy()
                source.read_array(path, Selection(one * 0, one * 0, one, one, (1, 3)), out)
                assert out[[0, 2]].tobytes() == b"\7" * 2 * field.row_bytes
                assert out[1].tobytes() == np.asarray(rows_of(episodes, path)[0]).tobytes()

    def test_rows_outside_are_refused(self, source: Source) -> None:
        """With the error that says so, for every alignment."""
        for path, field in source.spec.fields.items():
            end = int(source.rows(field.align)[-1])
            for start, length in ((-1, 1), (end, 1), (0, end + 1)):
                with pytest.raises(ExpiredRowError):
                    source.read([path], Selection.consecutive(start, start + length))

    def test_unknown_episodes_and_columns_are_refused(self, source: Source) -> None:
        """With `IndexError` and `KeyError`."""
        for e in (len(source), -len(source) - 1):
            with pytest.raises(IndexError):
                source.episode(e)
        none = np.zeros(0, np.int64)
        with pytest.raises(KeyError):
            source.read(["no such column"], Selection(none, none, none, none, (0, 1)))

    def test_metadata_of_episodes(self, source: Source, episodes: list[Episode]) -> None:
        """In any order, with repetitions."""
        order = [*range(len(episodes)), 0, len(episodes) - 1]
        for entries, e in zip(source.episode_metadata(order), order, strict=True):
            assert {name: entries.get(name) for name in episodes[e].metadata} == dict(episodes[e].metadata)
        assert source.episode_metadata([]) == []

    def test_the_table_holds_every_number(self, source: Source, episodes: list[Episode]) -> None:
        """Integers as they are, and NaN where an episode has none."""
        table: Columns = source.table()
        assert table["id"].tolist() == list(range(len(episodes)))
        assert table["total_steps"].tolist() == [len(episode) for episode in episodes]
        assert table["seed"].dtype == np.int64
        assert table["seed"].tolist() == [episode.metadata["seed"] for episode in episodes]
        assert "note" not in table
        bonus = np.array([episode.metadata.get("bonus", np.nan) for episode in episodes])
        np.testing.assert_array_equal(table["bonus"], bonus)

    def test_any_number_of_threads_may_read(self, tmp_path: Path, episodes: list[Episode]) -> None:
        """All columns, read by several threads at once, of a source that was not read before."""
        with self.open(tmp_path, episodes) as source:
            self._read_by_threads(source, episodes)

    def _read_by_threads(self, source: Source, episodes: list[Episode]) -> None:
        failed: list[BaseException] = []

        def read(seed: int) -> None:
            try:
                for path in source.spec:
                    rows = rows_of(episodes, path)
                    selection = random_selection(np.random.default_rng(seed), len(rows), 6, 5)
                    self._same(source, path, rows, selection)
            except BaseException as error:  # noqa: BLE001  handed to the test below
                failed.append(error)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []

    def test_a_pickled_source_reads_the_same(self, source: Source, episodes: list[Episode]) -> None:
        """It travels to workers."""
        with pickle.loads(pickle.dumps(source)) as other:  # noqa: S301
            assert other.fingerprint == source.fingerprint
            for episode, expected in zip(other.episodes(), episodes, strict=True):
                assert_same_episode(episode, expected)

    def test_a_fork_reads_the_same(self, source: Source) -> None:
        """After a first read here, so that files are open."""
        expected = _digest(source)
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=lambda: there.send(_digest(source)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking next to threads, which is the point
            child.start()
        there.close()
        assert here.recv() == expected
        child.join()

    def test_the_fingerprint_tells_data_apart(self, tmp_path: Path, source: Source, example: Example) -> None:
        """Equal for one dataset opened twice, another for other values."""
        (tmp_path / "other").mkdir()
        with self.open(tmp_path / "other", example.episodes(seed=4)) as other:
            assert other.fingerprint != source.fingerprint
        assert source.fingerprint == source.fingerprint

    def test_it_does_not_grow_by_itself(self, source: Source) -> None:
        """`refresh` says so."""
        assert source.refresh() is False


def _digest(source: Source) -> bytes:
    parts = [column_bytes(episode, field, path) for episode in source.episodes() for path, field in source.spec.items()]
    return b"".join(parts)


def column_bytes(episode: Episode, field: Field, path: str) -> bytes:
    """Return the values of one column of an episode as bytes.

    Args:
        episode: The episode.
        field: Field of the column.
        path: Path of the column.

    Returns:
        The bytes. A ragged column is without the lengths of its rows.

    Example:
        >>> from penstock.testing.examples import FLAT
        >>> len(column_bytes(FLAT.episodes()[0], FLAT.spec["rewards"], "rewards"))
        24
    """
    array: Any = episode.columns[path]
    return (array.values if field.ragged else array).tobytes()
