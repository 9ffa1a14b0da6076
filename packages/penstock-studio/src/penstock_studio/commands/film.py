"""`penstock film`: draw an episode as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from penstock.cli.options import From, In, Opening, Storage, opened, pairs
from penstock.cli.show import Json, print_json
from penstock.core.arrays import AnyArray, FloatArray, IntArray
from penstock.core.columns import under
from penstock.core.episode import Episode
from penstock.core.frames import Color, is_picture, pictures
from penstock.core.ragged import Ragged
from penstock.core.spec import Spec
from penstock.errors import DataError
from penstock_studio.commands.strip import COLORS, Curve, Frame, sheet

SHOWN = 4  # numbers of a caption
PANELS = 6  # columns of observations that are drawn as curves


def film(
    location: In,
    episode: Annotated[
        int, typer.Option("--episode", "-e", help="The episode; negative numbers count from the end.")
    ] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="The picture: .png, .jpg, .webp.")] = Path("film.png"),
    column: Annotated[
        str | None, typer.Option("--column", help="The column to draw; by default the first column of pictures.")
    ] = None,
    frames: Annotated[int, typer.Option("--frames", min=1, help="The number of frames, evenly spread.")] = 12,
    every: Annotated[
        int | None, typer.Option("--every", min=1, help="Draw a frame every N steps, instead of --frames.")
    ] = None,
    stack: Annotated[bool, typer.Option("--stack", help="Draw all frames of a frame stack, the newest last.")] = False,
    source: From = None,
    opening: Opening = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Draw an episode: frames with actions and rewards, or curves of observations.

    Needs the extra `images`.

    Example: penstock film ./demos --episode 3 -o strip.png
    """
    located, dataset = opened(location, opening, source, pairs(storage, "--storage"))
    with dataset:
        if not -len(dataset) <= episode < len(dataset):
            raise DataError(f"expected an episode within 0:{len(dataset)}, got {episode}")
        name = _column(dataset.spec, column)
        one = dataset.episode(episode)
        color = dataset.metadata.get("color_space")
        page = draw(
            one, name, title=located.name, color=color if color in ("RGB", "GRAY") else None, count=frames, every=every,
            stack=stack,
        )  # fmt: skip
    _save(page, out)
    about = {"path": str(located), "format": located.format, "episode": one.id, "steps": len(one), "column": name}
    if as_json:
        print_json({**about, "out": str(out), "width": page.width, "height": page.height})
    else:
        text = f"{out}: episode {one.id} of {located}, {len(one)} steps, {name}, {page.width} x {page.height} pixels"
        Console(soft_wrap=True).print(text, highlight=False)


def draw(
    episode: Episode,
    column: str,
    *,
    title: str = "",
    color: Color = None,
    count: int = 12,
    every: int | None = None,
    stack: bool = False,
) -> Any:
    """Return a Pillow image of an episode: a film strip of `column`, or curves if its rows are not pictures."""
    rows = np.asarray(episode.columns[column])
    rewards = _numbers(episode, "rewards")
    total = "" if rewards is None else f"   return {rewards.sum():.6g}"
    heading = f"{title}   episode {episode.id}   {len(episode)} steps{total}"
    values = "   ".join(
        f"{key} {value}" for key, value in episode.metadata.items() if isinstance(value, bool | int | float | str)
    )
    field = episode.spec[column]
    subtitle = f"{column}: {field.dtype} {'x'.join(map(str, field.shape)) or 'scalar'}{'   ' if values else ''}{values}"
    if not is_picture(rows.shape[1:]):
        curves = [_curve(path, np.asarray(episode.columns[path]), len(episode)) for path in _beside(episode, column)]
        curves += _rest(episode, ())
        return sheet(heading, subtitle, (), curves)
    chosen = _chosen(len(rows), count, every)
    shown = pictures(rows[chosen], color)
    if not stack:
        shown = shown[:, -1:]
    cells = [Frame(picture, _caption(episode, t, len(rows))) for picture, t in zip(shown, chosen.tolist(), strict=True)]
    return sheet(heading, subtitle, cells, _rest(episode, tuple(chosen.tolist())))


