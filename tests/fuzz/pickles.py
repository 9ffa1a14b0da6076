"""Made-up pickles, mutations of pickles, and programs of random opcodes with plausible arguments."""

from __future__ import annotations

import pickle
import random
import struct
import sys
from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from penstock.containers.pickle.symbols import SYMBOLS

NUMBERS = (0, 1, 2, 3, 7, 127, 128, 255, 256, 65535, 1 << 31, (1 << 31) - 1, (1 << 32) - 1, 1 << 62, (1 << 64) - 1)
HOSTILE = (("os", "system"), ("builtins", "eval"), ("builtins", "getattr"), ("numpy", "load"), ("subprocess", "Popen"))
WORDS = ("<", "|", ">", "i8", "u1", "b1", "U2", "O8", "f4", "M8", "C", "F", "K", "latin1", "n", "low", "spaces", "RGB")
PLAIN = b"N\x88\x89]})(\x85\x86\x87tleasudR\x81b\x94\x94\x940012\x8f\x90\x91.oi\x92Q\x97\x98"


def made_up() -> Iterator[bytes]:
    nested: Any = {
        "a": [1, -(1 << 70), 1.5, None, True, "ü", b"\xff", (), ((1,), 2, 3)],
        "b": {"c": {1, 2}, 3: OrderedDict(x=1)},
    }
    object_array = np.empty(3, object)
    object_array[:] = [{"a": 1}, "b", np.arange(2)]
    arrays = [
        np.arange(6).reshape(2, 3).T,
        np.array([True]),
        np.array(["ab", "ü"]),
        np.zeros(2, "M8[s]"),
        np.zeros((), ">f4"),
    ]
    for protocol in range(6):
        for value in (
            nested,
            object_array,
            *arrays,
            np.float32(2),
            np.str_("a"),
            bytearray(b"abc"),
            frozenset("ab"),
            1j,
        ):
            yield pickle.dumps(value, protocol)


def mutate(rng: random.Random, seeds: list[bytes]) -> bytes:
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice((1, 1, 2, 3, 6))):
        at, end = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
        end = min(end, at + rng.choice((1, 2, 8, 64, 4096)))
        match rng.randrange(8):
            case 0 if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case 1 if data:
                data[rng.randrange(len(data))] = rng.choice(PLAIN)
            case 2:
                del data[at:end]
            case 3:
                data[at:at] = data[at:end] * rng.choice((1, 1, 2, 50))
            case 4:
                other = rng.choice(seeds)
                begin = rng.randrange(len(other) + 1)
                data[at:end] = other[begin : begin + rng.choice((4, 32, 256))]
            case 5:
                packed = struct.pack("<Q", rng.choice(NUMBERS))[: rng.choice((1, 2, 4, 8))]
                data[at : at + len(packed)] = packed
            case 6:
                data[at:at] = program(rng, rng.randrange(1, 6))
            case _:
                data[at:at] = bytes([rng.choice(PLAIN)])
    return bytes(data)


def program(rng: random.Random, length: int) -> bytes:
    return b"".join(instruction(rng) for _ in range(length))


def instruction(rng: random.Random) -> bytes:
    number, count = rng.choice(NUMBERS), rng.choice((0, 1, 2, 8, 24))
    word = rng.choice(WORDS).encode()
    return rng.choice(
        (
            b"K" + bytes([rng.randrange(256)]),
            rng.choice((b"h", b"q")) + bytes([rng.randrange(12)]),
            "c{}\n{}\n".format(*rng.choice((*SYMBOLS, *SYMBOLS, *HOSTILE))).encode(),
            b"\x8c" + bytes([len(word)]) + word,
            rng.choice((b"C", b"U")) + bytes([count]) + rng.randbytes(count),
            rng.choice((b"J", b"j", b"r", b"B", b"X", b"T", b"\x8b", b"\x84")) + struct.pack("<I", number & 0xFFFFFFFF),
            rng.choice((b"\x95", b"\x8d", b"\x8e", b"\x96")) + struct.pack("<Q", number),
            rng.choice((b"I%d\n", b"L%dL\n", b"F%d\n", b"p%d\n", b"g%d\n", b"V%d\n", b"S'%d'\n", b"P%d\n")) % number,
            bytes([rng.choice(PLAIN)]),
            bytes([rng.choice(PLAIN)]),
        )
    )


# What a reader of data has no business doing while it reads.
WATCHED = ("import", "open", "compile", "exec", "os.", "subprocess.", "pickle.", "socket.", "ctypes.", "shutil.")
_events: list[str] = []
_watching: list[bool] = []


def _audit(event: str, details: tuple[object, ...]) -> None:
    if _watching and event.startswith(WATCHED):
        _events.append(f"{event} {details[:1]}")


@cache
def _hook() -> None:
    sys.addaudithook(_audit)  # stays for the life of the process


@contextmanager
def watched() -> Generator[None]:
    """Fail if the interpreter imports, opens, compiles or runs anything meanwhile."""
    _hook()
    _events.clear()
    _watching.append(True)
    try:
        yield
    finally:
        _watching.clear()
    if _events:
        raise AssertionError(f"the interpreter did {_events}")


def edited_pickle(data: bytes, rng: random.Random) -> bytes:
    """A mutation, or a program of random opcodes."""
    if rng.random() < 0.3:
        return b"\x80\x04" + program(rng, rng.randrange(2, 40)) + b"."
    return mutate(rng, [data])
