"""Pickles that lie about what they hold, or are no pickles."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable

import pytest

from penstock.containers.pickle import loads
from penstock.errors import FormatError, UnsafeDataError

Refuse = Callable[..., str]
MINUS = b"J\xff\xff\xff\xff"
HUGE = b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00"
PLAIN = MINUS + MINUS + b"K\x00"
START = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tC\x01btR"
SCALAR = b"cnumpy.core.multiarray\nscalar\n("


def dtype(code: bytes = b"i2", parts: bytes = b"K\x03U\x01<NNN" + PLAIN) -> bytes:
    return b"cnumpy\ndtype\n(U%c%b\x89\x88tR(%btb" % (len(code), code, parts)


I2 = dtype()
OBJECT = dtype(b"O8", b"K\x03U\x01|NNN" + MINUS + MINUS + b"K\x3f")


def array(
    shape: bytes = b"K\x02\x85", kind: bytes = I2, payload: bytes = b"C\x04abcd", fortran: bytes = b"\x89"
) -> bytes:
    return START + b"(K\x01" + shape + kind + fortran + payload + b"tb."


def test_the_array_that_the_lies_are_made_from_is_good() -> None:
    assert loads(array()).tolist() == pickle.loads(array()).tolist() == [25185, 25699]


LIES = {
    "more elements than bytes": array(b"K\x03\x85"),
    "fewer elements than bytes": array(b"K\x01\x85"),
    "a negative size": array(MINUS + b"\x85"),
    "negative sizes that multiply": array(MINUS + b"J\xfe\xff\xff\xff\x86"),
    "2**63 elements": array(HUGE + b"\x85"),
    "nothing of 2**63": array(b"K\x00" + HUGE + b"\x86", payload=b"C\x00"),
    "40 axes": array(b"(" + b"K\x01" * 40 + b"t"),
    "a shape that is no tuple": array(b"K\x02"),
    "a size with a point": array(b"G?\xf0\x00\x00\x00\x00\x00\x00\x85"),
    "a boolean size": array(b"\x88K\x02\x86"),
    "an array as a size": array(array()[:-1] + b"\x85"),
    "an array as a shape": array(array()[:-1]),
    "an array as an order": array(fortran=array()[:-1]),
    "an array as a dtype": array(kind=array()[:-1]),
    "an array as bytes": array(payload=array()[:-1]),
    "a list for bytes": array(payload=b"]"),
    "None for bytes": array(payload=b"N"),
    "text for bytes": array(payload=b"X\x04\x00\x00\x00ab\xc3\xa9"),
    "an order that is no boolean": array(fortran=b"]"),
    "a state of three": START + b"K\x01K\x02\x85" + I2 + b"\x87b.",
    "version 2": START + b"(K\x02K\x02\x85" + I2 + b"\x89C\x04abcdtb.",
    "bytes as pointers": array(kind=OBJECT, payload=b"C\x10abcdefghabcdefgh"),
    "fewer objects": array(kind=OBJECT, payload=b"]Na"),
    "void": array(kind=dtype(b"V2", b"K\x03U\x01|NNNK\x02K\x01K\x00")),
    "a field outside of its item": array(
        kind=dtype(b"V2", b"K\x03U\x01|NU\x01a\x85}U\x01a" + I2 + b"J\x00\x00\x10\x00\x86sK\x02K\x01K\x10")
    ),
    "sub-arrays": array(kind=dtype(parts=b"K\x03U\x01<" + I2 + b"K\x02\x85\x86NN" + PLAIN)),
    "an item of -5 bytes": array(kind=dtype(parts=b"K\x03U\x01<NNNJ\xfb\xff\xff\xff" + MINUS + b"K\x00")),
    "an item of 16 bytes": array(kind=dtype(parts=b"K\x03U\x01<NNNK\x10K\x01K\x00")),
    "no order for two bytes": array(kind=dtype(parts=b"K\x03U\x01|NNN" + PLAIN)),
    "the order of some machine": array(kind=dtype(parts=b"K\x03U\x01=NNN" + PLAIN)),
    "an order that is a list": array(kind=dtype(parts=b"K\x03]NNN" + PLAIN)),
    "dtype version 9": array(kind=dtype(parts=b"K\x09U\x01<NNN" + PLAIN)),
    "metadata of a number": array(kind=dtype(parts=b"K\x04U\x01<NNN" + PLAIN + b"}")),
    "a dtype of four parts": array(kind=dtype(parts=b"K\x03U\x01<NN")),
    "nine bytes of integer": array(kind=dtype(b"i9")),
    "a list of formats": array(kind=dtype(b"i1,i1")),
    "a long double": array(kind=dtype(b"f16")),
    "items of no bytes": array(kind=dtype(b"S0", b"K\x03U\x01|NNNK\x00K\x01K\x00"), payload=b"C\x00"),
    "characters beyond Unicode": array(
        b"K\x01\x85", dtype(b"U1", b"K\x03U\x01<NNNK\x04K\x04K\x08"), b"C\x04\xff\xff\xff\xff"
    ),
    "text of another size": array(kind=dtype(b"U1", b"K\x03U\x01<NNNK\x02K\x04K\x08")),
    "two orders": array(kind=dtype(b"U1", b"K\x03U\x02<>NNNK\x04K\x04K\x08")),
    "no order at all": array(kind=dtype(b"S2", b"K\x03U\x00NNNK\x02K\x01K\x00")),
    "true and truer": array(kind=dtype(b"b1", b"K\x03U\x01|NNN" + PLAIN), payload=b"C\x02\x01\x02"),
    "decades": array(
        b"K\x00\x85", dtype(b"M8", b"K\x04U\x01<NNN" + PLAIN + b"N(C\x07decadesK\x01K\x01K\x01t\x86"), b"C\x00"
    ),
    "true seconds": array(
        b"K\x00\x85", dtype(b"M8", b"K\x04U\x01<NNN" + PLAIN + b"N(C\x01s\x88K\x01K\x01t\x86"), b"C\x00"
    ),
    "an array that is a dtype": b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(K\x00tC\x01btR.",
    "an array of another start": b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x05tC\x01btR.",
    "an array without state": START + b".",
    "an array without state in a tuple": START + b"\x85.",
    "an array without state in the memo": START + b"q\x000]h\x00a.",
    "two states": array()[:-1] + b"(K\x01K\x02\x85" + I2 + b"\x89C\x04abcdtb.",
    "two states of what was doubled": b"]" + START + b"2(K\x01K\x02\x85" + I2 + b"\x89C\x04abcdtb0}b.",
    "a dtype without state": SCALAR + b"cnumpy\ndtype\n(U\x02i2\x89\x88tRC\x02abtR.",
    "a scalar that is a pointer": SCALAR + OBJECT + b"C\x08abcdefghtR.",
    "half a scalar": SCALAR + I2 + b"C\x01atR.",
    "a scalar of two": SCALAR + I2 + b"C\x04abcdtR.",
    "a buffer in some order": b"cnumpy.core.numeric\n_frombuffer\n(C\x04abcd" + I2 + b"K\x02\x85U\x01XtR.",
    "a buffer with axes twice": b"cnumpy.core.numeric\n_frombuffer\n(C\x04abcd"
    + I2
    + b"K\x02K\x01\x86U\x01KK\x00K\x00\x86tR.",
    "a buffer of objects": b"cnumpy.core.numeric\n_frombuffer\n(C\x08abcdefgh" + OBJECT + b"K\x01\x85U\x01CtR.",
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_about_arrays(lie: str, refuse: Refuse) -> None:
    refuse(LIES[lie], UnsafeDataError)


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "expected STOP, got the end"),
        (b"\x80\x04N", "expected STOP, got the end"),
        (b"N.N", "expected the end after STOP, got 1 more bytes"),
        (b".", "expected one value at STOP, got 0 values"),
        (b"NN.", "expected one value at STOP, got 2 values"),
        (b"N(.", "1 open marks"),
        (b"\x80\x06N.", "expected a protocol up to 5"),
        (b"N\x80\x04.", "at the start"),
        (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xffN.", "expected a frame within the 2 bytes"),
        (
            b"\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00\x95\x00\x00\x00\x00\x00\x00\x00\x00N.",
            "expected a frame within",
        ),
        (b"0", "expected a mark"),
        (b"a", "expected more on the stack"),
        (b"Na", "expected more on the stack"),
        (b"NNa", "expected a list to add to, got None"),
        (b"(NNtNa", "expected a list to add to, got tuple"),
        (b"]e", "expected a mark"),
        (b"}NNNu", "expected a mark"),
        (b"}(Nu", "expected keys with values, got 1"),
        (b"}]Ns", "expected keys that are strings.*got list"),
        (b"\x8f(]\x90", "expected keys that are strings"),
        (b"(}\x91", "expected keys that are strings"),
        (b"((]tt\x85\x91", "expected a mark"),
        (b"}(]tNs", "expected keys that are strings.*a tuple of 1"),
        (b"h\x00", "expected one of 0 memo entries, got 0"),
        (b"j\xff\xff\xff\xff", "got 4294967295"),
        (b"Nr\xff\xff\xff\xff", "expected an unused memo entry below"),
        (b"Nq\x00q\x00.", "expected an unused memo entry"),
        (b"Np-1\n.", "expected an unused memo entry"),
        (b"q\x00", "expected more on the stack"),
        (b"\x94", "expected more on the stack"),
        (b"2", "expected more on the stack"),
        (b"N\x86", "expected more on the stack"),
        (b"\x8b\xff\xff\xff\xff", "expected an integer of at most 1024 bytes, got 4294967295"),
        (b"\x8b\x01\x04\x00\x00" + b"\x01" * 1025, "expected an integer of at most 1024 bytes, got 1025"),
        (b"L" + b"9" * 5000 + b"L\n.", "expected an integer of at most 2048 digits"),
        (b"I1_0\n.", "expected an integer"),
        (b"I 1\n.", "expected an integer"),
        (b"I\xd9\xa1\n.", "expected an integer"),
        (b"F1__\n.", "expected a float"),
        (b"F" + b"1" * 100 + b"\n.", "expected a float"),
        (b"I1", "expected a line"),
        (b"S'a\n.", "expected a string in quotes"),
        (b"S'a\\q'\n.", "expected an escape"),
        (b"B\xff\xff\xff\xff", "expected 4294967295 more bytes, got 0"),
        (b"\x8e" + struct.pack("<Q", 1 << 63), "expected 9223372036854775808 more bytes"),
        (b"\x8d" + struct.pack("<Q", 1 << 63), "expected 9223372036854775808 more bytes"),
        (b"\x96" + struct.pack("<Q", (1 << 64) - 1), "expected 18446744073709551615 more bytes"),
        (b"\x8c\x02\xc3(.", "expected UTF-8"),
        (b"\x8c\x03\xed\xa0\x80.", "expected UTF-8"),
        (b"V\\ud800\n.", "expected Unicode, got a surrogate"),
        (b"V\\u12\n.", "expected Unicode with escapes"),
        (b"K\x01K\x02\x93.", "expected a module and a name, got 1 and 2"),
        (b"c_codecs\nencode\n(V\\u1234\nV" + b"latin1\ntR.", "expected bytes written as Latin-1"),
        (b"]2a.", "contains itself"),
        (b"]q\x00(h\x00ta.", "contains itself"),
        (b"}q\x00K\x01h\x00s.", "contains itself"),
    ],
)
def test_malformed(data: bytes, match: str) -> None:
    with pytest.raises(FormatError, match=match):
        loads(data)
