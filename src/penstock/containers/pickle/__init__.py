"""Pickles as data: a reader that imports nothing and runs nothing, for any bytes.

A pickle is a program for a small stack machine, and its opcodes can import any module and call anything in it. Here is
a machine that has only the opcodes which make values. Names stand in a closed table of ours (`symbols`): a pickle that
says `numpy.core.multiarray._reconstruct` gets an array that *we* make, out of a dtype from a fixed list and a shape
that fits the bytes; any other name is an `UnsafeDataError`. NumPy's own `__setstate__` is never called, because it
believes offsets and sizes. Depth, memo, marks, opcodes, copied bytes, and the size of the result with all sharing
written out, are bounded (`Limits`).

Members of one field often differ in their payload alone. `PickleTemplate.learn` takes a decoded member apart, and later
members are compared with it instead of interpreted.

>>> import pickle
>>> import numpy as np
>>> frames = [pickle.dumps(np.full((2, 2), i), protocol=4) for i in range(3)]
>>> template = PickleTemplate.learn(frames[0])
>>> template.match(frames[2])
array([[2, 2],
       [2, 2]])
>>> template.match(pickle.dumps("something else")) is None
True
"""

from __future__ import annotations

from penstock.containers.pickle.known import ColorSpace, Trajectory
from penstock.containers.pickle.machine import Limits
from penstock.containers.pickle.reader import load, load_saved, loads
from penstock.containers.pickle.template import PickleTemplate

__all__ = ["ColorSpace", "Limits", "PickleTemplate", "Trajectory", "load", "load_saved", "loads"]
