"""What agents and faces of traffic lights may be, in the order of their probabilities; lists, as the original has."""

from __future__ import annotations

from penstock_driving.formats.l5kit import LABELS
from penstock_driving.formats.l5kit import TL_FACE_LABELS as FACES

PERCEPTION_LABELS = list(LABELS)
PERCEPTION_LABEL_TO_INDEX = {label: index for index, label in enumerate(PERCEPTION_LABELS)}

TL_FACE_LABELS = list(FACES)
TL_FACE_LABEL_TO_INDEX = {label: index for index, label in enumerate(TL_FACE_LABELS)}
