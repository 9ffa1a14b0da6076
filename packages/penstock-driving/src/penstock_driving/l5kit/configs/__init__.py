"""Configurations: `load_config_data`, `save_config_data`."""

from penstock_driving.l5kit.configs.config import load_config_data, save_config_data

__all__ = ["load_config_data", "save_config_data"]
