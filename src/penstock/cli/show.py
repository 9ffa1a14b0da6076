"""Output that the commands share: JSON for machines, bars and sizes for people."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from penstock.core.bins import equal_bins
from penstock.core.narrowing import is_array, is_mapping, is_scalar

BARS = "▁▂▃▄▅▆▇█"

Json = Annotated[bool, typer.Option("--json", help="Print JSON only, for machines.")]


def print_json(data: object) -> None:
    """Print `data` as JSON on standard output. `plain` converts values that JSON does not have."""
    typer.echo(json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """Convert `value` to JSON types: NumPy to Python, infinity and NaN to null, unknown objects to text."""
    if is_array(value) or is_scalar(value):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if is_mapping(value):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return [plain(inner) for inner in cast("Iterable[Any]", value)]
    return str(value)


def histogram_bars(values: npt.ArrayLike, bins: int = 20) -> str:
    """Draw how many of `values` are in each of `bins` equal ranges, a space for none; NaN and infinity are left out."""
    numbers = np.asarray(values, np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if len(numbers) == 0:
        return ""
    counts, _ = equal_bins(numbers, bins, float(numbers.min()), float(numbers.max()))
    tallest = max(int(counts.max()), 1)
    return "".join(BARS[-(-int(n) * len(BARS) // tallest) - 1] if n else " " for n in counts)


def size(n: float) -> str:
    """Format bytes with a unit that leaves at most four digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if n < 1000:
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1000
    return f"{n:.1f} TB"


def spread(values: npt.ArrayLike) -> dict[str, float] | None:
    """Return the least, mean and greatest of numbers, infinite where the sum overflows; None if there are none."""
    numbers = np.asarray(values, np.float64)
    if len(numbers) == 0:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return {"min": float(numbers.min()), "mean": float(numbers.mean()), "max": float(numbers.max())}


FOLDED = 20  # columns of the terminal that a table column with overflow="fold" needs at least
INDENT = 2


@dataclass(frozen=True)
class Fitted:
    """A table for terminals of any width.

    On a wide terminal, this is the table. On a terminal that would cut words off, each row becomes a block: the first
    cell is its heading, and the other cells are `header: value` in the lines below. No text is lost.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield self._shown(console, options)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._shown(console, options))

    def _shown(self, console: Console, options: ConsoleOptions) -> RenderableType:
        """The table if the longest words of all columns fit side by side, and otherwise the blocks."""
        gap = 3 if self.table.box else 2
        needed = 1
        for column in self.table.columns:
            widths = _widths(column, console, options)
            if widths.minimum == widths.maximum:
                column.no_wrap = True  # a table shrinks its widest columns first, also columns of one word
            needed += widths.minimum + gap
        return self.table if needed <= options.max_width else Group(*self._blocks())

    def _blocks(self) -> Iterator[RenderableType]:
        if self.table.title:
            yield _text(self.table.title, "bold")
        columns = [list(column.cells) for column in self.table.columns]
        for row in zip(*columns, strict=True):
            yield _text(row[0], "bold")
            named = zip(self.table.columns[1:], row[1:], strict=True)
            fields = [_field(column.header, cell) for column, cell in named if _text(cell).plain]
            if fields:
                yield Padding(Text(", ").join(fields), (0, 0, 0, INDENT))
        if self.table.caption:
            yield _text(self.table.caption)


def _widths(column: Column, console: Console, options: ConsoleOptions) -> Measurement:
    """Width of the longest word and of the longest line of a column, in a terminal without an end."""
    endless = options.update(max_width=1 << 20)
    cells = [Measurement.get(console, endless, cell) for cell in (column.header, *column.cells)]
    widest, word = max(cell.maximum for cell in cells), max(cell.minimum for cell in cells)
    if column.overflow == "fold":
        return Measurement(min(word, FOLDED), widest)
    return Measurement(widest if column.no_wrap else word, widest)


def _field(header: RenderableType, cell: RenderableType) -> Text:
    name = _text(header, "dim")
    return Text.assemble(name, ": ", _text(cell)) if name.plain else _text(cell)


def _text(cell: RenderableType, style: str = "") -> Text:
    """A cell as text. Cells of our tables are text or have markup."""
    text = cell.copy() if isinstance(cell, Text) else Text.from_markup(str(cell))
    text.stylize_before(style)
    return text
