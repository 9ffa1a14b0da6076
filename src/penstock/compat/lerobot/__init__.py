"""Compatibility layer for LeRobot 0.4.4: `LeRobotDataset` over penstock's reading, plans and writing.

It has LeRobot's names and needs no LeRobot, `datasets` or torchvision. Nothing is downloaded. Arguments that cannot be
honoured are refused by name. `docs/compat/lerobot.md` lists what is mirrored and what differs.
"""

from penstock.compat.lerobot.dataset import LeRobotDataset
from penstock.compat.lerobot.metadata import LeRobotDatasetMetadata
from penstock.compat.lerobot.multi import MultiLeRobotDataset
from penstock.compat.lerobot.streaming import StreamingLeRobotDataset

__all__ = ["LeRobotDataset", "LeRobotDatasetMetadata", "MultiLeRobotDataset", "StreamingLeRobotDataset"]
