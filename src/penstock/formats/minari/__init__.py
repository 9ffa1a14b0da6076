"""The Minari standard: datasets of episodes in HDF5, Arrow or Parquet, read in place and written exactly."""

from __future__ import annotations

from penstock.formats.minari.format import MinariFormat

FORMAT = MinariFormat()

__all__ = ["FORMAT", "MinariFormat"]
