"""LeRobot datasets: versions 2.0, 2.1 and 3.0."""

from penstock.formats.lerobot.format import LeRobotFormat

FORMAT = LeRobotFormat()

__all__ = ["FORMAT", "LeRobotFormat"]
