"""Each distribution works where nothing but its own requirements is installed, in a process of its own."""

# pyright: basic

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys

import pytest

from tests.alone import OURS, ROOT, canonical, required

GYMNASIUM = "gymnasium"
# Modules that need what their distribution does not require, and the package that they miss. Others import alone.
EXTRAS: dict[str, dict[str, str]] = {
    "penstock": {
        "penstock.cli.record": GYMNASIUM,
        "penstock.jobs.operations.record": GYMNASIUM,
        "penstock.loading.grain": "grain",
        "penstock.loading.jax": "jax",
        "penstock.loading.torch": "torch",
        "penstock.loading.torch_tensors": "torch",
        "penstock.loading.torch_view": "torch",
        "penstock.recording.collector": GYMNASIUM,
        "penstock.recording.record": GYMNASIUM,
        "penstock.recording.rollout": GYMNASIUM,
        "penstock.recording.rollout_spec": GYMNASIUM,
        "penstock.recording.rollout_worker": GYMNASIUM,
        "penstock.recording.same_step": GYMNASIUM,
        "penstock.recording.spaces": GYMNASIUM,
        "penstock.recording.vector": GYMNASIUM,
        "penstock.testing.accounts": "pytest",
        "penstock.testing.sources": "pytest",
        "penstock.testing.writers": "pytest",
    },
    "penstock-chess": {"penstock_chess.device": "torch"},
    "penstock-cluster": {"penstock_cluster.ray_data": "ray"},
    "penstock-driving": {
        "penstock_driving.commands.scene": "penstock_studio",
        "penstock_driving.commands.view": "penstock_studio",
        "penstock_driving.l5kit.simulation.unroll": "torch",
    },
    "penstock-imitation": {
        "penstock_imitation.envs.atari_env": GYMNASIUM,
        "penstock_imitation.envs.dm_control_env": GYMNASIUM,
        "penstock_imitation.envs.gymnasium_build": GYMNASIUM,
        "penstock_imitation.envs.magical_env": GYMNASIUM,
        "penstock_imitation.envs.minecraft_env": GYMNASIUM,
        "penstock_imitation.envs.procgen_env": GYMNASIUM,
        "penstock_imitation.envs.toy_env": GYMNASIUM,
        "penstock_imitation.envs.vector": GYMNASIUM,
        "penstock_imitation.envs.wrappers": GYMNASIUM,
        "penstock_imitation.il_representations.data.loading": "torch",
    },
    "penstock-mirrors": {
        "penstock_mirrors.lerobot": "torch",
        "penstock_mirrors.minari": GYMNASIUM,
        "penstock_mirrors.sb3": "stable_baselines3.common.buffers",
        "penstock_mirrors.torchrl": "torch",
    },
}

# Every module is imported, and then one use follows, on files of other software where it reads such files.
IMPORTS = """
import importlib, json, pkgutil, sys
from pathlib import Path
from tests.alone import hide

hide(json.loads(sys.argv[2]))
root = importlib.import_module(sys.argv[1])
missing = {}
for module in pkgutil.walk_packages(root.__path__, root.__name__ + ".", onerror=lambda name: None):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            missing[module.name] = error.name or str(error).split()[0]
print(json.dumps(missing))

import numpy as np
import penstock

golden = Path("tests/golden")
"""
USES = {
    "penstock": """
from penstock.formats.base.format import available

with penstock.open(golden / "minari/0.4.2/cartpole-old-v1") as data:
    loader = data.steps().apply(penstock.transforms.Shuffle(seed=0)).loader(16)
    assert sum(len(batch["actions"]) for batch in loader) == sum(data.episodes.length)
assert available().keys().isdisjoint({"lc0", "l5kit", "native", "waymo"})
""",
    "penstock-chess": """
with penstock.open(golden / "lc0/gz") as data:
    batch = next(iter(data.steps().loader(16)))
    assert batch["best_idx"].shape == (16,)
""",
    "penstock-cluster": """
from penstock_cluster.simulation import OBJECT_STORE, simulate

data = penstock.from_arrays({"x": np.zeros((2000, 3000), np.uint8)}, [200] * 10, align={"x": "step"})
assert simulate(data.steps(), [1, 2], batch_size=64, storage=OBJECT_STORE)
""",
    "penstock-driving": """
from penstock_driving.config import Sampling
from penstock_driving.sampling import Sampler

with penstock.open(golden / "l5kit/single.zarr") as data:
    samples, _ = Sampler(data.source, Sampling(3, 3, 0.1)).ego(np.array([9]), np.array([0]))
    assert np.isfinite(samples["curr_speed"]).all()
""",
    "penstock-imitation": """
from penstock_imitation.target_pairs import TargetPairs

with penstock.open(golden / "ilr/native/procgen/demo_coinrun.pickle") as data:
    assert data.apply(TargetPairs("temporal", 1))[:]["target"].shape[1:] == (3, 64, 64)
""",
    "penstock-live": """
from penstock_live import EpisodeInlet, LiveOptions, LivePipeline

source = penstock.from_arrays({"rewards": np.arange(60.0)}, lengths=[3] * 20).source
inlet = EpisodeInlet(source, ["rewards"])
options = LiveOptions(reservoir=12, batch_size=8, follow=False, seed=1)
with LivePipeline(inlet, options, decode=inlet.layout.decode) as live:
    rewards = np.concatenate([batch["rewards"] for batch in live.loader()])
assert sorted(rewards) == list(range(60))
""",
    "penstock-logs": """
import tempfile
from mcap.writer import Writer

with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/a.mcap", "wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel("/joints", "json", 0)
        for i in range(5):
            writer.add_message(channel, i, b'{"q": [1, 2]}', i)
        writer.finish()
    with penstock.open(f"{folder}/a.mcap") as data:
        assert data[0].columns["joints/q"].shape == (5, 2)
""",
    "penstock-mirrors": """
from penstock_mirrors.airio import FunctionDataSource, MapFnTransform, Task

source = FunctionDataSource(lambda split: [{"n": n} for n in range(5)], splits=["train"])
task = Task("t", source, [MapFnTransform(lambda row: {"n": 2 * row["n"]})])
assert [int(row["n"]) for row in task.get_dataset(shuffle=False)] == [0, 2, 4, 6, 8]
""",
    "penstock-studio": """
import http.client, threading
from urllib.parse import urlsplit
from penstock_studio.viewer.server import ViewerServer

with ViewerServer([str(golden / "minari/0.5.3/hdf5-grid-v0")]) as viewer:
    thread = threading.Thread(target=viewer.run)
    thread.start()
    place = urlsplit(viewer.address)
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=60)
    connection.request("GET", f"/?{place.query}", headers={"Host": f"127.0.0.1:{place.port}"})
    assert connection.getresponse().status == 200
    viewer.stop()
    thread.join()
""",
}


@pytest.mark.parametrize("name", OURS)
def test_modules_and_a_use_with_nothing_but_the_requirements(name: str) -> None:
    installed = {canonical(each.name) for each in importlib.metadata.distributions()}
    hidden = json.dumps(sorted(installed - required(name)))
    command = [sys.executable, "-c", IMPORTS + USES[name], name.replace("-", "_"), hidden]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == EXTRAS.get(name, {})
