"""Looking for damage: every row is read, intervals and times are compared with the format's rules."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from penstock.containers.zarr.array import ZarrArray
from penstock.containers.zarr.group import CACHE_BYTES
from penstock.core.arrays import BoolArray, FloatArray, IntArray
from penstock.core.cache import Cache
from penstock.core.text import counted
from penstock.errors import FormatError
from penstock.formats.base.findings import Finding
from penstock_driving.formats.l5kit.columns import NESTED
from penstock_driving.formats.l5kit.dtypes import DTYPES, LABELS
from penstock_driving.formats.l5kit.road_map import RoadMap
from penstock_driving.formats.l5kit.source import offsets_in
from penstock_driving.formats.l5kit.tables import Tables, open_tables, stored_rows

_ROWS = 1 << 16
_MOST = 10  # chunks of an array that are reported as damaged
_NAMED = 256  # scenes of a finding
_SLACK = 1e-3
STEP = 0.1  # seconds from a frame to the next
RATE = 0.05  # most relative deviation of it
GAP = 1.5  # times the usual step from which a frame is missing
MAP = "semantic_map.pb"
FASTEST = 70.0  # metres a second, 250 km/h


class LogRate(NamedTuple):
    """Seconds from a frame to the next in logs of a kind; None where they have any."""

    step: float | None = STEP
    logs: str = "L5Kit's logs"


def findings(path: Path, *, deep: bool) -> Iterator[Finding]:
    """Damage of the dataset at `path`: an `error` for intervals that leave their array or do not follow one another, a
    `warning` for missing frames, another rate, and agents of no frame. With `deep`, which reads every row, also an
    `error` for what cannot be read, and a `warning` for scenes that end before they start, a track twice in a frame,
    poses that are no rotations, numbers that are none, and traffic lights that the map next to the dataset lacks."""
    try:
        tables = open_tables(path, Cache(CACHE_BYTES))
    except (FormatError, OSError) as error:
        yield Finding("unreadable", str(path), str(error))
        return
    try:
        yield from check_tables(tables, str(path), LogRate(), deep=deep)
    finally:
        tables.close()


def check_tables(tables: Tables, path: str, rate: LogRate, *, deep: bool) -> Iterator[Finding]:
    """Damage of opened tables, as `findings`."""
    labels = tables.attributes.get("labels")
    if labels is not None and labels != list(LABELS):
        message = f"expected the {len(LABELS)} labels of the format, got others"
        yield Finding("unknown-layout", f"labels in {path}", message)
    damaged = list(_damage(tables)) if deep else []
    yield from damaged
    if damaged:
        return
    scenes, frames = tables.scenes[:], tables.frames[:]
    offsets = yield from _cut(scenes["frame_index_interval"], len(frames), "scenes.frame_index_interval", path)
    nested: dict[str, IntArray | None] = {}
    for table, (_, field) in NESTED.items():
        rows = tables.agents if table == "agents" else tables.tl_faces
        nested[table] = yield from _cut(frames[field], len(rows), f"frames.{field}", path)
    if offsets is not None:
        yield from _clock(frames["timestamp"][: offsets[-1]], offsets, rate)
    if (agents := nested["agents"]) is not None and agents[-1] < len(tables.agents):
        yield Finding("unused-rows", "agents", f"{len(tables.agents) - agents[-1]} agents are in no frame")
    if not deep:
        return
    yield from _times(scenes, path)
    yield from _poses(frames, path)
    if agents is not None:
        yield from _agents(tables, agents, path)
    if offsets is not None and (faces := nested["tl_faces"]) is not None:
        yield from _lights(tables, faces, offsets, path)


def _damage(tables: Tables) -> Iterator[Finding]:
    """Chunks that cannot be read, each once, the first of each array."""
    for name in DTYPES:
        rows, bad = tables.rows(name), 0
        stored = stored_rows(rows)
        step = stored.metadata.chunk_rows if isinstance(stored, ZarrArray) else _ROWS
        for a in range(0, len(rows), step):
            try:
                rows.read(a, min(a + step, len(rows)))
            except FormatError as error:
                bad += 1
                yield Finding("unreadable", error.where or name, str(error))
            if bad == _MOST:
                message = f"the first {_MOST} chunks that cannot be read; others were not looked at"
                yield Finding("unreadable", name, message)
                break


def _cut(intervals: IntArray, rows: int, where: str, path: str) -> Generator[Finding, None, IntArray | None]:
    try:
        return offsets_in(intervals, rows, where, path)
    except FormatError as error:
        yield Finding("numbering", error.where or where, str(error))
        return None


def _times(scenes: Any, path: str) -> Iterator[Finding]:
    early = np.flatnonzero(scenes["end_time"] < scenes["start_time"])
    if len(early):
        where = f"scenes.end_time[{early[0]}] in {path}"
        yield Finding("time-backward", where, f"{len(early)} scenes end before they start")


def _clock(times: IntArray, scenes: IntArray, rate: LogRate) -> Iterator[Finding]:
    """Frames that are missing, and a log of another rate. Velocities of samples are wrong by that factor, because they
    are divided by the `step_time` of a configuration."""
    scene = np.repeat(np.arange(len(scenes) - 1), np.diff(scenes))
    change = np.diff(times) / 1e9
    within = scene[1:] == scene[:-1]
    if not within.any():
        return
    medians = [np.median(change[a : b - 1]) if b - a > 1 else np.nan for a, b in pairwise(scenes.tolist())]
    whole = float(np.nanmedian(medians))
    if rate.step is not None and whole > 0 and abs(whole / rate.step - 1) > RATE:
        message = f"expected a frame every {rate.step:g} s, as {rate.logs} have them, got one every {whole:g} s"
        yield Finding("time-rate", "frames.timestamp", f"{message}; use step_time={whole:g}, or velocities are wrong")
    usual = np.where(np.array(medians) > 0, medians, np.inf)[scene[:-1]]
    gaps = np.flatnonzero(within & (change > GAP * usual) & _over_both_neighbours(change, within, usual))
    if len(gaps):
        factors = change[gaps] / usual[gaps]
        owners, first = np.unique(scene[gaps], return_index=True)
        rows = gaps[first] + 1 - scenes[owners]
        message = f"frames are missing at {counted(len(gaps), 'place')} of {counted(len(owners), 'scene')}, "
        missing, most = round(float((factors - 1).sum())), f"{factors.max():.3g}"
        message += f"{missing} in all; velocities there are up to {most} times too large"
        where = f"episode {owners[0]}/timestamp row {rows[0]}"
        scenes_of, rows_of = (tuple(each[:_NAMED].tolist()) for each in (owners, rows))
        yield Finding("time-gap", where, message, "timestamp", scenes_of, rows_of)


def _over_both_neighbours(change: FloatArray, within: BoolArray, usual: FloatArray) -> BoolArray:
    """Where the time of a step and its neighbour is too long for two steps, on both sides: no late frame alone."""
    pair = change[1:] + change[:-1] > (1 + GAP) * usual[1:]
    pair |= ~(within[1:] & within[:-1])  # a neighbour of another scene
    return np.append(pair, True) & np.append(True, pair)


def _poses(frames: Any, path: str) -> Iterator[Finding]:
    rotation, place = frames["ego_rotation"], frames["ego_translation"]
    with np.errstate(all="ignore"):
        product = rotation @ rotation.swapaxes(1, 2)
        sound = np.all(np.abs(product - np.eye(3)) < _SLACK, (1, 2)) & np.all(np.isfinite(place), 1)
    wrong = np.flatnonzero(~sound)
    if len(wrong):
        where = f"frames[{wrong[0]}] in {path}"
        yield Finding("invalid-value", where, f"{len(wrong)} frames have a pose that is no rotation, or not finite")


def _agents(tables: Tables, offsets: IntArray, path: str) -> Iterator[Finding]:
    """In stretches of whole frames, so that memory stays bounded."""
    frames = len(offsets) - 1
    first = 0
    while first < frames:
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + _ROWS, side="right")) - 1)
        rows = tables.agents[int(offsets[first]) : int(offsets[last])]
        frame = np.repeat(np.arange(first, last), np.diff(offsets[first : last + 1]))
        order = np.lexsort((rows["track_id"], frame))
        tracks, owners = rows["track_id"][order], frame[order]
        twice = np.flatnonzero((np.diff(tracks) == 0) & (np.diff(owners) == 0)) if len(order) > 1 else order[:0]
        if len(twice):
            where = f"frames[{owners[twice[0]]}] in {path}"
            message = f"track {tracks[twice[0]]} is there twice ({len(twice)} such agents near)"
            yield Finding("duplicate-key", where, message)
        wrong = np.flatnonzero(~np.all(np.isfinite(rows["centroid"]), 1) | ~np.isfinite(rows["yaw"]))
        if len(wrong):
            where = f"agents[{int(offsets[first]) + wrong[0]}] in {path}"
            yield Finding("invalid-value", where, f"{len(wrong)} agents near have a place or yaw that is not finite")
        speed = np.hypot(rows["velocity"][:, 0].astype(np.float64), rows["velocity"][:, 1])
        fast = np.flatnonzero(speed > FASTEST)
        if len(fast):
            where = f"agents[{int(offsets[first]) + fast[0]}] in {path}"
            message = f"{len(fast)} agents near are faster than {FASTEST:g} m/s, the first has {speed[fast[0]]:.1f}"
            yield Finding("impossible-speed", where, message)
        first = last


def map_near(path: Path) -> Path | None:
    """Return the map of a dataset, next to it or to its folder as in L5Kit's release, or None."""
    folders = (path.absolute().parent, path.absolute().parent.parent)
    places = [place / name for place in folders for name in (MAP, Path("semantic_map", MAP))]
    return next((place for place in places if place.is_file()), None)


