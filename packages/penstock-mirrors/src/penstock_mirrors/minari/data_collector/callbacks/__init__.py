"""Callbacks that choose the recorded data of each step and each episode."""

from penstock_mirrors.minari.data_collector.callbacks.episode_metadata import EpisodeMetadataCallback
from penstock_mirrors.minari.data_collector.callbacks.step_callback import StepDataCallback

__all__ = ["EpisodeMetadataCallback", "StepDataCallback"]
