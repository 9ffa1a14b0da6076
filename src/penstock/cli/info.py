"""`penstock info`: show the contents of a dataset."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from penstock.cli.catalogue import catalogue
from penstock.cli.catalogue import render as render_catalogue
from penstock.cli.options import From, In, Opening, Storage, opened, pairs
from penstock.cli.show import Fitted, Json, histogram_bars, plain, print_json, size, spread
from penstock.core.arrays import FloatArray, IntArray
from penstock.core.damage import collected_damage
from penstock.core.narrowing import is_mapping
from penstock.core.text import counted
from penstock.data.located import LocatedData, locate
from penstock.errors import PenstockError, UnknownFormatError
from penstock.formats.base.format import named, recognise
from penstock.formats.base.returns import returns_of
from penstock.formats.base.source import Source

METADATA_WIDTH = 300
LEFT_OUT_ROWS = 12
BOUNDS = 6  # elements of a box whose bounds are listed


def info(
    location: In,
    source: From = None,
    opening: Opening = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Show a dataset's columns, spaces, episodes, returns and metadata.

    Reads the index and the rewards, no other values. Exit code 1 if there are no episodes. Of a folder of datasets,
    shows a catalogue: format, episodes, steps, size and columns of each.

    Example: penstock info ./cartpole --json
    """
    if source is None and (rows := _catalogue(location)):
        if as_json:
            print_json({"path": location, "datasets": rows})
        else:
            Console().print(render_catalogue(rows))
        return
    stores = pairs(storage, "--storage")
    try:
        with collected_damage():  # the account has a table, which also says what is unfinished
            located, dataset = opened(location, opening, source, stores, allow_unfinished=True)
    except UnknownFormatError:
        if as_json or not Path(location).exists():
            raise
        from penstock.cli.sketch import show_unknown  # heavy: all that reads files of any kind

        if (advice := show_unknown(location)) is None:
            raise
        raise UnknownFormatError(f"expected a dataset, got files that no format recognises; {advice}") from None
    with dataset:
        lengths, returns = np.diff(dataset.offsets), returns_of(dataset)
        summary = summarise(located, dataset, lengths, returns)
    if as_json:
        print_json(summary)
    else:
        Console().print(render(summary, lengths, returns))
    if not len(lengths):
        Console(stderr=True, soft_wrap=True).print(Text(_nothing(location, located), style="red"))
        raise typer.Exit(1)


def _catalogue(location: str) -> list[dict[str, Any]]:
    """The datasets in a folder that is no dataset itself; none for other locations."""
    folder = Path(location)
    if not folder.is_dir():
        return []
    try:
        recognise(folder)
    except UnknownFormatError:
        return catalogue(folder)
    return []


def _nothing(location: str, located: LocatedData) -> str:
    """Return the message for a dataset without episodes, which may have been opened as the wrong format."""
    try:
        other = locate(location).format
    except (PenstockError, OSError):
        return f"{located} has no episodes that the format {located.format!r} finds, and no format recognises it"
    if other != located.format:
        return f"{located} has no episodes as {located.format!r}; it looks like {other!r}: leave out --from"
    return f"{located} has no episodes"


def summarise(located: LocatedData, source: Source, lengths: IntArray, returns: FloatArray | None) -> dict[str, Any]:
    """Return all output of `info` as plain data."""
    spec = source.spec.to_json()
    return {
        "path": str(located),
        "format": located.format,
        "layout": layout(located, source),
        "episodes": len(source),
        "steps": source.steps,
        "bytes": _bytes_of(located, source),
        "lengths": spread(lengths),
        "returns": None if returns is None else spread(returns),
        "observation_space": spec["observation_space"],
        "action_space": spec["action_space"],
        "columns": spec["fields"],
        "account": source.account.to_json(),
        "metadata": plain(source.metadata),
    }


def layout(located: LocatedData, source: Source) -> str | None:
    """Return the dataset's layout or kind within its format; None for a format with only one.

    For Minari, this is the back-end. For demonstrations, it is the tool that made them. For several datasets, it is
    their number.
    """
    if len(located.datasets) > 1:
        return f"{len(located.datasets)} joined"
    if (kind := named(located.format).kind_name(located.paths[0])) is not None:
        return kind
    source_layout = getattr(source, "layout", None)
    backend = source.metadata.get("data_format") if located.format == "minari" else None
    return " ".join(part for part in (backend, source_layout) if isinstance(part, str)) or None


def _bytes_of(located: LocatedData, source: Source) -> int:
    """Return the bytes of a dataset. A part such as `folder:train` has the bytes of its folder."""
    place = source.location
    if isinstance(place, Path) and not all(path.exists() for path in located.paths):
        return bytes_at(place)
    return sum(map(bytes_at, located.paths))


