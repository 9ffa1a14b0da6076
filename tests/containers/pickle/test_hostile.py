"""Pickles that want to run something: an error that says so, and nothing happens."""

from __future__ import annotations

import copyreg
import pickle
import pickletools
from collections.abc import Callable

import numpy as np
import pytest

from penstock.containers.pickle import loads
from penstock.containers.pickle.opcodes import DISPATCH, REFUSED
from penstock.containers.pickle.symbols import SYMBOLS
from penstock.errors import UnsafeDataError

SINGS = b"canary_of_penstock\nsing\n"
Refuse = Callable[..., str]
OPCODES = [op.code.encode("latin-1") for op in pickletools.opcodes]


def test_the_canary_sings(song: list[str]) -> None:
    assert pickle.loads(b"c" + SINGS + b"(S'x'\ntR.") is None
    assert song == ["sing", "called"]
    song.clear()


@pytest.mark.parametrize(
    "data",
    [
        b"c" + SINGS + b"(S'x'\ntR.",
        b"c" + SINGS + b".",
        b"\x8c\x12canary_of_penstock\x8c\x04sing\x93)R.",
        b"(S'x'\ni" + SINGS + b".",
        b"(c" + SINGS + b"S'x'\no.",
        b"c" + SINGS + b")\x81.",
        b"c" + SINGS + b")}\x92.",
        b"c" + SINGS + b"}b.",
        b"cos\nsystem\n(S'echo'\ntR.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"cbuiltins\ngetattr\n(cnumpy\nndarray\nS'tofile'\ntR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        b"cnumpy.core.multiarray\n_reconstruct.__globals__\n.",
        b"\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
        b"ccopyreg\n_reconstructor\n(c" + SINGS + b"cbuiltins\nobject\nNtR.",
        b"ccopyreg\n__newobj__\n(cbuiltins\nobject\ntR.",
        b"cfunctools\npartial\n(cos\nsystem\ntR.",
        b"coperator\nattrgetter\n(S'system'\ntR.",
        b"ccollections\nOrderedDict\n(c" + SINGS + b"tR.",
        b"P" + SINGS[:7] + b"\n.",
        b"Nq\x00Q.",
        b"\x82\x01.",
        b"\x83\x01\x00.",
        b"\x84\x01\x00\x00\x00.",
        b"\x97.",
        b"N\x98.",
    ],
)
def test_nothing_that_is_named_is_imported_or_called(data: bytes, refuse: Refuse) -> None:
    refuse(data, UnsafeDataError)


def test_extensions_are_refused_even_where_the_registry_knows_them(refuse: Refuse) -> None:
    copyreg.add_extension("canary_of_penstock", "sing", 0xF123)
    try:
        assert "EXT2" in refuse(b"\x83\x23\xf1)R.", UnsafeDataError)
    finally:
        copyreg.remove_extension("canary_of_penstock", "sing", 0xF123)


def test_the_message_names_the_global_its_place_and_the_way_out(refuse: Refuse) -> None:
    message = refuse(b"Ncos\nsystem\n(tR.", UnsafeDataError)
    assert "got 'os.system'; nothing was imported or run; " in message
    assert message.endswith('pass trust="pickle" - at byte 1 of the pickle member.pickle')


def test_long_and_odd_names_are_shown_short(refuse: Refuse) -> None:
    refuse(b"c" + b"\xff" * 10_000 + b"\nx\n.", UnsafeDataError)
    refuse(b"\x8c\x03o\xc3\xa9\x8c\x01s\x93.", UnsafeDataError)


THEN = (b".", b"(tR.", b")\x81.", b"}b.", b"Nb.", b"]\x85.", b"K\x01\x85R.", b"((lK\x01tR.", b"]}\x86R.", b")\x81}b.")


@pytest.mark.parametrize("symbol", sorted(SYMBOLS), ids=".".join)
def test_a_name_alone_is_no_value_and_takes_no_nonsense(
    symbol: tuple[str, str], allowed: Callable[[bytes], bool]
) -> None:
    name = b"c%b\n%b\n" % (symbol[0].encode(), symbol[1].encode())
    for data in (
        *(name + then for then in THEN),
        b"}" + name + b"K\x01s.",
        b"]" + name + b"a.",
        b"K\x01" + name + b"R.",
    ):
        if allowed(data):
            assert loads(data) in ({}, [], set(), frozenset(), b"", bytearray())


@pytest.mark.parametrize("opcode", OPCODES)
def test_every_opcode_on_every_stack_gives_a_value_or_an_error(opcode: bytes, allowed: Callable[[bytes], bool]) -> None:
    for prefix in (b"", b"K\x01", b"(", b"(K\x01K\x02", b"]K\x01", b"}K\x01K\x02", b"\x8f(K\x01"):
        for suffix in (b"", b".", b"\0\0\0\0\0\0\0\0.", b"\xff\xff\xff\xff\xff\xff\xff\xff.", b"1\n."):
            data = prefix + opcode + suffix
            if allowed(data):
                assert opcode not in REFUSED
                assert repr(loads(data)) == repr(pickle.loads(data))


def test_every_opcode_is_known_or_refused_by_name(refuse: Refuse) -> None:
    nothing = DISPATCH[0]
    known = {bytes([code]) for code in range(256) if DISPATCH[code] is not nothing}
    assert known == set(OPCODES) - (REFUSED.keys() - {b"Q"}) - {b"."}  # which a file of tensors may have
    for code in range(256):
        if bytes([code]) not in OPCODES:
            assert "expected an opcode" in refuse(bytes([code]))


def test_random_bytes_never_do_anything_else(allowed: Callable[[bytes], bool]) -> None:
    rng = np.random.default_rng(0)
    values = sum(
        allowed(rng.integers(0, 256, int(rng.integers(0, 40)), np.uint8).tobytes() + b".") for _ in range(5000)
    )
    assert values < 500
