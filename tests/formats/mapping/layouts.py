"""Writers of public datasets' layouts, written after their own code: `docs/howto/own_data.md` has the sources.

Each writes some episodes as `penstock` reads them, into a folder.
"""

# pyright: basic

from __future__ import annotations

import gzip
import pickle
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image

from penstock.core.episode import Episode


def after_dummy(rows: Any) -> Any:
    """Rows behind a first one that says nothing, which is 77 here so that a wrong alignment is seen."""
    return np.concatenate([np.full((1, *rows.shape[1:]), 77).astype(rows.dtype), rows])


def write_exorl(path: Path, episodes: Sequence[Episode]) -> None:
    """denisyarats/exorl: `save_episode` of a row for each time step, of which the first has no action."""
    for e, episode in enumerate(episodes):
        rows = episode.columns
        arrays = {
            "observation": rows["observations"],
            "action": after_dummy(rows["actions"]),
            "reward": after_dummy(rows["rewards"][:, None]),
            "discount": after_dummy(rows["discount"][:, None]),
            "physics": rows["physics"],
        }
        folder = path / "walker" / "rnd" / "buffer"
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(folder / f"episode_{e:06d}_{len(episode)}.npz", **arrays)


def write_vd4rl(path: Path, episodes: Sequence[Episode]) -> None:
    """conglu1997/v-d4rl: `hdf5_to_npz.py`, and DreamerV2."""
    for e, episode in enumerate(episodes):
        rows, n = episode.columns, len(episode) + 1
        terminal = np.concatenate([[False], rows["terminations"]])
        arrays = {
            "image": rows["observations"],
            **{theirs: after_dummy(rows[ours]) for theirs, ours in (("action", "actions"), ("reward", "rewards"))},
            "discount": after_dummy(rows["discount"]),
            "is_last": np.arange(n) == n - 1,
            "is_first": np.arange(n) == 0,
            "is_terminal": terminal,
        }
        np.savez_compressed(path / f"20220629T1432{e:02d}-{e:032x}-{n}.npz", **arrays)


def write_vd4rl_84(path: Path, episodes: Sequence[Episode]) -> None:
    """conglu1997/v-d4rl: `npz_to_hdf5.py`, two episodes a file."""
    names = {"action": "actions", "reward": "rewards", "discount": "discount"}
    for first in range(0, len(episodes), 2):
        some = episodes[first : first + 2]
        with h5py.File(path / f"shard_{first}.hdf5", "w") as file:
            whole = {theirs: [after_dummy(each.columns[ours]) for each in some] for theirs, ours in names.items()}
            whole["observation"] = [each.columns["observations"] for each in some]
            whole["step_type"] = [np.r_[0.0, np.ones(499), 2.0] for _ in some]
            for name, parts in whole.items():
                file.create_dataset(name, data=np.concatenate(parts), compression="gzip")


class DopamineRing:
    """google/dopamine's replay memory with google-research/batch_rl's log: written when the last slot is next."""

    def __init__(self, folder: Path, capacity: int, rows: dict[str, Any], stack: int = 4) -> None:
        self.folder, self.capacity, self.stack = folder, capacity, stack
        folder.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(1)
        self.store = {
            name: rng.integers(1, 99, (capacity, *row.shape)).astype(row.dtype) for name, row in rows.items()
        }  # not written yet: any values
        self.count, self.logs, self.starts = 0, 0, True

    def _put(self, rows: dict[str, Any]) -> None:
        for name, row in rows.items():
            self.store[name][self.count % self.capacity] = row
        self.count += 1

    def add(self, rows: dict[str, Any]) -> None:
        if self.starts:
            for _ in range(self.stack - 1):
                self._put({name: np.zeros_like(row) for name, row in rows.items()})
        self.starts = bool(rows["terminal"])
        self._put(rows)
        if self.count % self.capacity == self.capacity - 1:
            self.log(self.count)

    def log(self, count: int) -> None:
        arrays = {f"$store$_{name}": array for name, array in self.store.items()}
        others = {"add_count": np.array(count), "invalid_range": np.zeros(self.stack)}
        for name, array in {**arrays, **others}.items():
            with gzip.open(self.folder / f"{name}_ckpt.{self.logs}.gz", "wb") as file:
                np.save(file, array, allow_pickle=False)
        self.logs += 1


def write_katago(path: Path, episodes: Sequence[Episode]) -> None:
    """lightvector/KataGo: `writeToZipFile`, some rows a file."""
    names = {"globalInputNC": "global", "policyTargetsNCMove": "policy", "globalTargetsNC": "global"}
    for first in range(0, len(episodes), 3):
        rows = {
            name: np.concatenate([e.columns[name] for e in episodes[first : first + 3]]) for name in episodes[0].spec
        }
        board = rows["observations/board"]
        np.savez_compressed(
            path / f"{first:016X}.npz",
            binaryInputNCHWPacked=np.packbits(board.reshape(*board.shape[:2], -1), axis=2),
            **{
                theirs: rows[f"{'observations' if theirs == 'globalInputNC' else 'targets'}/{ours}"]
                for theirs, ours in names.items()
            },
            scoreDistrN=rows["targets/score"],
            valueTargetsNCHW=rows["targets/value"],
        )


