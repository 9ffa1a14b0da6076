"""`Curation`: what people say about the episodes of a dataset, in a small JSON file next to it.

The data never change. A file has the fingerprint and the number of episodes of the dataset that it was made for, and
the marks of each marked episode:

    {"penstock": "curation", "version": 1, "fingerprint": "9c1f...", "episodes": 120,
     "marks": {"7": {"tags": ["slow"], "rating": 2, "note": "...", "spans": [[10, 40, "slip"]]},
               "8": {"excluded": true}, "9": {"excluded_spans": [[0, 12]]}}}

A file is replaced as a whole, so a killed writer leaves the file before or after its change. `Curation.edit` holds a
lock on the file, so that several processes can change it. Marks are about episode numbers: they are used only if the
first episodes of a dataset are those that the file was made for (`Source.fingerprint_of`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from penstock.core.narrowing import is_dict, is_integer
from penstock.core.text import counted
from penstock.data.derived import DerivedSource
from penstock.data.episode_marks import LONGEST_NOTE, EpisodeMarks, is_count, shortened
from penstock.errors import ArgumentError, FormatError, StateError
from penstock.files import locked, write_atomic
from penstock.formats.base.source import Source

VERSION = 1
SUFFIX = ".curation.json"


@dataclass(frozen=True)
class MarkConflict:
    """A mark that two curations set differently.

    Args:
        episode: Number of the episode.
        mark: `"rating"` or `"excluded"`.
        values: The values, in the order of the curations. The last one is used.

    Example:
        >>> str(MarkConflict(3, "excluded", (True, False)))
        'episode 3: excluded is True, then False; False is used'
    """

    episode: int
    mark: Literal["rating", "excluded"]
    values: tuple[Any, ...]

    def __str__(self) -> str:
        said = ", then ".join(map(str, self.values))
        return f"episode {self.episode}: {self.mark} is {said}; {self.values[-1]} is used"


class Curation:
    """Tags, ratings, exclusions, notes and spans of the episodes of one dataset. Whole episodes or spans are excluded.

    `curation[e]` are the marks of an episode; assign `EpisodeMarks` to change them. `penstock.open(curation=)` applies
    them. `Curation.edit` changes a file.

    Args:
        fingerprint: Fingerprint of the dataset that the marks are for.
        episodes: Its number of episodes.
        marks: Marks by number of the episode. The default is none.

    Raises:
        ArgumentError: A number or a mark is wrong.

    Example:
        >>> import penstock, tempfile
        >>> recorded = penstock.from_arrays({"rewards": [0.0, 1.0, 2.0]}, lengths=[2, 1])
        >>> folder = tempfile.mkdtemp()
        >>> report = penstock.convert(recorded, f"{folder}/demo")
        >>> data = penstock.open(f"{folder}/demo")
        >>> with Curation.edit(f"{folder}/demo.curation.json", data.source) as curation:
        ...     curation[0] = EpisodeMarks(tags={"slow"}, rating=2, excluded=True)
        ...     curation[1] = EpisodeMarks(tags={"good"}, rating=5)
        >>> curated = penstock.open(f"{folder}/demo", curation=f"{folder}/demo.curation.json")
        >>> curated.table()["id"].tolist(), len(curated.filter("'good' in tags and rating >= 4"))
        ([1], 1)
    """

    def __init__(self, fingerprint: str, episodes: int, marks: Mapping[int, EpisodeMarks] | None = None) -> None:
        if not is_count(episodes):
            raise ArgumentError(f"expected a number of episodes, got {shortened(episodes)}")
        self.fingerprint = fingerprint
        self.episodes = episodes
        self._marks: dict[int, EpisodeMarks] = {}
        for episode, each in (marks or {}).items():
            self[episode] = each

    @classmethod
    def of(cls, source: Source) -> Curation:
        """Return a curation of a dataset, without marks.

        Args:
            source: The dataset, such as `data.source`.
        """
        stored = _stored(source)
        return cls(stored.fingerprint, len(stored))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Curation:
        """Read a file.

        Args:
            path: The file.

        Raises:
            FileNotFoundError: There is no such file.
            FormatError: The file is no curation.
        """
        try:
            stated: object = json.loads(Path(path).read_bytes())
        except (ValueError, RecursionError) as error:
            raise FormatError(f"expected a curation in JSON: {error}", path=path) from error
        try:
            return cls.from_json(stated)
        except ArgumentError as error:
            raise FormatError(str(error), path=path) from error

    @classmethod
    def from_json(cls, stated: object) -> Curation:
        """Return the curation of plain data, as a file has them.

        Args:
            stated: Plain data of any origin.

        Raises:
            ArgumentError: The data are no curation.
        """
        if not is_dict(stated) or stated.get("penstock") != "curation":
            raise ArgumentError('expected a curation, an object with "penstock": "curation"')
        if stated.get("version") != VERSION or isinstance(stated.get("version"), bool):
            raise ArgumentError(f"expected version {VERSION} of curations, got {shortened(stated.get('version'))}")
        marks = stated.get("marks")
        if not is_dict(marks):
            raise ArgumentError(f"expected marks by episode, got {shortened(marks)}")
        fingerprint: object = stated.get("fingerprint")
        if not isinstance(fingerprint, str):
            raise ArgumentError(f"expected the fingerprint of a dataset, got {shortened(fingerprint)}")
        curation = cls(fingerprint, stated.get("episodes", -1))
        for number, each in marks.items():
            if not (number.isascii() and number.isdecimal() and len(number) < 19 and str(int(number)) == number):
                raise ArgumentError(f"expected the number of an episode, got {shortened(number)}")
            try:
                curation[int(number)] = EpisodeMarks.from_json(each)
            except ArgumentError as error:
                raise ArgumentError(f"episode {number}: {error}") from error
        return curation

    @classmethod
    @contextmanager
    def edit(cls, path: str | os.PathLike[str], source: Source) -> Generator[Curation]:
        """Change a file, which is saved when the block ends; if it raises, nothing changes.

        Waits while another process changes the file. A missing file is made.

        Args:
            path: The file. A link is followed.
            source: The dataset, such as `data.source`. After episodes were appended, the file is for all of them.

        Raises:
            FormatError: The file is no curation.
            StateError: The file is for another dataset.
            OSError: The file cannot be written.
        """
        place = os.path.realpath(path)
        if not os.path.exists(place):
            with suppress(FileExistsError):  # another process was faster
                cls.of(source).save(place, overwrite=False)
        with locked(place, os.O_RDWR, wait=True):  # on the file itself, which only the holder of the lock replaces
            curation = cls.read(place)
            curation.require(source)
            stored = _stored(source)
            curation.fingerprint, curation.episodes = stored.fingerprint, len(stored)
            yield curation
            curation.save(place)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write a file, at once as a whole. `edit` also keeps the changes of others.

        Args:
            path: The file.
            overwrite: Whether an existing file is replaced. The default is True.

        Raises:
            FileExistsError: The file exists, and `overwrite` is False.
            OSError: The file cannot be written.
        """
        marks = {str(episode): each.to_json() for episode, each in self.marks()}
        stated = {
            "penstock": "curation",
            "version": VERSION,
            "fingerprint": self.fingerprint,
            "episodes": self.episodes,
            "marks": marks,
        }
        write_atomic(path, json.dumps(stated, indent=1).encode() + b"\n", durable="file", overwrite=overwrite)

    def __getitem__(self, episode: int) -> EpisodeMarks:
        return self._marks.get(self._number(episode), EpisodeMarks())

    def __setitem__(self, episode: int, marks: EpisodeMarks) -> None:
        number = self._number(episode)
        if marks == EpisodeMarks():
            self._marks.pop(number, None)
        else:
            self._marks[number] = marks

    def __repr__(self) -> str:
        return f"Curation({len(self._marks):,} of {counted(self.episodes, 'episode')} marked)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Curation):
            return NotImplemented
        mine, theirs = ((each.fingerprint, each.episodes, each._marks) for each in (self, other))
        return mine == theirs

    __hash__ = None  # pyright: ignore[reportAssignmentType] - it changes

    def _number(self, episode: int) -> int:
        if not is_integer(episode) or isinstance(episode, bool) or not 0 <= episode < self.episodes:
            raise ArgumentError(f"expected an episode within 0:{self.episodes}, got {episode!r}")
        return int(episode)

    def marks(self) -> Iterator[tuple[int, EpisodeMarks]]:
        """Return the number and marks of each marked episode, by number."""
        return iter(sorted(self._marks.items(), key=lambda item: item[0]))

    def copy(self) -> Curation:
        """Return a curation with the same marks, which changes independently."""
        return Curation(self.fingerprint, self.episodes, self._marks)

    def digest(self, episodes: Iterable[int]) -> str:
        """Return a digest of all marks but notes, which change nothing that is read.

        Args:
            episodes: Numbers of the episodes that count.
        """
        kept = set(episodes)
        stated = [(e, replace(marks, note="").to_json()) for e, marks in self.marks() if e in kept]
        return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()

    def require(self, source: Source) -> None:
        """Check that the marks are for the first episodes of a dataset.

        Args:
            source: The dataset, such as `data.source`.

        Raises:
            StateError: It is another dataset, it changed, or it has fewer episodes or steps.
        """
        stored = _stored(source)
        expected = f"expected the dataset of {counted(self.episodes, 'episode')} that the curation was made for"
        if len(stored) < self.episodes:
            raise StateError(f"{expected}, got {len(stored):,}; episodes were removed, or it is another dataset")
        if stored.fingerprint_of(self.episodes) != self.fingerprint:
            raise StateError(
                f"{expected}, got one whose first episodes are others or are unknown; its numbers of episodes "
                "would mean other episodes. Open it with the same format and options, or start a new curation"
            )
        for episode, marks in self.marks():
            first, end = stored.episode_rows("step", episode)
            if marks.excluded_spans and marks.excluded_spans[-1][1] >= end - first:
                span = marks.excluded_spans[-1]
                raise StateError(f"expected spans within the {end - first} steps of episode {episode}, got {span}")

    @staticmethod
    def merge(curations: Sequence[Curation], source: Source | None = None) -> tuple[Curation, tuple[MarkConflict, ...]]:
        """Combine the curations of several people.

        An episode has the tags and spans of all, also the excluded spans, the different notes one below the other, and
        the rating and exclusion of the last curation that sets them.

        Args:
            curations: In order; the last one wins.
            source: The dataset. Needed only if episodes were appended between the curations. The default is None.

        Returns:
            A new curation, and the ratings and exclusions that differed.

        Raises:
            ArgumentError: There are none.
            StateError: They are for different datasets, or for different numbers of episodes without `source`.

        Example:
            >>> first, second = Curation("f", 3), Curation("f", 3)
            >>> first[1] = EpisodeMarks(tags={"good"}, rating=4)
            >>> second[1] = EpisodeMarks(tags={"fast"}, rating=2)
            >>> merged, conflicts = Curation.merge([first, second])
            >>> sorted(merged[1].tags), str(conflicts[0])
            (['fast', 'good'], 'episode 1: rating is 4, then 2; 2 is used')
        """
        if not curations:
            raise ArgumentError("expected curations to merge, got none")
        if source is None:
            if len({(each.fingerprint, each.episodes) for each in curations}) > 1:
                raise StateError("expected curations of one dataset, got different ones; pass the dataset as source=")
            merged = Curation(curations[0].fingerprint, curations[0].episodes)
        else:
            for each in curations:
                each.require(source)
            merged = Curation.of(source)
        conflicts: list[MarkConflict] = []
        for number in sorted({e for each in curations for e, _ in each.marks()}):
            merged[number], differing = _merged(number, [each[number] for each in curations if number < each.episodes])
            conflicts += differing
        return merged, tuple(conflicts)

    @classmethod
    def merge_files(
        cls,
        files: Sequence[str | os.PathLike[str]],
        out: str | os.PathLike[str],
        source: Source | None = None,
        *,
        overwrite: bool = False,
    ) -> tuple[Curation, tuple[MarkConflict, ...]]:
        """Merge files into one, as `merge` does.

        `out` may be one of the files. While another process changes it, this waits, so no mark is lost.

        Args:
            files: In order; the last one wins.
            out: The merged file.
            source: The dataset, as for `merge`. The default is None.
            overwrite: Whether an existing file is replaced. The default is False.

        Returns:
            The curation that was written, and the ratings and exclusions that differed.

        Raises:
            ArgumentError: There are no files.
            StateError: They are for different datasets, or for different numbers of episodes without `source`.
            FormatError: A file is no curation.
            FileExistsError: `out` exists, and `overwrite` is False.
            OSError: A file cannot be read or written.

        Example:
            >>> import tempfile
            >>> folder = Path(tempfile.mkdtemp())
            >>> for name in ("ann", "ben"):
            ...     each = Curation("f", 3)
            ...     each[1] = EpisodeMarks(tags={name})
            ...     each.save(folder / name)
            >>> merged, conflicts = Curation.merge_files([folder / "ann", folder / "ben"], folder / "both")
            >>> sorted(Curation.read(folder / "both")[1].tags), conflicts
            (['ann', 'ben'], ())
        """
        place = os.path.realpath(out)
        with ExitStack() as lock:
            if overwrite and os.path.exists(place):
                lock.enter_context(locked(place, os.O_RDWR, wait=True))
            merged, conflicts = cls.merge([cls.read(file) for file in files], source)
            merged.save(place, overwrite=overwrite)
        return merged, conflicts


