"""Names of columns for features and back, and the file in which penstock keeps what TFDS has no place for.

| feature of a step | column |
|---|---|
| `observation`, `observation/x` | `observations`, `observations/x` |
| `action`, `action/x` | `actions`, `actions/x` |
| `reward`, `discount` | `rewards`, `discounts` |
| `is_terminal` | `terminations` |
| `is_last` | `truncations`, without those steps that are terminal |
| others | the same name |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from penstock.core.boundary import json_object
from penstock.core.spec import Spec
from penstock.errors import FormatError
from penstock.files.remote import read_bytes
from penstock.formats.rlds.features import STEPS, RLDSFeature

Images = Literal["png", "jpeg", "raw"]
LastStep = Literal["observation", "step"]

FILE = "penstock.json"
METADATA = "episode_metadata"
OTHERS = f"{METADATA}/json"  # feature in which our writer puts the metadata of an episode as JSON
ROOTS = {"observation": "observations", "action": "actions", "reward": "rewards", "discount": "discounts"}
ENDS = {"terminations": "is_terminal", "truncations": "is_last"}


def column_of_feature(path: str) -> str:
    """Return the name of the column of a feature."""
    if not path.startswith(f"{STEPS}/"):
        return path
    root, *rest = path.removeprefix(f"{STEPS}/").split("/")
    known = ROOTS | {feature: column for column, feature in ENDS.items()}
    return "/".join([known.get(root, root), *rest])


def feature_of_column(name: str) -> str:
    """Return the path of the feature of a step that has a column, without `steps`."""
    root, *rest = name.split("/")
    known = {column: feature for feature, column in ROOTS.items()} | ENDS
    return "/".join([known.get(root, root), *rest])


def is_metadata(feature: RLDSFeature) -> bool:
    """Return whether a feature is metadata of an episode: a number or a text that the episode has once."""
    return not feature.of_step and not feature.within and not feature.shape and feature.kind in ("number", "text")


def metadata_name(path: str) -> str:
    """Return the name of an entry in the metadata of an episode."""
    return path.removeprefix(f"{METADATA}/")


@dataclass(frozen=True)
class OwnFile:
    """What penstock wrote next to `features.json`."""

    spec: Spec
    columns: Mapping[str, str]
    last_step: LastStep
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    images: Images = "png"

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain values for `read_own`."""
        return {
            "spec": self.spec.to_json(),
            "columns": dict(self.columns),
            "last_step": self.last_step,
            "metadata": dict(self.metadata),
            "images": self.images,
        }


def read_own(folder: Path) -> OwnFile | None:
    """Return what penstock wrote in a folder, or None. Raises `FormatError` for a damaged file."""
    path = folder / FILE
    if not path.is_file():
        return None
    entries = json_object(read_bytes(path), path)
    if entries.get("last_step") not in ("observation", "step"):
        raise FormatError("expected an object with spec, columns and last_step", path=path)
    if entries.get("images") not in ("png", "jpeg", "raw"):
        raise FormatError(f"expected images as 'png', 'jpeg' or 'raw', got {entries.get('images')!r}", path=path)
    columns = {str(feature): str(column) for feature, column in entries["columns"].items()}
    return OwnFile(
        Spec.from_json(entries["spec"]), columns, entries["last_step"], dict(entries["metadata"]), entries["images"]
    )
