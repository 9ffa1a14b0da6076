"""Compatibility layer for il-representations: its names over penstock's shards, plans and environments.

Differences: see `docs/il_representations.md`. Nothing found in files is executed, orders are exact and
seeded, pairs never cross trajectories, and unknown keys are errors. Names are imported at first use, so only the names
that need PyTorch or Sacred import them.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.containers.pickle import ColorSpace
    from penstock_imitation.il_representations.algos.pair_constructors import (
        IdentityPairConstructor,
        JigsawPairConstructor,
        TargetPairConstructor,
        TemporalOffsetPairConstructor,
    )
    from penstock_imitation.il_representations.data.read_dataset import (
        ILRDataset,
        InterleavedDataset,
        SubdatasetExtractor,
        load_ilr_datasets,
    )
    from penstock_imitation.il_representations.data.write_dataset import get_meta_dict, write_frames
    from penstock_imitation.il_representations.envs import auto
    from penstock_imitation.il_representations.envs.config import configured, current
    from penstock_imitation.il_representations.scripts.mkdataset_demos import mkdataset_demos
    from penstock_imitation.il_representations.scripts.mkdataset_random import mkdataset_random

__all__ = [  # but for what needs PyTorch or Sacred
    "ColorSpace",
    "ILRDataset",
    "IdentityPairConstructor",
    "InterleavedDataset",
    "JigsawPairConstructor",
    "SubdatasetExtractor",
    "TargetPairConstructor",
    "TemporalOffsetPairConstructor",
    "auto",
    "configured",
    "current",
    "get_meta_dict",
    "load_ilr_datasets",
    "mkdataset_demos",
    "mkdataset_random",
    "write_frames",
]

_MODULES = {
    "algos.pair_constructors": (
        "IdentityPairConstructor",
        "JigsawPairConstructor",
        "TargetPairConstructor",
        "TemporalOffsetPairConstructor",
    ),
    "data.loading": ("datasets_to_loader",),
    "data.read_dataset": ("ILRDataset", "InterleavedDataset", "SubdatasetExtractor", "load_ilr_datasets"),
    "data.metadata": ("ColorSpace",),
    "data.write_dataset": ("get_meta_dict", "write_frames"),
    "envs.config": (
        "configured", "current", "env_cfg_ingredient", "env_data_ingredient", "venv_opts_ingredient",
    ),
    "scripts.mkdataset_demos": ("mkdataset_demos",),
    "scripts.mkdataset_random": ("mkdataset_random",),
}  # fmt: skip
_HOME = {name: f"{__name__}.{module}:{name}" for module, names in _MODULES.items() for name in names}
_HOME["auto"] = f"{__name__}.envs.auto"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = pkgutil.resolve_name(_HOME[name])
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
