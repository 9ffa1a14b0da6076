"""Callbacks: what is recorded of each step, and beside each episode."""

from penstock.compat.minari.data_collector.callbacks.episode_metadata import EpisodeMetadataCallback
from penstock.compat.minari.data_collector.callbacks.step_callback import StepDataCallback

__all__ = ["EpisodeMetadataCallback", "StepDataCallback"]
