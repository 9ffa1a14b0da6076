"""Base class of perturbations, which move frames of the ego."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from penstock.core.arrays import AnyArray, FloatArray, IntArray
from penstock_driving import perturbation
from penstock_driving.formats.l5kit import FRAME_DTYPE
from penstock_driving.geometry import rotation33_as_yaw, yaw_as_rotation33


class Perturbation(perturbation.Perturbation):
    """Moves the ego in frames. A subclass says how in `perturb`; `EgoDataset` calls it once a sample whose future is
    whole, with the current frame alone as history. Its public attributes are part of the dataset's fingerprint.
    """

    @abstractmethod
    def perturb(self, history_frames: AnyArray, future_frames: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Return the frames with `ego_translation` and `ego_rotation` moved; the current frame is first in history."""

    def __call__(self, poses: FloatArray, positions: IntArray) -> FloatArray:
        """Return the poses `[n, F + 1, 3]`, each moved by `perturb`, in order."""
        moved = np.empty_like(poses)
        for pose, place in zip(poses, moved, strict=True):
            history, future = self.perturb(history_frames=frames_of(pose[:1]), future_frames=frames_of(pose[1:]))
            place[:1], place[1:] = poses_of(history[:1]), poses_of(future)
        return moved

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({values})"


def frames_of(poses: FloatArray) -> AnyArray:
    """Return frames `[n]` with poses `[n, 3]` (x, y, yaw); all other fields are zero."""
    frames = np.zeros(len(poses), FRAME_DTYPE)
    place(frames, poses)
    return frames


def place(frames: AnyArray, poses: FloatArray) -> None:
    """Put poses `[n, 3]` (x, y, yaw) into frames `[n]`."""
    frames["ego_translation"][:, :2] = poses[:, :2]
    frames["ego_rotation"] = yaw_as_rotation33(poses[:, 2])


def poses_of(frames: AnyArray) -> FloatArray:
    """Return `[n, 3]` x, y, yaw of the ego in frames `[n]`."""
    return np.column_stack([frames["ego_translation"][:, :2], rotation33_as_yaw(frames["ego_rotation"])])
