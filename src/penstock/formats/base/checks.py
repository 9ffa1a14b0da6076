"""What the checks of several formats share: the metadata of all episodes, with the error of each that is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.errors import FormatError
from penstock.formats.base.source import Source

AT_ONCE = 1024  # episodes of one read


def each_metadata(source: Source) -> Iterator[tuple[int, dict[str, Any] | FormatError]]:
    """Yield the number of each episode, and its metadata or the error that reading them is.

    Episodes are read by ranges. A range that is an error is halved until the damaged episodes are alone.
    """
    count = len(source)
    ranges = [(first, min(first + AT_ONCE, count)) for first in range(0, count, AT_ONCE)][::-1]
    while ranges:
        first, last = ranges.pop()
        try:
            entries: list[dict[str, Any]] = source.episode_metadata(range(first, last))
        except FormatError as error:
            if last - first == 1:
                yield first, error
            else:
                middle = (first + last) // 2
                ranges += [(middle, last), (first, middle)]
        else:
            yield from zip(range(first, last), entries, strict=True)
