"""Many machines: work on Ray, and a simulation of what many hosts ask of a storage."""

__version__ = "0.1.0"
