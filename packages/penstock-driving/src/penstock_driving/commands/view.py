"""`penstock view`: draw a scene of a driving log as pictures, or as a film."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from penstock.cli.options import From, In, Opening, Storage, opened, pairs
from penstock.cli.show import Json, print_json
from penstock.errors import DataError, require
from penstock_driving.commands.scene import LEGEND, LIGHTS, PREDICTED, Drive, page, road_of
from penstock_driving.formats.l5kit.source import DrivingSource
from penstock_driving.logs import scene_logs
from penstock_driving.tables import read_pred_csv

SHEET, ALONE = 320, 720  # pixels of a picture among others, and of one alone
COUNT = 8  # pictures of a sheet
COLORS = 128  # of an animation
FRAME_SECONDS = 0.1


def view(
    location: In,
    scene: Annotated[int, typer.Option("--scene", "-s", help="The scene; negative numbers count from the end.")] = 0,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="A picture (.png, .jpg, .webp), or a film (.gif, .mp4).")
    ] = Path("scene.png"),
    frame: Annotated[int | None, typer.Option("--frame", help="Draw only this frame, instead of a sheet.")] = None,
    every: Annotated[
        int | None,
        typer.Option(
            "--every", min=1, help="Draw every N-th frame; by default eight frames of a sheet, all of a film."
        ),
    ] = None,
    semantic_map: Annotated[Path | None, typer.Option("--map", help="The map file, semantic_map.pb.")] = None,
    meta: Annotated[Path | None, typer.Option("--meta", help="The map's position in the world, meta.json.")] = None,
    predictions: Annotated[
        Path | None, typer.Option("--predictions", help="Predicted positions, a CSV file in L5Kit's format.")
    ] = None,
    size: Annotated[
        int | None, typer.Option("--size", min=64, max=4096, help="Width and height of a picture, in pixels.")
    ] = None,
    meters: Annotated[float, typer.Option("--meters", min=1, help="Width of the drawn area, in metres.")] = 100.0,
    source: From = None,
    opening: Opening = None,
    storage: Storage = None,
    as_json: Json = False,
) -> None:
    """Draw a scene of a driving log from above: pictures, or a film.

    Shows the ego and its path, agents by type and their future positions; with a map, also lanes and traffic lights.

    Needs the extra `images`, and `video` for .mp4. To draw other datasets, use `penstock film`.

    Example: penstock view drive.zarr --scene 3 -o scene.gif
    """
    predicted = None if predictions is None else read_pred_csv(predictions)
    located, dataset = opened(location, opening, source, pairs(storage, "--storage"))
    with dataset:
        if not isinstance(dataset, DrivingSource):
            raise DataError(
                f"expected a driving log, got {located.format} at {located}; draw it with: penstock film {located}"
            )
        one, number = scene_logs(dataset, scene), scene % len(dataset)
    film = out.suffix.lower() in (".gif", ".mp4")
    side = size or (ALONE if film or frame is not None else SHEET)
    drive = Drive(one, road_of(semantic_map, meta), predicted, meters=meters, size=side)
    frames = _frames(drive, frame, every, film)
    _drawn(drive, f"{located.name}   scene {number}", frames, out, film, (every or 1) * FRAME_SECONDS)
    about = {"path": str(located), "scene": number, "frames": frames, "out": str(out), "bytes": out.stat().st_size}
    if as_json:
        print_json(about)
    else:
        text = f"{out}: {len(frames)} of {len(drive)} frames of scene {number} of {located}"
        Console(soft_wrap=True).print(text, highlight=False)


def _drawn(drive: Drive, title: str, frames: list[int], out: Path, film: bool, seconds: float) -> None:
    """Draw and save all frames on one sheet, or as a film with one sheet for each frame."""
    legend = LEGEND if drive.predictions is None else (*LEGEND, ("predicted", PREDICTED))
    if drive.above.road is not None:
        legend = (*legend, *((f"light {name.lower()}", color) for name, color in LIGHTS.items()))
    agents, host = len(drive.above.scene.agents), drive.above.scene.scenes["host"][0]
    subtitle = f"{len(drive)} frames   {drive.above.seconds(len(drive) - 1):.1f} s   {agents} agents   {host}"
    if film:
        _film((page(title, subtitle, [drive.picture(k)], legend) for k in frames), out, seconds)
    else:
        _save(page(title, subtitle, [drive.picture(k) for k in frames], legend), out)


def _frames(drive: Drive, frame: int | None, every: int | None, film: bool) -> list[int]:
    n = len(drive)
    if n == 0:
        raise DataError("expected a scene of one frame or more, got none")
    if frame is not None:
        if film or every is not None:
            raise DataError("expected --frame for a picture alone, got it with --every or the name of a film")
        if not -n <= frame < n:
            raise DataError(f"expected a frame within 0:{n}, got {frame}")
        return [frame % n]
    if film or every is not None:
        return list(range(0, n, every or 1))
    return np.unique(np.rint(np.linspace(0, n - 1, min(COUNT, n))).astype(np.int64)).tolist()


def _save(sheet: Any, out: Path) -> None:
    try:
        sheet.save(out)
    except ValueError as error:
        raise DataError(f"expected the name of a picture or a film such as scene.gif, got {out.name!r}") from error


def _film(sheets: Iterator[Any], out: Path, seconds: float) -> None:
    """Save a film that shows each sheet for `seconds`."""
    if out.suffix.lower() == ".gif":
        first = next(sheets).quantize(COLORS, dither=0)
        rest = (sheet.quantize(palette=first, dither=0) for sheet in sheets)
        first.save(out, save_all=True, append_images=rest, duration=round(seconds * 1000), loop=0, optimize=False)
        return
    av = require("av", "video")
    with av.open(str(out), "w") as container:
        stream: Any = None
        for sheet in sheets:
            if stream is None:
                stream = container.add_stream("libx264", rate=1 / Fraction(seconds).limit_denominator(1000))
                stream.width, stream.height = sheet.width // 2 * 2, sheet.height // 2 * 2
                stream.pix_fmt, stream.options = "yuv420p", {"crf": "20"}
            even = sheet.crop((0, 0, stream.width, stream.height))
            container.mux(stream.encode(av.VideoFrame.from_image(even)))
        container.mux(stream.encode())