def _beside(episode: Episode, column: str) -> list[str]:
    """Return the column, and the other columns of observations if it is an observation."""
    others = [p for p in _drawable(episode.spec) if under("observations", p)] if under("observations", column) else []
    return [column, *(p for p in others if p != column and not is_picture(episode.spec[p].shape))][:PANELS]


def _drawable(spec: Spec) -> list[str]:
    return [p for p, f in spec.items() if not f.ragged and f.align != "episode" and f.dtype.kind in "biuf"]


def _column(spec: Spec, asked: str | None) -> str:
    """Return the column to draw."""
    usable = _drawable(spec)
    if asked is not None:
        if asked not in usable:
            raise DataError(f"expected a column of numbers among {usable}, got {asked!r}")
        return asked
    observed = [path for path in usable if under("observations", path)]
    for candidates in (observed, usable):
        for path in candidates:
            if is_picture(spec[path].shape):
                return path
    if not (observed or usable):
        raise DataError(f"expected a column of numbers to draw, got {list(spec)}")
    return (observed or usable)[0]


def _chosen(n: int, count: int, every: int | None) -> IntArray:
    """Return `[k]` rows to show; evenly spread rows include the first and the last."""
    if every is not None:
        return np.arange(0, n, every)
    return np.unique(np.rint(np.linspace(0, n - 1, min(count, n))).astype(np.int64))


def _numbers(episode: Episode, name: str) -> FloatArray | None:
    """A column of one number a step."""
    array = episode.columns.get(name)
    if (
        array is None
        or isinstance(array, Ragged)
        or array.shape[1:] not in ((), (1,))
        or array.dtype.kind not in "biuf"
    ):
        return None
    return array.reshape(len(array)).astype(np.float64)


def _caption(episode: Episode, t: int, rows: int) -> tuple[str, ...]:
    """Return the lines below a frame: step, reward and action; behind the last step, how the episode ended."""
    if t == len(episode) and rows > len(episode):
        ends = [
            name
            for name in ("terminations", "truncations")
            if (f := _numbers(episode, name)) is not None and f[-1:].any()
        ]
        said = " and ".join(name.removesuffix("ions") + "ed" for name in ends) or "end"
        return (f"t = {t}", said)
    said = [f"a {_text(episode, path, t)}" for path in episode.spec if under("actions", path)]
    rewards = _numbers(episode, "rewards")
    return (f"t = {t}" + ("" if rewards is None else f"   r {rewards[t]:+.3g}"), "  ".join(said))


def _text(episode: Episode, path: str, t: int) -> str:
    array = episode.columns[path]
    if isinstance(array, Ragged):
        return array[t : t + 1].strings()[0] if episode.spec[path].kind == "text" else f"{len(array[t])} values"
    values = np.asarray(array[t]).ravel()
    shown = " ".join(f"{value:.3g}" for value in values[:SHOWN].tolist())
    return shown + (" …" if len(values) > SHOWN else "")


def _rest(episode: Episode, marks: tuple[int, ...]) -> list[Curve]:
    """Actions and rewards over the whole episode."""
    curves: list[Curve] = []
    for path, field in episode.spec.items():
        array = episode.columns[path]
        wanted = under("actions", path) or path == "rewards"
        if (
            wanted
            and not isinstance(array, Ragged)
            and field.align == "step"
            and len(array)
            and field.dtype.kind in "biuf"
        ):
            curves.append(_curve(path, np.asarray(array), len(episode), marks, stairs=path != "rewards"))
    return curves


def _curve(name: str, rows: AnyArray, end: int, marks: tuple[int, ...] = (), *, stairs: bool = False) -> Curve:
    """Return curves of the first dimensions of a column, one for each colour."""
    values = rows.reshape(len(rows), -1).astype(np.float64)
    shown = values[:, : len(COLORS)]
    more = "" if shown.shape[1] == values.shape[1] else f" (the first {shown.shape[1]} of {values.shape[1]})"
    names = tuple(str(d) for d in range(shown.shape[1])) if shown.shape[1] > 1 else ()
    return Curve(name + more, np.arange(len(rows)), shown, names, end, stairs, marks)


def _save(page: Any, out: Path) -> None:
    """Save the picture."""
    try:
        page.save(out)
    except ValueError as error:
        raise DataError(f"expected the name of a picture such as strip.png, got {out.name!r}: {error}") from error