def bytes_at(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return sum(file.stat().st_size for file in files)


def render(summary: Mapping[str, Any], lengths: IntArray, returns: FloatArray | None) -> RenderableType:
    """Return the summary as text for people."""
    parts: list[RenderableType] = [_head(summary, lengths, returns), Text(), _columns(summary["columns"])]
    if summary["account"]["left_out"]:
        parts += [Text(), _left_out(summary["account"]["left_out"])]
    if summary["metadata"]:
        parts += [Text(), _metadata(summary["metadata"])]
    title = Text(Path(summary["path"]).name or summary["path"], style="bold")
    return Panel(Group(*parts), title=title, title_align="left", border_style="cyan", expand=False)


def _head(summary: Mapping[str, Any], lengths: IntArray, returns: FloatArray | None) -> RenderableType:
    grid = _pairs()
    grid.add_row("path", Text(summary["path"]))
    grid.add_row("format", Text(_format(summary)))
    grid.add_row("episodes", Text(f"{summary['episodes']:,} of {counted(summary['steps'], 'step')}"))
    for name, values in (("lengths", lengths), ("returns", returns)):
        if values is not None and len(values):
            grid.add_row(name, _spread_text(summary[name], values))
    if ends := summary["account"]["ends"]:
        grid.add_row("episode ends", Text(ends))
    for name in ("observation", "action"):
        if (space := summary[f"{name}_space"]) is not None:
            grid.add_row(f"{name}s from", Text(space_text(space)))
    return Fitted(grid)


def _format(summary: Mapping[str, Any]) -> str:
    inside = f" ({summary['layout']})" if summary["layout"] else ""
    return f"{summary['format']}{inside}, {size(summary['bytes'])}"


def _spread_text(stats: Mapping[str, float], values: npt.ArrayLike) -> Text:
    numbers = "  ".join(f"{name} {value:,.6g}" for name, value in stats.items())
    return Text.assemble(numbers, "  ", (histogram_bars(values), "cyan"))


def space_text(space: Mapping[str, Any]) -> str:
    """Return one line for the JSON of a space."""
    kind = space["type"]
    if kind == "Dict":
        inside = ", ".join(f"{key}: {space_text(inner)}" for key, inner in space["subspaces"].items())
    elif kind == "Tuple":
        inside = ", ".join(space_text(inner) for inner in space["subspaces"])
    elif kind == "Box":
        inside = f"{space['dtype']}{space['shape']} in {_bounds(space)}"
    else:
        inside = str(space.get("n", space.get("nvec", f"{space.get('max_length')} characters")))
    return f"{kind}({inside})"


def _bounds(space: Mapping[str, Any]) -> str:
    """The bounds of a box: one pair if all elements have it, all pairs of a few elements, otherwise the widest."""
    low, high = (np.asarray(space[end], np.float64).ravel() for end in ("low", "high"))
    if not low.size:
        return "an empty shape"
    if (low == low[0]).all() and (high == high[0]).all():
        return f"{low[0]:.4g} .. {high[0]:.4g}"
    if low.size <= BOUNDS:
        return ", ".join(f"{least:.4g} .. {most:.4g}" for least, most in zip(low, high, strict=True))
    return f"{low.min():.4g} .. {high.max():.4g}, which differ by element"


def _columns(fields: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    table = Table(
        Column("column", overflow="fold"),
        "dtype",
        "shape",
        "align",
        "kind",
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    for path, field in fields.items():
        dtype, shape = str(np.dtype(field["dtype"])), "x".join(map(str, field["shape"])) or "-"
        table.add_row(Text(path, style="cyan"), dtype, shape, field["align"], field["kind"])
    return Fitted(table)


def _left_out(entries: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What is not used, or not as one expects. Entries that differ in their names alone are one row."""
    columns = (Column("left out", overflow="fold"), "what", "reason", Column("message", overflow="fold"))
    table = Table(*columns, box=None, header_style="bold", pad_edge=False)
    alike: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for entry in entries:
        message = entry["message"].removesuffix(f", got {entry['where']}")
        alike.setdefault((entry["thing"], entry["reason"], message), []).append(entry)
    for (thing, reason, message), some in islice(alike.items(), LEFT_OUT_ROWS):
        number = sum(entry.get("count", 1) for entry in some)
        more = f" and {number - 1:,} more" if number > 1 else ""
        table.add_row(Text(some[0]["where"] + more, style="yellow"), thing, reason, Text(message))
    if len(alike) > LEFT_OUT_ROWS:
        table.add_row(f"and {len(alike) - LEFT_OUT_ROWS:,} more kinds, which penstock check lists")
    return Fitted(table)


def _metadata(metadata: Mapping[str, Any]) -> RenderableType:
    grid = _pairs()
    for key, value in metadata.items():
        grid.add_row(Text(key), Text(_value_text(value)))
    return Fitted(grid)


def _value_text(value: object) -> str:
    """A value as JSON; of a table that is long, the names of its entries."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > METADATA_WIDTH and is_mapping(value):
        text = f"{counted(len(value), 'value')}, which --json shows: {', '.join(map(str, value))}"
    return text if len(text) <= METADATA_WIDTH else text[:METADATA_WIDTH] + "..."


def _pairs() -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    return grid
