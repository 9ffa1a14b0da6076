"""Pickles as data: a reader that imports nothing and runs nothing, for any bytes.

A pickle is a program for a small stack machine, whose opcodes can import and call anything. This machine has only the
opcodes which make values, and names stand in a closed table of ours (`symbols`); any other name is an
`UnsafeDataError`. NumPy's `__setstate__` is never called, because it believes offsets and sizes. All sizes are bounded
(`Limits`).
"""

from __future__ import annotations

from penstock.containers.pickle.known import ColorSpace, Trajectory
from penstock.containers.pickle.machine import Limits
from penstock.containers.pickle.reader import load, load_saved, loads
from penstock.containers.pickle.template import PickleTemplate

__all__ = ["ColorSpace", "Limits", "PickleTemplate", "Trajectory", "load", "load_saved", "loads"]