def default_path(dataset: str | os.PathLike[str]) -> Path:
    """Return the path of the curation next to a dataset."""
    path = Path(os.path.abspath(dataset))
    return path.with_name(path.name + SUFFIX)


def _merged(episode: int, each: Sequence[EpisodeMarks]) -> tuple[EpisodeMarks, list[MarkConflict]]:
    """The marks of one episode from all curations, in order."""
    conflicts: list[MarkConflict] = []
    ratings = tuple(marks.rating for marks in each if marks.rating is not None)
    excluded = tuple(marks.excluded for marks in each if marks.excluded is not None)
    if len(set(ratings)) > 1:
        conflicts.append(MarkConflict(episode, "rating", ratings))
    if len(set(excluded)) > 1:
        conflicts.append(MarkConflict(episode, "excluded", excluded))
    marks = EpisodeMarks(
        {tag for marks in each for tag in marks.tags},
        ratings[-1] if ratings else None,
        excluded[-1] if excluded else None,
        "\n".join(dict.fromkeys(marks.note for marks in each if marks.note))[:LONGEST_NOTE],
        [span for marks in each for span in marks.spans],
        [span for marks in each for span in marks.excluded_spans],
    )
    return marks, conflicts


def _stored(source: Source) -> Source:
    """The source that was opened, below columns that were added."""
    while isinstance(source, DerivedSource):
        source = source.base
    return source
