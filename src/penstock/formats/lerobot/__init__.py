"""LeRobot datasets: versions 2.0, 2.1 and 3.0."""

from penstock.formats.lerobot.format import LeRobotFormat
from penstock.formats.lerobot.recording import LeRobotTarget

FORMAT = LeRobotFormat()

__all__ = ["FORMAT", "LeRobotFormat", "LeRobotTarget"]
