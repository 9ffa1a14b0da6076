"""`EpisodeMarks`: what people say about one episode, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from penstock.core.frozen import set_fields
from penstock.core.narrowing import is_dict, is_integer, is_listed
from penstock.errors import ArgumentError

RATINGS = (1, 2, 3, 4, 5)
LONGEST_TAG = 64  # characters
LONGEST_NOTE = 10_000
MOST_TAGS = 100  # of one episode
MOST_SPANS = 1000  # of one episode
LONGEST_SHOWN = 80  # characters of a value in a message
SPAN_PARTS = 3


@dataclass(frozen=True)
class EpisodeMarks:
    """What people say about one episode.

    Args:
        tags: At most 100 words without spaces and `/`, of at most 64 characters.
        rating: 1 (worst) to 5 (best). The default is None: not rated.
        excluded: Whether datasets leave the episode out. The default is None: nobody decided, and it is kept.
        note: Any text.
        spans: At most 1,000 `(first, last, tag)` for steps of the episode, both included.
        excluded_spans: `(first, last)` steps that datasets leave out, both included. Spans that touch become one.

    Raises:
        ArgumentError: A value is not as described.

    Example:
        >>> marks = EpisodeMarks(tags={"good"}, rating=4, spans=[(3, 9, "grasp")])
        >>> marks.rating, marks.spans
        (4, ((3, 9, 'grasp'),))
    """

    tags: AbstractSet[str] = frozenset()
    rating: int | None = None
    excluded: bool | None = None
    note: str = ""
    spans: Sequence[tuple[int, int, str]] = ()
    excluded_spans: Sequence[tuple[int, int]] = ()

    def __post_init__(self) -> None:
        if isinstance(self.tags, str):
            raise ArgumentError(f"expected a set of tags, got the text {shortened(self.tags)}")
        tags = frozenset(map(_tag, self.tags))
        spans = tuple(sorted(set(map(_span, self.spans))))
        if len(tags) > MOST_TAGS or len(spans) > MOST_SPANS:
            raise ArgumentError(
                f"expected at most {MOST_TAGS} tags and {MOST_SPANS:,} spans of an episode, got {len(tags):,} and "
                f"{len(spans):,}"
            )
        set_fields(
            self,
            tags=tags,
            rating=_rating(self.rating),
            excluded=_excluded(self.excluded),
            note=_note(self.note),
            spans=spans,
            excluded_spans=_joined(map(_steps, self.excluded_spans)),
        )

    def changed(self, before: EpisodeMarks, after: EpisodeMarks) -> EpisodeMarks:
        """Return these marks with the change from `before` to `after`, which another person made meanwhile.

        Marks that the change does not touch stay.

        Args:
            before: The marks that the person saw.
            after: The marks that the person wants.

        Example:
            >>> now = EpisodeMarks(tags={"good"}, rating=4)
            >>> changed = now.changed(EpisodeMarks(rating=2), EpisodeMarks(rating=2, tags={"slow"}))
            >>> sorted(changed.tags), changed.rating
            (['good', 'slow'], 4)
        """
        spans = set(self.spans) - (set(before.spans) - set(after.spans)) | (set(after.spans) - set(before.spans))
        included = _without(before.excluded_spans, after.excluded_spans)
        excluded = _without(after.excluded_spans, before.excluded_spans)
        return EpisodeMarks(
            tags=self.tags - (before.tags - after.tags) | (after.tags - before.tags),
            rating=self.rating if after.rating == before.rating else after.rating,
            excluded=self.excluded if after.excluded == before.excluded else after.excluded,
            note=self.note if after.note == before.note else after.note,
            spans=tuple(spans),
            excluded_spans=[*_without(self.excluded_spans, included), *excluded],
        )

    def to_json(self) -> dict[str, Any]:
        """Return the marks that are set, as plain data."""
        stated = {
            "tags": sorted(self.tags),
            "rating": self.rating,
            "excluded": self.excluded,
            "note": self.note,
            "spans": [list(span) for span in self.spans],
            "excluded_spans": [list(span) for span in self.excluded_spans],
        }
        return {name: value for name, value in stated.items() if value is not None and value not in ("", [])}

    @classmethod
    def from_json(cls, stated: object) -> EpisodeMarks:
        """Return the marks of `to_json`.

        Args:
            stated: Plain data of any origin.

        Raises:
            ArgumentError: The data are not marks.
        """
        names = ("tags", "rating", "excluded", "note", "spans", "excluded_spans")
        if not is_dict(stated) or not set(stated) <= set(names):
            raise ArgumentError(f"expected an object with some of {list(names)}, got {shortened(stated)}")
        given: dict[str, Any] = dict(stated)
        for name in ("tags", "spans", "excluded_spans"):
            if name in given and not is_listed(given[name]):
                raise ArgumentError(f"expected {name} to be a list, got {shortened(given[name])}")
        return cls(**given)


def is_count(value: object) -> bool:
    """Return whether a value is an integer of 0 or more that JSON keeps."""
    return bool(is_integer(value) and not isinstance(value, bool) and 0 <= value < 2**53)


def shortened(value: object) -> str:
    """Return the `repr` of a value, cut for messages."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else text[: LONGEST_SHOWN - 3] + "..."


def _rating(rating: Any) -> int | None:
    if rating is None:
        return None
    if not is_count(rating) or rating not in RATINGS:
        raise ArgumentError(f"expected a rating of 1 to 5, got {shortened(rating)}")
    return int(rating)


def _excluded(excluded: object) -> bool | None:
    if excluded is not None and not isinstance(excluded, bool):
        raise ArgumentError(f"expected excluded to be True, False or None, got {shortened(excluded)}")
    return excluded


def _note(note: object) -> str:
    if not isinstance(note, str) or len(note) > LONGEST_NOTE or any("\ud800" <= char < "\ue000" for char in note):
        raise ArgumentError(f"expected a note of at most {LONGEST_NOTE:,} characters of text, got {shortened(note)}")
    return note


def _tag(tag: object) -> str:
    if not (isinstance(tag, str) and 0 < len(tag) <= LONGEST_TAG and tag.isprintable() and not set(tag) & set(" /")):
        raise ArgumentError(
            f"expected a tag to be a word of 1 to {LONGEST_TAG} characters without spaces and '/', got {shortened(tag)}"
        )
    return tag


def _span(span: Any) -> tuple[int, int, str]:
    if not is_listed(span) or len(span) != SPAN_PARTS:
        raise ArgumentError(f"expected a span [first step, last step, tag], got {shortened(span)}")
    return *_steps(span[:2]), _tag(span[2])


def _steps(span: Any) -> tuple[int, int]:
    if not is_listed(span) or len(span) != 2 or not (is_count(span[0]) and is_count(span[1])):
        raise ArgumentError(f"expected a span [first step, last step], got {shortened(span)}")
    if span[1] < span[0]:
        raise ArgumentError(f"expected a span to end at or after its first step, got {shortened(span)}")
    return int(span[0]), int(span[1])


def _joined(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The spans in order, with spans that touch as one."""
    ranges: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        touches = bool(ranges) and first <= ranges[-1][1] + 1
        before = ranges.pop() if touches else (first, last)
        ranges.append((before[0], max(before[1], last)))
    return tuple(ranges)


def _without(spans: Iterable[tuple[int, int]], removed: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans without the steps of other spans."""
    left = list(spans)
    for first, last in removed:
        ends = [end for begin, stop in left for end in ((begin, min(stop, first - 1)), (max(begin, last + 1), stop))]
        left = [(begin, stop) for begin, stop in ends if begin <= stop]
    return left
