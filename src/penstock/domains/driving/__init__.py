"""Driving logs: maps, rasters, and samples of what drives in them."""
