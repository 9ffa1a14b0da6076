"""Environments of datasets (`recover`), and environments that other distributions name for `penstock record`."""

from penstock.envs.recovery import recover

__all__ = ["recover"]
