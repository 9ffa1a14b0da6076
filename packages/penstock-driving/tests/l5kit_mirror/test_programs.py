"""The two sample programs of the original's documentation, with another import and the golden scene."""

from __future__ import annotations

import contextlib
import io
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock_driving.l5kit.configs import save_config_data

OF_THE_EGO = """
from l5kit.rasterization import build_rasterizer
from l5kit.configs import load_config_data
from l5kit.data import LocalDataManager, ChunkedDataset
from l5kit.dataset import EgoDataset


zarr_dt = ChunkedDataset("<path>")
zarr_dt.open()

# additional information is required for rasterisation
cfg = load_config_data("<config>")
rast = build_rasterizer(cfg, LocalDataManager("<files>"))

dataset = EgoDataset(cfg, zarr_dt, rast)
for data in dataset:  # this iterates over frames under the hood
    print(data["target_positions"])
    print(data["history_positions"])
"""

OF_AGENTS = """
from l5kit.rasterization import build_rasterizer
from l5kit.configs import load_config_data
from l5kit.data import LocalDataManager, ChunkedDataset
from l5kit.dataset import AgentDataset
import numpy as np


zarr_dt = ChunkedDataset("<path>")
zarr_dt.open()

# additional information is required for rasterisation
cfg = load_config_data("<config>")
rast = build_rasterizer(cfg, LocalDataManager("<files>"))

# create a mask where an agent every 100th is set to True
agents_mask = np.zeros(len(zarr_dt.agents), dtype=np.bool)
agents_mask[np.arange(0, len(agents_mask), 100)] = True
agents_mask &= zarr_dt.agents["label_probabilities"][:, 3:16].sum(axis=1) > 0.5

dataset = AgentDataset(cfg, zarr_dt, rast, agents_mask=agents_mask)
for data in dataset:  # this iterates over valid agents under the hood
    print(data["target_positions"])
    print(data["history_positions"])
"""


@pytest.fixture
def run(golden: Path, config: dict[str, Any], tmp_path: Path) -> Any:
    """Runs a program; gives its names, and the shapes of what it printed."""
    config["model_params"].update(history_num_frames=2, future_num_frames=4)
    save_config_data(config, tmp_path / "config.yaml")

    def called(program: str) -> tuple[dict[str, Any], str]:
        places = {
            "<path>": golden / "single.zarr",
            "<config>": tmp_path / "config.yaml",
            "<files>": golden,
            "from l5kit.": "from penstock_driving.l5kit.",
        }
        for name, place in places.items():
            program = program.replace(name, str(place))
        (tmp_path / "program.py").write_text(program)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            names = runpy.run_path(str(tmp_path / "program.py"))
        return names, printed.getvalue()

    return called


def test_the_program_that_looks_at_the_ego(run: Any) -> None:
    names, printed = run(OF_THE_EGO)
    assert printed.count("[[") == 2 * 248
    data = names["data"]  # of the last frame: there is no future, but all of the history
    assert data["image"].shape == (2 * 3 + 3, 224, 224)
    assert data["image"].dtype == np.float32
    assert data["image"].max() == 1
    assert not data["target_availabilities"].any()
    assert data["history_availabilities"].all()


def test_the_program_that_looks_at_agents(run: Any) -> None:
    names, printed = run(OF_AGENTS)
    assert len(names["dataset"]) == np.count_nonzero(names["agents_mask"]) > 20
    assert printed.count("[[") == 2 * len(names["dataset"])
    assert names["data"]["track_id"] > 0


def test_an_agent_that_does_not_count_ends_no_loop_in_silence(run: Any) -> None:
    with pytest.raises(IndexError):
        run(OF_AGENTS.replace("agents_mask &=", "zarr_dt.unused ="))
