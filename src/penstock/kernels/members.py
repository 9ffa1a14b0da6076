# pyright: reportMissingImports=false, reportCallIssue=false
"""Compiled walk over the plain members of a tar archive. Definition: `members_reference.plain_members`.

It reads headers with the system's `pread`, so that a member costs one call and other threads run meanwhile. It stops at
the first header that is not plain, which the caller reads with a general reader. The caller owns the file descriptor
and all arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from penstock.kernels.jit import helper, kernel

# The system's own, so that a member costs one call and other threads run.
_pread: Any = types.ExternalFunction("pread", types.int64(types.int32, types.int64, types.int64, types.int64))

_BLANK, _DOT, _SLASH, _ZERO = 32, 46, 47, 48


@kernel
def plain_members(fd: Any, position: Any, end: Any, payload: Any, size: Any, name: Any) -> Any:
    """See `members_reference.plain_members`."""
    block = np.empty(512, np.uint8)
    for i in range(len(payload)):
        if _pread(fd, block.ctypes.data, 512, position) < 512:
            return i, position
        held = _octal(block, 124, 136)
        fits = held >= 0 and _octal(block, 148, 156) == _checksum(block) and position + 512 + held <= end
        plain = fits and (block[156] == _ZERO or block[156] == 0) and block[345] == 0
        if not plain or not _name(block, name[i]):
            return i, position
        payload[i], size[i] = position + 512, held
        position += 512 + (held + 511) // 512 * 512
    return len(payload), position


@helper
def _checksum(block: Any) -> Any:
    """The sum of all bytes; the field of the checksum itself counts as blanks."""
    total = np.int64(0)
    for at in range(512):
        total += block[at]
    for at in range(148, 156):
        total += _BLANK - np.int64(block[at])
    return total


@helper
def _octal(block: Any, first: Any, last: Any) -> Any:
    value, at = np.int64(0), first
    while at < last and _ZERO <= block[at] < _ZERO + 8:
        value, at = value * 8 + np.int64(block[at]) - _ZERO, at + 1
    digits = at - first
    while at < last and block[at] == _BLANK:
        at += 1
    return value if digits > 0 and (at == last or block[at] == 0) else np.int64(-1)


@helper
def _name(block: Any, out: Any) -> Any:
    """Copy a plain name; False for another."""
    n = 0
    while n < 100 and block[n] != 0:
        if block[n] == _DOT and (n == 0 or block[n - 1] == _DOT):
            return False
        out[n] = block[n]
        n += 1
    out[n:] = 0
    return n > 0 and block[0] != _SLASH and block[n - 1] != _SLASH
