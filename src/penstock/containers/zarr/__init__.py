"""Zarr 2 and 3: groups of arrays in chunks. We read them ourselves, and write them row by row."""
