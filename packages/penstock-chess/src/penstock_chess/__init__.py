"""Chess positions as Leela Chess Zero's networks see them: planes, policies, values."""

__version__ = "0.1.0"
