"""Compatibility layer for LeRobot 0.6.1: `LeRobotDataset` over penstock's reading, plans and writing.

It has LeRobot's names and needs no LeRobot, `datasets` or torchvision. Nothing is downloaded. Arguments that cannot be
honoured are refused by name. `docs/mirrors/lerobot.md` lists what is mirrored and what differs.
"""

from penstock_mirrors.lerobot.dataset import LeRobotDataset
from penstock_mirrors.lerobot.encoders import DepthEncoderConfig, RGBEncoderConfig
from penstock_mirrors.lerobot.info import DatasetInfo
from penstock_mirrors.lerobot.metadata import LeRobotDatasetMetadata
from penstock_mirrors.lerobot.multi import MultiLeRobotDataset
from penstock_mirrors.lerobot.streaming import StreamingLeRobotDataset

__all__ = [
    "DatasetInfo",
    "DepthEncoderConfig",
    "LeRobotDataset",
    "LeRobotDatasetMetadata",
    "MultiLeRobotDataset",
    "RGBEncoderConfig",
    "StreamingLeRobotDataset",
]
