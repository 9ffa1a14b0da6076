"""Which episodes a dataset shows first: those whose pictures differ most, or some of all."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from penstock.core.arrays import FloatArray, IntArray
from penstock.data.dataset_facts import spread_episodes
from penstock.errors import FormatError
from penstock_studio.viewer.episode_contents import EpisodeContents

SHOWN = 6  # episodes
COMPARED = 24  # episodes among which those are chosen
SAMPLES = 16  # rows and columns of a picture that are compared


def shown_episodes(contents: EpisodeContents, lengths: IntArray) -> list[dict[str, Any]]:
    """Return `episode`, `steps`, `camera` and `rows` of the pictures to show: the first and the last one of each.

    Episodes whose pictures cannot be read are among them, because asking for them says why. Of data that a view draws,
    the camera is an empty text. Cost: reads two pictures of each of `COMPARED` episodes.
    """
    if not contents.cameras:
        drawn = spread_episodes(len(lengths), SHOWN) if contents.view else []
        return [{"episode": e, "steps": int(lengths[e]), "camera": "", "rows": []} for e in drawn]
    camera = contents.cameras[0]
    compared = spread_episodes(len(lengths), COMPARED)
    rows = {e: contents.camera_rows(e, camera) for e in compared}
    known = {e: sorted({0, n - 1}) for e, n in rows.items() if n}
    looks: dict[int, FloatArray] = {}
    for e, ends in known.items():
        with suppress(FormatError):
            looks[e] = _look(contents, e, camera, ends)
    unread = [e for e in known if e not in looks][:SHOWN]
    differ = farthest(np.stack(list(looks.values())), SHOWN - len(unread)) if looks and len(unread) < SHOWN else []
    chosen = sorted([*unread, *(list(looks)[i] for i in differ)])
    return [{"episode": e, "steps": int(lengths[e]), "camera": camera, "rows": known[e]} for e in chosen]


def _look(contents: EpisodeContents, e: int, camera: str, rows: list[int]) -> FloatArray:
    """A coarse first and last picture."""
    ends = np.concatenate([contents.frames(e, camera, row, row + 1) for row in (rows[0], rows[-1])])
    tall, wide = (np.linspace(0, side - 1, SAMPLES).astype(np.int64) for side in ends.shape[1:3])
    return ends[:, tall][:, :, wide].astype(np.float64).reshape(-1)


def farthest(points: FloatArray, count: int) -> list[int]:
    """Return at most so many of `[n, k]` points, ascending: the first, then each time the farthest from all chosen."""
    chosen, away = [0], np.linalg.norm(points - points[0], axis=1)
    while len(chosen) < min(count, len(points)):
        away[chosen] = -1.0  # of equal points, each is chosen once
        chosen.append(int(np.argmax(away)))
        away = np.minimum(away, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return sorted(chosen)
