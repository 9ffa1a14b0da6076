"""Episodes, files and rows of a batch, found from its ticket; and tables as text."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.columns import Columns
from penstock.data.plan_picture import shares_of
from penstock.data.planned_rows import planned_rows, source_name, view_of
from penstock.data.planned_samples import PlannedSamples
from penstock.errors import StateError
from penstock.loading.skips import Skips
from penstock.loading.ticket import Ticket
from penstock.plan.outputs import View


def printed(renderable: Any, width: int = 140) -> str:
    """Return the output of rich for an object, without colours."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    console.print(renderable)
    text = console.file
    return text.getvalue().rstrip("\n") if isinstance(text, io.StringIO) else ""


Int = npt.NDArray[np.int64]

LISTED = 1 << 22  # positions of a ticket that are planned at once
SHOWN = 64  # lines of a table that is printed


@dataclass(frozen=True, eq=False)
class Why:
    """Result of `Loader.why`: one line for each range of rows, in the order of the batch. `print` shows it as a table.

    Positions without any real row have no line.

    Args:
        ticket: The batch ticket.
        view: View whose rows are listed.
        table: Columns `position`, `epoch`, `source` and `episode` (numbers), `first_row` and `rows` (in the row space
            of the view), `step` (first row, counted from the start of its episode), `segment` (number of the sequence
            in its pack; 1 without packs), `share` (fraction of all samples that a mix takes from there; 1 without a
            mix), `original` (position that the sample had before `without`), and `skipped` (whether the loader skips
            the position now).
        sources: Names of the sources.
        parts: Names of the parts of a mix that the sources belong to. The default is empty.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"rewards": np.arange(5.0)}, lengths=[2, 3])
        >>> loader = data.steps().loader(batch_size=5)
        >>> loader.why(next(iter(loader)).ticket).table["step"].tolist()
        [0, 1, 0, 1, 2]
    """

    ticket: Ticket
    view: View
    table: Columns
    sources: tuple[str, ...]
    parts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.table.n

    def __str__(self) -> str:
        return printed(self)

    def __rich__(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        title = f"{self.ticket}: positions {self.ticket.position}:{self.ticket.stop}, rows of {self.view.align}"
        table = Table(title=title, title_justify="left")
        shown = [name for name in self.table if name not in self._hidden]
        for name in shown:
            named = name == "source"
            table.add_column(
                name.replace("_", " "),
                justify="left" if named else "right",
                overflow="fold" if named else "ellipsis",
            )
        for i in range(min(len(self), SHOWN)):
            table.add_row(*(Text(self._cell(name, i)) for name in shown))
        if len(self) > SHOWN:
            table.caption = f"and {len(self) - SHOWN} more lines"
        return table

    @cached_property
    def _hidden(self) -> set[str]:
        """Columns without information for this table."""
        plain = {"segment": 1, "share": 1, "skipped": False, "original": self.table["position"]}
        return {name for name, value in plain.items() if np.all(self.table[name] == value)}

    def _cell(self, name: str, i: int) -> str:
        value = self.table[name][i]
        if name == "source":
            part = self.parts[int(value)] if self.parts else ""
            return " ".join(filter(None, [str(value), part, self.sources[int(value)]]))
        if name == "share":
            return f"{value:.4g}"
        return ("yes" if value else "") if name == "skipped" else str(value)


def why(samples: PlannedSamples, ticket: Ticket, skips: Skips, column: str | None = None) -> Why:
    """Return the rows of a batch."""
    return why_at(samples, ticket, _positions(ticket, skips), skips, column)


def why_at(samples: PlannedSamples, ticket: Ticket, positions: Int, skips: Skips, column: str | None) -> Why:
    number = view_of(samples, column)
    view = samples.plan.views[number]
    lines = planned_rows(samples, samples.resolve(positions)[number], number)
    sample = lines.pop("sample")
    del lines["place"]
    epoch = samples.plan.locate(positions)[0]
    original = samples.plan.originals(positions)
    table: dict[str, npt.NDArray[Any]] = {"position": positions[sample], "epoch": epoch[sample], **lines}
    table["original"] = original[sample]
    shares = shares_of(samples.plan, positions)
    table["share"] = np.ones(len(sample)) if shares is None else shares.share[sample, lines["source"]]
    table["skipped"] = skips.covers(positions)[sample]
    names = tuple(source_name(source) for source in samples.sources)
    return Why(ticket, view, Columns(table, len(sample)), names, shares.names if shares else ())


def _positions(ticket: Ticket, skips: Skips) -> Int:
    """The positions of a ticket, without skipped ones if they are too many to list."""
    if ticket.count <= LISTED:
        return np.arange(ticket.position, ticket.stop)
    lo, hi = skips.kept_before(ticket.position), skips.kept_before(ticket.stop)
    if hi - lo > LISTED:
        raise StateError(
            f"expected a ticket of at most {LISTED} samples to list, got {hi - lo} - in {ticket}; ask for a part of "
            f"them by a ticket such as {Ticket(ticket.position, LISTED, ticket.digest)}"
        )
    return skips.positions(np.arange(lo, hi))
