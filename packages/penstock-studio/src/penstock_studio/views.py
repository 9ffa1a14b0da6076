"""`DomainView`: how data of one domain are drawn, on the page of an episode and in recordings of Rerun.

A distribution offers a view as an entry point of the group `penstock.views`, which names a `ViewKind`. Its folder has
`view.js`, which exports `panel(api, number, pick)`, and `view.css`; the page loads both. `view.js` gets what
`DomainView.contents` and `DomainView.array` return from `${api}/view/${number}` and `${api}/view/${number}/array`.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.core.arrays import AnyArray
from penstock.core.spec import Field
from penstock.data.dataset import EpisodeDataset
from penstock.errors import ArgumentError, DataError, suggestion


class RerunTarget(NamedTuple):
    """The tools to write a recording of Rerun: its module, the stream, and a function that sends rows of a path:
    `send(path, first, last, columns)`, first and last as steps.
    """

    rerun: Any
    stream: Any
    send: Callable[[str, int, int, Any], None]


class DomainView(Protocol):
    """Draws the episodes of one dataset. Threads call it."""

    rate: float | None
    """Steps a second, where the domain says it; None: as for other data."""

    def contents(self, number: int) -> Mapping[str, Any]:
        """Values of an episode of the source for the script, as JSON has them."""
        ...

    def array(self, number: int) -> AnyArray:
        """Numbers of an episode that are too many for JSON, as float32; `[0]` if there are none."""
        ...

    def is_curve(self, field: Field) -> bool:
        """Whether a column of numbers says something as a curve."""
        ...

    def record(self, recording: RerunTarget, number: int) -> None:
        """Write an episode to a recording of Rerun."""
        ...


class ViewKind(Protocol):
    """Makes the views of one domain."""

    name: str
    options: tuple[str, ...]
    """Names of the options of `of`."""
    folder: Path
    """Where `view.js` and `view.css` are."""

    def of(self, data: EpisodeDataset, **options: str) -> DomainView | None:
        """The view of a dataset, or None for data of other domains."""
        ...


@cache
def view_kinds() -> dict[str, ViewKind]:
    """The kinds of views that installed distributions offer, by name."""
    kinds: dict[str, ViewKind] = {}
    for point in importlib.metadata.entry_points(group="penstock.views"):
        try:
            kinds[point.name] = point.load()
        except (ImportError, AttributeError) as error:
            raise DataError(f"the view {point.name!r} ({point.value}) cannot be imported: {error}") from error
    return kinds


def check_options(options: Mapping[str, str], views: Iterable[str]) -> None:
    """Raise `ArgumentError` for options that none of these views has, by their names."""
    drawn = set(views)
    known = {name: each for each, kind in view_kinds().items() for name in kind.options}
    for name in options:
        if name not in known:
            raise ArgumentError(
                f"expected options of views among {sorted(known)}, got {name!r}{suggestion(name, known)}"
            )
        if known[name] not in drawn:
            raise ArgumentError(f"expected data of the view {known[name]!r} for its option {name!r}, got none")


def view_of(data: EpisodeDataset, options: Mapping[str, str]) -> tuple[str, DomainView | None]:
    """The name of the view of a dataset, and the view; an empty name and None for data that have none.

    A view gets the options that it knows.
    """
    for name, kind in view_kinds().items():
        view = kind.of(data, **{each: options[each] for each in kind.options if each in options})
        if view is not None:
            return name, view
    return "", None
