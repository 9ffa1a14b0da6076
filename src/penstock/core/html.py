"""HTML for notebooks: headings, tables and small pictures, with inline CSS and without scripts.

Colours are inherited, and lines are translucent gray, so that a page looks right in the light and the dark theme of
Jupyter, VS Code and Colab. All text is escaped, so data cannot add elements.
"""

from __future__ import annotations

import base64
import html
import importlib
import importlib.util
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.core.frames import is_picture, pictures
from penstock.core.ragged import Array, Ragged

ROWS = 6  # rows of a column that are shown: pictures, texts or numbers
LONGEST = 60  # characters of a value
SIDE = 64  # pixels of the longer side of a picture

BOX = "color:inherit;font-family:var(--jp-content-font-family,sans-serif);font-size:13px;line-height:1.5"
LINE = "1px solid rgba(128,128,128,.35)"
FONT = "color:inherit;font-size:inherit;text-align:left;vertical-align:top"
CELL = f"{FONT};padding:2px 12px 2px 0;border:0;border-bottom:{LINE}"
CODE = "font-family:var(--jp-code-font-family,monospace);font-size:12px"
FAINT = "opacity:.65"


@dataclass(frozen=True)
class Markup:
    """HTML that is safe to insert, made by this module."""

    html: str


def page(title: str, subtitle: str, *parts: Markup) -> str:
    """Return a block with a title, a line below it, and parts."""
    inner = "".join(part.html for part in parts)
    head = f'<div><b>{_escaped(title)}</b> <span style="{FAINT}">{_escaped(subtitle)}</span></div>'
    return f'<div style="{BOX}">{head}{inner}</div>'


def document(title: str, body: str) -> str:
    """Return a whole page, in light or dark as the browser is, which loads nothing and runs nothing."""
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    head += '<meta name="viewport" content="width=device-width, initial-scale=1">'
    style = ":root{color-scheme:light dark}body{margin:0 auto;max-width:1200px;padding:16px;overflow-wrap:break-word}"
    style += "table{display:block;overflow-x:auto}"
    top = f"<head>{head}<title>{_escaped(title)}</title><style>{style}</style></head>"
    return f'<!doctype html><html lang="en">{top}<body>{body}</body></html>\n'


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """Return a table. A cell is text, or markup of this module."""
    head = "".join(f'<th style="{CELL};{FAINT};font-weight:normal">{_escaped(name)}</th>' for name in headers)
    lines = ("".join(f'<td style="{CELL};{CODE}">{_cell(cell)}</td>' for cell in row) for row in rows)
    body = "".join(f'<tr style="background:none">{line}</tr>' for line in lines)
    style = "border-collapse:collapse;margin:6px 0;border:0"
    top = f'<thead><tr style="background:none">{head}</tr></thead>'
    return Markup(f'<table style="{style}">{top}<tbody>{body}</tbody></table>')


def steps(texts: Iterable[str]) -> Markup:
    """Return texts with arrows between them."""
    return Markup(f'<div style="{CODE};margin:4px 0">{" &rarr; ".join(map(_escaped, texts))}</div>')


def columns_table(columns: Mapping[str, Array], texts: Iterable[str] = ()) -> Markup:
    """Return a table of columns in memory, with their dtypes, shapes and first rows."""
    known = set(texts)
    rows = [
        (path, str(array.dtype), _shape(array), preview(array, text=path in known)) for path, array in columns.items()
    ]
    return table(("column", "dtype", "shape", "first rows"), rows)


def preview(array: Array, *, text: bool = False) -> object:
    """Return the first rows of a column: pictures if they are images and Pillow is installed, otherwise text."""
    if isinstance(array, Ragged):
        return _shortened(array.preview(ROWS, text=text))
    shown = array[:ROWS]
    if array.dtype == np.uint8 and len(array) and is_picture(array.shape[1:]) and importlib.util.find_spec("PIL"):
        return Markup("".join(image(frames[-1], SIDE) for frames in pictures(np.asarray(shown))))
    with np.printoptions(precision=4, threshold=8, edgeitems=2):
        rows = [f"{row:.4g}" if isinstance(row, np.floating) else " ".join(str(row).split()) for row in shown]
    return _shortened(", ".join([*rows, "..."] if len(array) > ROWS else rows))


def caption(text: str) -> Markup:
    """Return a faint line of text."""
    return Markup(f'<div style="{FAINT};margin:6px 0 2px">{_escaped(text)}</div>')


def image(frame: AnyArray, side: int) -> str:
    """Return a picture as a PNG in the page itself. Needs Pillow."""
    pillow: Any = importlib.import_module("PIL.Image")
    small = pillow.fromarray(frame)
    small.thumbnail((side, side))
    file = io.BytesIO()
    small.save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode("ascii")
    style = f"display:inline;height:{side}px;margin:2px 4px 2px 0;image-rendering:pixelated"
    return f'<img alt="" style="{style}" src="data:image/png;base64,{data}">'


def _shape(array: Array) -> str:
    return "x".join(map(str, array.shape)) + (" ragged" if isinstance(array, Ragged) else "")


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _cell(cell: object) -> str:
    return cell.html if isinstance(cell, Markup) else _escaped(str(cell))


def _escaped(text: str) -> str:
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))