def write_calvin(path: Path, episodes: Sequence[Episode], split: str = "training", first: int = 7) -> list[list[int]]:
    """mees/calvin: a frame a file, with frames between recordings that belong to none. Returns the ranges."""
    folder = path / split
    folder.mkdir(parents=True)
    ranges: list[list[int]] = []
    names = {"rel_actions": "actions", "actions": "actions_absolute"}
    names |= {"robot_obs": "observations/robot", "scene_obs": "observations/scene"}
    names |= {"rgb_static": "observations/rgb_static"}
    frame = first
    for episode in episodes:
        ranges.append([frame, frame + len(episode) - 1])
        for t in range(len(episode)):
            arrays = {theirs: episode.columns[ours][t] for theirs, ours in names.items()}
            np.savez(folder / f"episode_{frame:07d}.npz", **arrays)
            frame += 1
        np.savez(folder / f"episode_{frame:07d}.npz", **{key: np.ones_like(value) for key, value in arrays.items()})
        frame += 2  # a number without a file
    np.save(folder / "ep_start_end_ids.npy", np.array(ranges))
    return ranges


def write_bridge(path: Path, episodes: Sequence[Episode], dates: Sequence[str], *, bare: bool = False) -> None:
    """rail-berkeley/bridge_data_v2: T observations, T - 1 actions; one more of each before 2021-07-23."""
    for e, episode in enumerate(episodes):
        rows, late = episode.columns, dates[e] < "2021-07-23"
        folder = path / "rss" / "toykitchen2" / "set_table" / "00" / dates[e] / "raw" / "traj_group0" / f"traj{e}"
        (folder / "images0").mkdir(parents=True)
        state, actions = rows["observations/state"], list(rows["actions"])
        images, times = rows["observations/image_0"], rows["timestamps"]
        if late:
            state, images, times = after_dummy(state), after_dummy(images), after_dummy(times)
            actions.append(np.full_like(actions[0], 77))
        made = {"full_state": state, "time_stamp": times.tolist(), "low_bound": np.zeros((1, 5))}
        (folder / "obs_dict.pkl").write_bytes(pickle.dumps(made))
        policy = actions if bare else [{"actions": row, "policy_type": "VR"} for row in actions]
        (folder / "policy_out.pkl").write_bytes(pickle.dumps(policy))
        (folder / "agent_data.pkl").write_bytes(pickle.dumps({}))
        for t, image in enumerate(images):
            Image.fromarray(np.full((16, 16, 3), image.reshape(-1)[0])).save(folder / "images0" / f"im_{t}.jpg")
        if e % 2:
            (folder / "lang.txt").write_text("put the pot on the stove\nconfidence: 1\n")


def rlbench_classes() -> tuple[type, type]:
    """Classes of the names that RLBench's pickles have."""
    modules = {name: types.ModuleType(name) for name in ("rlbench", "rlbench.demo", "rlbench.backend.observation")}
    demo = type("Demo", (), {"__module__": "rlbench.demo"})
    observation = type("Observation", (), {"__module__": "rlbench.backend.observation"})
    modules["rlbench.demo"].Demo, modules["rlbench.backend.observation"].Observation = demo, observation
    sys.modules |= modules
    return demo, observation


def write_rlbench(path: Path, episodes: Sequence[Episode]) -> None:
    """stepjam/RLBench: `save_demo` of the dataset generator."""
    demo_class, observation_class = rlbench_classes()
    variation = path / "open_drawer" / "variation0"
    variation.mkdir(parents=True)
    (variation / "variation_descriptions.pkl").write_bytes(pickle.dumps(["open the drawer", "slide it"]))
    for e, episode in enumerate(episodes):
        rows = episode.columns
        folder = variation / "episodes" / f"episode{e}"
        for kind in ("rgb", "depth", "mask"):
            (folder / f"front_{kind}").mkdir(parents=True)
        observations = []
        for t in range(len(rows["observations/gripper_pose"])):
            depth, mask = rows["observations/front_depth"][t], rows["observations/front_mask"][t]
            number = np.floor(depth.astype("f8") * (2**24 - 1) + 0.5).astype("u4")
            images = {
                "rgb": rows["observations/front_rgb"][t],
                "depth": np.stack([number >> 16, number >> 8 & 255, number & 255], -1),
                "mask": np.stack([mask & 255, mask >> 8 & 255, mask >> 16], -1),
            }
            for kind, image in images.items():
                Image.fromarray(image.astype("u1")).save(folder / f"front_{kind}" / f"{t}.png")
            each = observation_class()
            each.front_rgb, each.front_depth, each.front_mask, each.wrist_rgb = None, None, None, None
            each.gripper_pose, each.gripper_open = rows["observations/gripper_pose"][t], float(t % 2)
            each.misc = {"front_camera_near": 0.01, "front_camera_far": 4.5}
            if t and "actions" in rows:
                each.misc["joint_position_action"] = rows["actions"][t - 1]
            observations.append(each)
        demo = demo_class()
        demo._observations, demo.random_seed = observations, np.random.RandomState(e).get_state()
        demo.num_reset_attempts = 1
        (folder / "low_dim_obs.pkl").write_bytes(pickle.dumps(demo))
