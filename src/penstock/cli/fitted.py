"""Tables that fit the terminal: as a table where it is wide enough, otherwise one block of lines for each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

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
