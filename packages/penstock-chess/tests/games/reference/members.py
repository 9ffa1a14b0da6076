"""Definition of `penstock_chess.kernels.members`, written to be read."""

from __future__ import annotations

import os
import re

import numpy as np

from penstock.core.arrays import ByteArray, IntArray

BLOCK = 512
_OCTAL = re.compile(rb"([0-7]+) *(\0.*)?", re.DOTALL)


def plain_members(
    fd: int, position: int, end: int, payload: IntArray, size: IntArray, name: ByteArray
) -> tuple[int, int]:
    for i in range(len(payload)):
        block = os.pread(fd, BLOCK, position)
        told, held = (_number(block[first:last]) for first, last in ((148, 156), (124, 136)))
        text = block[:100].partition(b"\0")[0]
        fits = len(block) == BLOCK and told == sum(block) - sum(block[148:156]) + 8 * 32 and held >= 0
        plain = fits and block[156:157] in (b"0", b"\0") and block[345] == 0 and position + BLOCK + held <= end
        if not plain or not text or text[0] in b"./" or text[-1:] == b"/" or b".." in text:
            return i, position
        payload[i], size[i] = position + BLOCK, held
        name[i] = np.frombuffer(text.ljust(100, b"\0"), np.uint8)
        position += BLOCK + -(-held // BLOCK) * BLOCK
    return len(payload), position


def _number(field: bytes) -> int:
    """The octal number of a field, -1 where it is none."""
    found = _OCTAL.fullmatch(field)
    return -1 if found is None else int(found[1], 8)
