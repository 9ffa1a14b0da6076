"""Bytes to episodes and back: one folder a format. A folder here with a `FORMAT` is found by itself."""
