"""The words that everything else is said in: columns, specs, spaces, episodes and selections. NumPy only."""

from penstock.core import spaces

__all__ = ["spaces"]
