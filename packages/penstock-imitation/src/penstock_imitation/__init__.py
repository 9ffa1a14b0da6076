"""Imitation learning from benchmarks: environments, native demonstrations, pairs; il-representations' API."""

__version__ = "0.1.0"
