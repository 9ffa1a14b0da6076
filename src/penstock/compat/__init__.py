"""Compatibility layers: the APIs of other libraries over penstock."""
