"""Bytes to episodes and back: one folder a format. Each folder here with a `FORMAT` is a format."""
