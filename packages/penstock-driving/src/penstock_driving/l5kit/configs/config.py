"""Configurations and metadata as files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from penstock.core.narrowing import is_dict
from penstock.errors import DataError, FormatError, require
from penstock_driving.map.api import load_metadata

__all__ = ["load_config_data", "load_metadata", "save_config_data"]


def load_config_data(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Load a configuration from a YAML file of plain values. Needs the extra `config`."""
    yaml = require("yaml", "config")
    try:
        config = yaml.safe_load(Path(path).read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise FormatError(f"expected YAML of plain values, got {error}", path=path) from error
    if not is_dict(config):
        raise FormatError(f"expected a mapping such as 'raster_params: ...', got {type(config).__name__}", path=path)
    return config


def save_config_data(data: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a configuration as YAML. Needs the extra `config`."""
    yaml = require("yaml", "config")
    try:
        text = yaml.safe_dump(data)
    except yaml.YAMLError as error:
        raise DataError(f"expected numbers, text, lists and dicts; make lists of arrays and tuples: {error}") from error
    Path(path).write_text(text, "utf-8")
