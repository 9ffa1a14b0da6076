"""Mutated and made-up pickles against the reader of pickles: the outcome is always a value or a `FormatError`.

Claims: no input makes it raise anything else, take longer than a second, need a gigabyte, or import, open, compile or
run anything (an audit hook of the interpreter watches).

    python benchmarks/fuzz_pickle.py [--minutes 5] [--seed 0]

Inputs are golden members and pickles of made-up values in all protocols, mutated (bits, bytes, numbers, cut, doubled
and spliced slices), and programs of random opcodes with plausible arguments.  The first offence is printed as bytes.
"""

from __future__ import annotations

import argparse
import gzip
import io
import pickle
import random
import resource
import signal
import struct
import sys
import tarfile
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.pickle import Template, loads
from penstock.containers.pickle.symbols import SYMBOLS
from penstock.errors import FormatError, UnsafeDataError

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "ilr" / "pickles"
WATCHED = ("import", "open", "compile", "exec", "os.", "subprocess.", "pickle.", "socket.", "ctypes.", "shutil.")
NUMBERS = (0, 1, 2, 3, 7, 127, 128, 255, 256, 65535, 1 << 31, (1 << 31) - 1, (1 << 32) - 1, 1 << 62, (1 << 64) - 1)
HOSTILE = (("os", "system"), ("builtins", "eval"), ("builtins", "getattr"), ("numpy", "load"), ("subprocess", "Popen"))
WORDS = ("<", "|", ">", "i8", "u1", "b1", "U2", "O8", "f4", "M8", "C", "F", "K", "latin1", "n", "low", "spaces", "RGB")
PLAIN = b"N\x88\x89]})(\x85\x86\x87tleasudR\x81b\x94\x94\x940012\x8f\x90\x91.oi\x92Q\x97\x98"

events: list[str] = []  # what the interpreter did while it was watched
watching: list[bool] = []


def audit(event: str, details: tuple[object, ...]) -> None:
    if watching and event.startswith(WATCHED):
        events.append(f"{event} {details[:1]}")


def hang(_: int, __: object) -> None:
    raise TimeoutError("longer than 5 seconds")


def members() -> Iterator[bytes]:
    for file in sorted(GOLDEN.glob("*.gz")):
        raw = gzip.decompress(file.read_bytes())
        if file.name.endswith(".tar.gz"):
            with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
                yield from (tar.extractfile(m).read() for m in list(tar)[:20])  # type: ignore[union-attr]
        elif len(raw) < 1 << 18:
            yield raw


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
                begin = rng.randrange(len(other))
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


def judge(data: bytes) -> str:
    """Read once; the kind of outcome.  Raises what must never be raised."""
    watching.append(True)
    signal.setitimer(signal.ITIMER_REAL, 5)
    try:
        value = loads(data)
        outcome = "value"
        if isinstance(value, np.ndarray) and value.size < 1 << 16:
            template = Template.learn(data)
            if template is not None and template.match(data).tobytes() != value.tobytes():  # type: ignore[union-attr]
                raise AssertionError("the template differs from the interpreter")
    except UnsafeDataError:
        outcome = "unsafe"
    except FormatError:
        outcome = "malformed"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        watching.clear()
    if events:
        raise AssertionError(f"the interpreter did {events}")
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
    sys.addaudithook(audit)
    signal.signal(signal.SIGALRM, hang)
    rng, outcomes, slowest = random.Random(args.seed), Counter[str](), 0.0
    seeds = [*members(), *made_up()]
    for seed in seeds:
        judge(seed)
    end = time.monotonic() + 60 * args.minutes
    while time.monotonic() < end:
        data = b"\x80\x04" + program(rng, rng.randrange(2, 40)) + b"." if rng.random() < 0.3 else mutate(rng, seeds)
        begin = time.perf_counter()
        try:
            outcome = judge(data)
        except BaseException:
            print(f"offence after {sum(outcomes.values())}: {data!r}")
            raise
        slowest = max(slowest, time.perf_counter() - begin)
        outcomes[outcome] += 1
        if outcome == "value" and len(seeds) < 2000 and len(data) < 4096 and rng.random() < 0.05:
            seeds.append(data)
    total = sum(outcomes.values())
    print(f"{total} executions from seed {args.seed}: {dict(outcomes)}; slowest {slowest * 1e3:.0f} ms; no offence")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
