"""Driving logs in L5Kit's layout: a zarr group of structured arrays, scenes of frames of agents.

`FORMAT` makes scenes episodes of a `Source`, which has the four arrays as well; `concat`, `chop`, `split` and
`get_scene` make datasets of others.
"""

from penstock_driving.formats.l5kit.columns import SPEC, WIDTHS
from penstock_driving.formats.l5kit.dtypes import (
    AGENT_DTYPE,
    CHUNK_ROWS,
    DTYPES,
    FORMAT_VERSION,
    FRAME_DTYPE,
    LABELS,
    PERCEPTION_LABEL_TO_INDEX,
    PERCEPTION_LABELS,
    SCENE_DTYPE,
    TL_FACE_DTYPE,
    TL_FACE_LABEL_TO_INDEX,
    TL_FACE_LABELS,
)
from penstock_driving.formats.l5kit.format import L5KitFormat
from penstock_driving.formats.l5kit.source import L5KitSource, Scene
from penstock_driving.formats.l5kit.tools import chop, combined_scenes, concat, cut, get_scene, rebased, split
from penstock_driving.formats.l5kit.writer import L5KitWriter

FORMAT = L5KitFormat()

__all__ = [
    "AGENT_DTYPE",
    "CHUNK_ROWS",
    "DTYPES",
    "FORMAT",
    "FORMAT_VERSION",
    "FRAME_DTYPE",
    "LABELS",
    "PERCEPTION_LABELS",
    "PERCEPTION_LABEL_TO_INDEX",
    "SCENE_DTYPE",
    "SPEC",
    "TL_FACE_DTYPE",
    "TL_FACE_LABELS",
    "TL_FACE_LABEL_TO_INDEX",
    "WIDTHS",
    "L5KitFormat",
    "L5KitSource",
    "L5KitWriter",
    "Scene",
    "chop",
    "combined_scenes",
    "concat",
    "cut",
    "get_scene",
    "rebased",
    "split",
]