def _lights(tables: Tables, faces: IntArray, scenes: IntArray, path: str) -> Iterator[Finding]:
    """Faces of traffic lights whose name the map does not have, with their scenes and first frames."""
    place = map_near(Path(path))
    if place is None or not len(tables.tl_faces):
        return
    try:
        known = np.array(sorted(element.id for element in RoadMap.read(place).elements))
    except FormatError as error:
        yield Finding("unreadable", str(place), str(error))
        return
    names: dict[str, None] = {}
    rows: dict[int, int] = {}  # scene -> its first frame with such a face
    for first in range(0, len(tables.tl_faces), _ROWS):
        ids = tables.tl_faces[first : first + _ROWS]["face_id"]
        missing = np.flatnonzero(~np.isin(ids, known))
        names.update(dict.fromkeys(ids[missing].tolist()))
        frames = np.searchsorted(faces, missing + first, side="right") - 1
        owners = np.searchsorted(scenes, frames, side="right") - 1
        for scene, k in zip(*np.unique(owners, return_index=True), strict=True):
            rows.setdefault(int(scene), int(frames[k] - scenes[scene]))
    if names:
        shown = ", ".join(repr(name) for name in list(names)[:3])
        message = f"{len(names)} faces of traffic lights are not in the map {place.name}, first {shown}"
        where = f"traffic_light_faces in {path}"
        episodes = tuple(rows)[:_NAMED]
        first_frames = tuple(rows[scene] for scene in episodes)
        yield Finding("missing-light", where, message, "tl_faces/face_id", episodes, first_frames)
