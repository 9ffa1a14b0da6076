"""What every `Writer` must do, as tests to subclass."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from penstock.core.episode import Episode
from penstock.core.spec import Spec
from penstock.errors import LockedError, SpecError
from penstock.formats.base.source import Source
from penstock.formats.base.writer import Writer
from penstock.testing.compare import assert_same_episode
from penstock.testing.examples import EXAMPLES, FLAT, NESTED, Example, field, random_episode


class WriterContract(ABC):
    """The tests that every writer must pass, for pytest.

    Derive a class whose name starts with `Test`, and define `create`, `append` and `open`. Set `examples` to the
    datasets that the format can store, `several` to True if two writers may be open at once (else the second must raise
    `LockedError`), and `growing` to True if an open source sees appended episodes after `refresh`.

    Example:
        >>> import tempfile
        >>> from penstock.formats.columns import FORMAT
        >>> class TestColumns(WriterContract):
        ...     def create(self, path, spec, metadata):
        ...         return FORMAT.create(path, spec, metadata)
        ...     def append(self, path):
        ...         return FORMAT.append(path)
        ...     def open(self, path):
        ...         return FORMAT.open(path)
        >>> TestColumns().test_an_empty_dataset_opens(Path(tempfile.mkdtemp(), "data"))
    """

    examples: ClassVar[Sequence[Example]] = EXAMPLES
    several: ClassVar[bool] = False
    growing: ClassVar[bool] = False

    @abstractmethod
    def create(self, path: Path, spec: Spec, metadata: Mapping[str, Any]) -> Writer:
        """Create a dataset, and open it for writing.

        Args:
            path: Folder or file, which does not exist yet.
            spec: Columns and spaces.
            metadata: Metadata of the dataset.
        """

    @abstractmethod
    def append(self, path: Path) -> Writer:
        """Open a dataset for more episodes.

        Args:
            path: The dataset.
        """

    @abstractmethod
    def open(self, path: Path) -> Source:
        """Open a dataset for reading.

        Args:
            path: The dataset.
        """

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run the tests that depend on an example for every example.

        Args:
            metafunc: The test, as pytest passes it.
        """
        if "example" in metafunc.fixturenames:
            metafunc.parametrize("example", self.examples, ids=repr)

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Return the place of the dataset.

        Args:
            tmp_path: An empty folder.
        """
        return tmp_path / "data"

    def same(self, path: Path, expected: Sequence[Episode]) -> None:
        """Fail unless the dataset has these episodes.

        Args:
            path: The dataset.
            expected: The episodes.
        """
        with self.open(path) as source:
            assert len(source) == len(expected)
            for stored, episode in zip(source.episodes(), expected, strict=True):
                assert_same_episode(stored, episode)

    def filled(self, path: Path, episodes: Sequence[Episode]) -> None:
        """Create a dataset of episodes.

        Args:
            path: The dataset.
            episodes: The episodes, of one spec.
        """
        with self.create(path, episodes[0].spec, {}) as writer:
            writer.write_all(episodes)

    def test_what_is_written_is_read(self, path: Path, example: Example) -> None:
        """Episode by episode, numbered from 0."""
        episodes = example.episodes()
        with self.create(path, example.spec, {"author": "me"}) as writer:
            assert [writer.write(episode) for episode in episodes] == list(range(len(episodes)))
        self.same(path, episodes)
        with self.open(path) as source:
            assert source.spec == example.spec
            assert source.metadata["author"] == "me"

    def test_all_at_once_is_the_same(self, path: Path, example: Example) -> None:
        """`write_all` takes any iterable."""
        episodes = example.episodes()
        with self.create(path, example.spec, {}) as writer:
            assert writer.write_all(iter(episodes)) == list(range(len(episodes)))
        self.same(path, episodes)

    def test_an_empty_dataset_opens(self, path: Path) -> None:
        """Nothing in it, but its columns are known."""
        self.create(path, FLAT.spec, {}).close()
        with self.open(path) as source:
            assert (len(source), source.extent, source.spec) == (0, (0, 0), FLAT.spec)

    def test_an_episode_lasts_when_write_returns(self, path: Path) -> None:
        """Without closing the writer."""
        episodes = FLAT.episodes()
        with self.create(path, FLAT.spec, {}) as writer:
            for n, episode in enumerate(episodes):
                writer.write(episode)
                self.same(path, episodes[: n + 1])

    def test_appending_continues_the_numbers(self, path: Path, example: Example) -> None:
        """A second and a third writer, in turn."""
        parts = [example.episodes(seed) for seed in range(3)]
        self.filled(path, parts[0])
        for n, part in enumerate(parts[1:], 1):
            with self.append(path) as writer:
                assert writer.write(part[0]) == n * len(part)
                writer.write_all(part[1:])
        self.same(path, [episode for part in parts for episode in part])

    def test_metadata_is_added_and_replaced(self, path: Path) -> None:
        """And the rest of it stays."""
        with self.create(path, FLAT.spec, {"author": "me", "description": "first"}) as writer:
            writer.write_all(FLAT.episodes())
            writer.update_metadata({"description": "second", "tags": ["a"]})
        with self.open(path) as source:
            stored = {name: source.metadata[name] for name in ("author", "description", "tags")}
        assert stored == {"author": "me", "description": "second", "tags": ["a"]}

    def test_other_columns_are_refused(self, path: Path) -> None:
        """And leave the dataset as it was, and the writer usable."""
        episodes = FLAT.episodes()
        wrong = Spec({**FLAT.spec.fields, "rewards": field("f4")})
        others = (NESTED.episodes()[0], random_episode(np.random.default_rng(0), wrong, 2))
        with self.create(path, FLAT.spec, {}) as writer:
            writer.write(episodes[0])
            for other in others:
                with pytest.raises(SpecError):
                    writer.write(other)
            self.same(path, episodes[:1])
            writer.write_all(episodes[1:])
        self.same(path, episodes)

    def test_nothing_is_written_over(self, path: Path) -> None:
        """`create` wants a free place."""
        self.filled(path, FLAT.episodes())
        with pytest.raises(FileExistsError):
            self.create(path, FLAT.spec, {})
        self.same(path, FLAT.episodes())

    def test_closing_twice_is_fine(self, path: Path) -> None:
        """And writing afterwards is not."""
        writer = self.create(path, FLAT.spec, {})
        writer.close()
        writer.close()
        with pytest.raises(ValueError, match="closed"):
            writer.write(FLAT.episodes()[0])

    def test_two_writers(self, path: Path) -> None:
        """Both write, or the second gets an error that says to wait."""
        a, b = FLAT.episodes(1), FLAT.episodes(2)
        with self.create(path, FLAT.spec, {}) as first:
            if not self.several:
                with pytest.raises(LockedError):
                    self.append(path).write(b[0])
                first.write_all(a)
            else:
                with self.append(path) as second:
                    numbers = [
                        w.write(e)
                        for pair in zip(a, b, strict=True)
                        for w, e in zip((first, second), pair, strict=True)
                    ]
                assert numbers == list(range(2 * len(a)))
        both = [episode for pair in zip(a, b, strict=True) for episode in pair]
        self.same(path, both if self.several else a)

    def test_a_reader_sees_growth_when_it_asks(self, path: Path) -> None:
        """And what it knows keeps its numbers; a source of a format that cannot grow stays as it is."""
        episodes = FLAT.episodes()
        self.create(path, FLAT.spec, {}).close()
        with self.open(path) as source, self.append(path) as writer:
            for n, episode in enumerate(episodes):
                writer.write(episode)
                assert len(source) == (n if self.growing else 0)
                assert source.refresh() is self.growing
                if not self.growing:
                    continue
                assert source.refresh() is False
                for stored, expected in zip(source.episodes(), episodes[: n + 1], strict=True):
                    assert_same_episode(stored, expected)

    def test_a_kill_loses_nothing_that_was_saved(self, path: Path) -> None:
        """SIGKILL at any moment: every episode that `write` returned from is stored, and the dataset goes on."""
        self.create(path, FLAT.spec, {}).close()
        saved: list[int] = []
        for kills in range(1, 4):
            saved += killed_after(kills * 3, partial(self._endless, path, len(saved)))
            with self.open(path) as source:
                assert len(source) in (len(saved), len(saved) + 1)  # the last may be whole, but not yet reported
                for e, stored in enumerate(source.episodes()):
                    assert_same_episode(stored, numbered(e))
                saved = list(range(len(source)))
        with self.append(path) as writer:
            assert writer.write(numbered(len(saved))) == len(saved)

    def _endless(self, path: Path, first: int) -> Iterator[int]:
        writer, e = self.append(path), first
        while True:
            yield writer.write(numbered(e))
            e += 1


def numbered(e: int, example: Example = FLAT) -> Episode:
    """Return an episode that depends only on its number, so that it can be recognized.

    Args:
        e: Number of the episode.
        example: Dataset whose columns it has. The default is `FLAT`.

    Returns:
        An episode of `e % 40` steps.

    Example:
        >>> len(numbered(43))
        3
    """
    return random_episode(np.random.default_rng(e), example.spec, e % 40, e)


def killed_after(reports: int, work: Callable[[], Iterator[int]], delay: float = 0.0) -> list[int]:
    """Run a function in another process, kill it with SIGKILL, and return the numbers that it yielded.

    The numbers come through a pipe, so numbers that were in it when the process died count as well.

    Args:
        reports: Numbers to wait for before the kill.
        work: Function to run, which yields numbers.
        delay: Seconds between the last awaited number and the kill. The default is 0.

    Returns:
        The numbers, at least `reports`.

    Example:
        >>> import itertools
        >>> killed_after(3, itertools.count)[:3]
        [0, 1, 2]
    """
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking next to threads
        child = multiprocessing.get_context("fork").Process(target=_report, args=(read, write, work))
        child.start()
    os.close(write)
    with open(read, "rb") as pipe:
        first = pipe.read(8 * reports)
        assert child.pid is not None
        if delay:
            time.sleep(delay)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        raw = first + pipe.read()
    return np.frombuffer(raw, np.int64, len(raw) // 8).tolist()


def _report(read: int, write: int, work: Callable[[], Iterator[int]]) -> None:
    os.close(read)
    for number in work():
        os.write(write, int(number).to_bytes(8, "little", signed=True))
