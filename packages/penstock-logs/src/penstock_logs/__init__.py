"""Logs of robots for penstock: MCAP, and bags of ROS 1 and ROS 2, as files of named arrays that a mapping reads."""

__version__ = "0.1.0"
