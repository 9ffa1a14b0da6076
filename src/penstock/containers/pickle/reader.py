"""The two ways in: `loads`, which only ever makes data, and `load`, which has an option to trust."""

from __future__ import annotations

import pickle
from typing import Any, Literal

from penstock.containers.pickle.machine import LIMITS, Limits, Machine
from penstock.containers.pickle.opcodes import run
from penstock.containers.pickle.vet import vet
from penstock.errors import DataError

Buffer = bytes | bytearray | memoryview


def loads(data: Buffer, *, where: str = "", path: object = None, limits: Limits = LIMITS) -> Any:
    """The value that a pickle of plain data stands for; nothing that it names is imported or run.

    Plain values, NumPy arrays and scalars, spaces (as `penstock.core.spaces`), `ColorSpace` and `Trajectory`.
    Arrays are read-only; an `OrderedDict` is a dict.

    Arguments: `data`, all of the pickle, of protocol 0 to 5; `where` and `path`, for messages; `limits`.

    Raises `UnsafeDataError` for data that names anything else, has false sizes or asks for too much, and
    `FormatError` for what is no whole pickle.  Cost: one copy of the bytes of its arrays (two out of a
    `memoryview`), and about a microsecond an opcode.
    """
    m = Machine(data if type(data) is bytes else bytes(data), where, path, limits)
    return vet(m, run(m))


def load(data: Buffer, *, path: object, where: str = "", trust: Literal["pickle", False] = False) -> Any:
    """`loads`, or Python's own `pickle.loads` where the caller trusts the file as a program: `trust="pickle"`.

    Raises what `loads` raises; `DataError` for another `trust`; with `trust="pickle"`, any error of the pickle.
    """
    if trust == "pickle":
        return pickle.loads(data)  # noqa: S301
    if trust is not False:
        raise DataError(f"expected trust to be False or 'pickle', got {trust!r}")
    return loads(data, where=where, path=path)
