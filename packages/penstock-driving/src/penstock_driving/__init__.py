"""Driving logs: maps, rasters, and samples of what drives in them."""

__version__ = "0.1.0"
