"""`MultiLeRobotDataset`: items of several LeRobot datasets, with their common features."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import ArgumentError, require
from penstock.formats.lerobot.info import CAMERAS
from penstock.formats.lerobot.stats import merged
from penstock_mirrors.lerobot.arguments import root_of
from penstock_mirrors.lerobot.dataset import LeRobotDataset
from penstock_mirrors.lerobot.metadata import Statistics

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset

    _Dataset = Dataset[dict[str, Any]]
else:
    torch = require("torch", "torch")
    _Dataset = torch.utils.data.Dataset


class MultiLeRobotDataset(_Dataset):
    """Frames of several LeRobot datasets, as dicts of tensors with `dataset_index`.

    Features that a dataset lacks are left out of all items, with a warning.
    """

    def __init__(
        self,
        repo_ids: Sequence[str],
        root: str | Path | None = None,
        episodes: Mapping[str, Sequence[int]] | None = None,
        image_transforms: Callable[[torch.Tensor], torch.Tensor] | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerances_s: Mapping[str, float] | None = None,
        download_videos: bool = True,
        video_backend: str | None = None,
        *,
        token: str | bool | None = None,
    ) -> None:
        super().__init__()
        self.repo_ids = list(repo_ids)
        self.delta_timestamps = delta_timestamps
        self.tolerances_s = dict.fromkeys(self.repo_ids, 1e-4) if tolerances_s is None else dict(tolerances_s)
        self._datasets = [
            LeRobotDataset(
                repo_id,
                root_of(repo_id, None if root is None else Path(root) / repo_id),
                episodes[repo_id] if episodes else None,
                image_transforms=image_transforms,
                delta_timestamps=delta_timestamps,
                tolerance_s=self.tolerances_s[repo_id],
                download_videos=download_videos,
                video_backend=video_backend,
                token=token,
            )
            for repo_id in self.repo_ids
        ]
        every = dict.fromkeys(name for data in self._datasets for name in data.features)
        common = {name for name in every if all(name in data.features for data in self._datasets)}
        if not common:
            raise ArgumentError(f"expected datasets with common features, got none in {self.repo_ids}")
        self.disabled_features = every.keys() - common
        if self.disabled_features:
            warnings.warn(
                f"features that not all datasets have are left out: {sorted(self.disabled_features)}", stacklevel=2
            )
        self._first = np.cumsum([0, *(len(data) for data in self._datasets)])

    def __len__(self) -> int:
        return int(self._first[-1])

    def __getitem__(self, idx: int) -> dict[str, Any]:
        """Read one item."""
        return self.__getitems__([idx])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Read several items at once, as `DataLoader` does."""
        numbers = np.array([operator.index(i) for i in indices], np.int64)
        if ((numbers < 0) | (numbers >= len(self))).any():
            raise IndexError(f"expected frames within 0:{len(self)}, got {numbers.tolist()}")
        owners = np.searchsorted(self._first, numbers, side="right") - 1
        items: list[dict[str, Any]] = [{} for _ in numbers]
        for owner, data in enumerate(self._datasets):
            places: list[int] = np.flatnonzero(owners == owner).tolist()
            inside: list[int] = (numbers[places] - int(self._first[owner])).tolist()
            read = data.__getitems__(inside) if places else []
            for place, item in zip(places, read, strict=True):
                item["dataset_index"] = torch.tensor(owner)
                items[place] = {name: value for name, value in item.items() if name not in self.disabled_features}
        return items

    @property
    def image_transforms(self) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """Function that is applied to pictures in colour."""
        return self._datasets[0].image_transforms

    def set_image_transforms(self, image_transforms: Callable[[torch.Tensor], torch.Tensor] | None) -> None:
        """Set the function that is applied to pictures in colour, of all datasets."""
        for data in self._datasets:
            data.set_image_transforms(image_transforms)

    def clear_image_transforms(self) -> None:
        """Leave pictures of all datasets as they are."""
        self.set_image_transforms(None)

    @property
    def repo_id_to_index(self) -> dict[str, int]:
        return {repo_id: number for number, repo_id in enumerate(self.repo_ids)}

    @property
    def num_frames(self) -> int:
        return len(self)

    @property
    def num_episodes(self) -> int:
        return sum(data.num_episodes for data in self._datasets)

    @property
    def fps(self) -> float:
        """Frames a second of the first dataset."""
        return self._datasets[0].fps

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """The common features, as the last dataset describes them."""
        known = {name: each for data in self._datasets for name, each in data.features.items()}
        return {name: each for name, each in known.items() if name not in self.disabled_features}

    @property
    def camera_keys(self) -> list[str]:
        return [name for name, each in self.features.items() if each["dtype"] in CAMERAS]

    @property
    def video(self) -> bool:
        """Whether a common camera is stored as video."""
        return bool(self.video_frame_keys)

    @property
    def video_frame_keys(self) -> list[str]:
        """Names of the common cameras that are stored as video."""
        return [name for name, each in self.features.items() if each["dtype"] == "video"]

    @property
    def tolerance_s(self) -> float:
        """Seconds between two frames of the first dataset less 1e-4, as in LeRobot; `tolerances_s` are used."""
        return 1 / self.fps - 1e-4

    @cached_property
    def stats(self) -> Statistics:
        """Figures of all datasets together by feature, weighted by their frames."""
        whole: Statistics = {}
        for data in self._datasets:
            for name, figures in (data.meta.stats or {}).items():
                whole[name] = merged(whole[name], figures) if name in whole else figures
        return whole

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.repo_ids}, episodes={self.num_episodes}, frames={self.num_frames}, "
            f"features={list(self.features)})"
        )
