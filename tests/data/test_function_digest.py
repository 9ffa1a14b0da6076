"""What a function computes is part of the fingerprint: equal functions agree in any process, others differ."""

from __future__ import annotations

import functools
import json
import logging
import re
import subprocess
import sys
import threading
import types
import warnings
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.ragged import Ragged, offsets_of
from penstock.data.function_digest import MOST_BYTES, FunctionDigest
from penstock.data.map_dataset import MapDataset
from penstock.errors import FingerprintWarning, PlanError, StateError

SCALE = 2


def digest(fn: Any) -> str:
    """The digest of a function that is covered whole."""
    found = FunctionDigest.of(fn)
    assert found.uncovered == ()
    return found.digest


def defined(text: str, **names: Any) -> Any:
    """The function `f` that some text defines."""
    module: dict[str, Any] = {"__name__": "a_script", "np": np, **names}
    exec(text, module)  # noqa: S102
    return module["f"]


def numbers() -> MapDataset:
    return penstock.from_arrays({"x": np.arange(12.0)}, lengths=[5, 7]).steps()


CHANGES: dict[str, tuple[str, str]] = {
    "a constant": ("f = lambda c: c - 0", "f = lambda c: c - 100"),
    "the type of a constant": ("f = lambda c: c - 1", "f = lambda c: c - 1.0"),
    "an operation": ("f = lambda c: c + 1", "f = lambda c: c * 1"),
    "a method": ("f = lambda c: c.min()", "f = lambda c: c.max()"),
    "a default": ("def f(c, m=1): return c - m", "def f(c, m=2): return c - m"),
    "a keyword default": ("def f(c, *, m=1): return c - m", "def f(c, *, m=2): return c - m"),
    "a global": ("m = 1\ndef f(c): return c - m", "m = 2\ndef f(c): return c - m"),
    "a global array": ("m = np.arange(3)\ndef f(c): return c - m", "m = np.arange(3)[::-1]\ndef f(c): return c - m"),
    "a helper": ("def g(c): return c\ndef f(c): return g(c)", "def g(c): return -c\ndef f(c): return g(c)"),
    "a helper's helper": (
        "def h(c): return c\ndef g(c): return h(c)\ndef f(c): return g(c)",
        "def h(c): return -c\ndef g(c): return h(c)\ndef f(c): return g(c)",
    ),
    "nested code": ("def f(c): return [x + 1 for x in c]", "def f(c): return [x + 2 for x in c]"),
    "a function within": (
        "def f(c):\n def g(x): return x\n return g(c)",
        "def f(c):\n def g(x): return -x\n return g(c)",
    ),
    "a handler": (
        "def f(c):\n try: return c[0]\n except KeyError: return 0",
        "def f(c):\n try: return c[0]\n except IndexError: return 0",
    ),
    "a method of a class": (
        "class A:\n def __call__(self, c): return c\nf = A()",
        "class A:\n def __call__(self, c): return -c\nf = A()",
    ),
    "an attribute of an object": (
        "class A:\n def __init__(self): self.m = 1\n def __call__(self, c): return c\nf = A()",
        "class A:\n def __init__(self): self.m = 2\n def __call__(self, c): return c\nf = A()",
    ),
    "a slot": (
        "class A:\n __slots__ = 'm'\n def __call__(self, c): return c\nf = A(); f.m = 1",
        "class A:\n __slots__ = 'm'\n def __call__(self, c): return c\nf = A(); f.m = 2",
    ),
    "a base class": (
        "class B:\n m = 1\nclass A(B):\n def __call__(self, c): return c * self.m\nf = A()",
        "class B:\n m = 2\nclass A(B):\n def __call__(self, c): return c * self.m\nf = A()",
    ),
    "a property": (
        "class A:\n m = property(lambda s: 1)\n def __call__(self, c): return c * self.m\nf = A()",
        "class A:\n m = property(lambda s: 2)\n def __call__(self, c): return c * self.m\nf = A()",
    ),
    "the object of a method": (
        "class A:\n def __init__(self, m): self.m = m\n def go(self, c): return c\nf = A(1).go",
        "class A:\n def __init__(self, m): self.m = m\n def go(self, c): return c\nf = A(2).go",
    ),
    "a cached function": (
        "import functools\n@functools.lru_cache\ndef f(c): return 1",
        "import functools\n@functools.lru_cache\ndef f(c): return 2",
    ),
}
SAME: dict[str, tuple[str, str]] = {
    "lines": ("def f(c): return c + 1", "\n\n\n# moved\ndef f(c):\n\n    return (\n        c + 1)"),
    "names": ("def f(c):\n    one = c + 1\n    return one", "def g(c):\n    two = c + 1\n    return two\nf = g"),
    "docstrings": ('def f(c):\n    "Adds."\n    return c + 1', 'def f(c):\n    "Adds one."\n    return c + 1'),
    "annotations": ("def f(c): return c + 1", "def f(c: int) -> int: return c + 1"),
    "what is not read": ("m = 1\nf = lambda c: c", "m = 2\nf = lambda c: c"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_is_computed_changes_the_digest(name: str) -> None:
    before, after = CHANGES[name]
    assert digest(defined(before)) == digest(defined(before)) != digest(defined(after)) == digest(defined(after))


@pytest.mark.parametrize("name", SAME)
def test_a_change_of_the_text_alone_changes_nothing(name: str) -> None:
    before, after = SAME[name]
    assert digest(defined(before)) == digest(defined(after))


class Colour(Enum):
    RED = 1
    BLUE = 2


PAIRS: list[tuple[Any, Any]] = [
    (1, 2), (1, True), (1, 1.0), (0.0, -0.0), ("a", b"a"), (None, 0), ((1, 2), [1, 2]), ((1, (2,)), ((1, 2),)),
    ({"a": 1}, {"a": 2}), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1, 2}, {1, 3}), (range(3), range(4)),
    ({"a"}, frozenset("a")), (re.compile("a"), re.compile("b")),
    (np.arange(3), np.arange(3.0)), (np.arange(4), np.arange(4).reshape(2, 2)), (np.float32(1), np.float64(1)),
    (np.array([1, "a"], object), np.array([1, "b"], object)), (np.dtype("<i4"), np.dtype(">i4")),
    (np.dtype, np.ndarray),
    (Path("a"), Path("b")), (Fraction(1, 2), Fraction(1, 3)), (Colour.RED, Colour.BLUE), (np.sin, np.cos), (len, max),
    (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)), ([1] * 99, [1] * 98 + [2]), ("ab".upper, "cd".upper),
    (functools.partial(int, base=2), functools.partial(int, base=3)),
    (Ragged.from_strings(["a"]), Ragged.from_strings(["b"])),
    (list(range(99)), [*range(98), 98.0]),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_closed_over_values_count(one: Any, other: Any) -> None:
    def closing(value: Any) -> Any:
        return lambda columns: (columns, value)

    assert digest(closing(one)) != digest(closing(other))


def test_a_function_that_refers_to_itself() -> None:
    def made(step: int) -> Any:
        def count(n: int) -> int:
            return 0 if n < 1 else count(n - step)

        return count

    assert digest(made(1)) == digest(made(1)) != digest(made(2))
    ring: list[Any] = [1]
    ring.append(ring)
    assert digest(lambda c: ring) == digest(lambda c: ring)


def test_use_changes_nothing() -> None:
    """Python rewrites the code of functions that run often; a warm function is the same function."""
    add = defined("m = [1]\nclass A:\n k = 3\ndef f(c):\n    return sum(x + m[0] + A.k for x in c)")
    before = digest(add)
    for _ in range(3000):
        add([1, 2])
    assert digest(add) == before


SCRIPT = """
import functools, json, sys
import numpy as np
from penstock.data.function_digest import FunctionDigest
WORDS = {"one", "two", "three"}
class Scaled:
    def __init__(self, by): self.by, self.words = by, frozenset(WORDS)
    def __call__(self, columns): return {"x": columns["x"] * self.by}
def named(columns): return columns if columns in {"a", "b", "c"} else WORDS
functions = [Scaled(3), named, lambda c: (c, WORDS), functools.partial(named, WORDS), np.sin]
print(json.dumps([FunctionDigest.of(f).digest for f in functions]))
"""


def test_digests_are_the_same_in_every_process(tmp_path: Path) -> None:
    """Though hashes of text differ, and though the file is another one."""
    found = []
    for number, name in enumerate(("one.py", "other.py")):
        (tmp_path / name).write_text("\n" * number + SCRIPT)
        command = [sys.executable, str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=_environment(number + 1))
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]
    assert len(set(found[0])) == 5


def _environment(seed: int) -> dict[str, str]:
    return {"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)}


def test_a_state_is_refused_after_a_change() -> None:
    def loader(mean: float, version: str | None = None) -> penstock.Loader:
        return numbers().map(lambda c: {"x": c["x"] - mean}, version=version).loader(4)

    state = json.loads(json.dumps(loader(0).state_dict()))
    loader(0).load_state_dict(state)
    with pytest.raises(StateError, match="fingerprint"):
        loader(100).load_state_dict(state)
    versioned = loader(0, "1").state_dict()
    loader(100, "1").load_state_dict(versioned)
    with pytest.raises(StateError, match="fingerprint"):
        loader(0, "2").load_state_dict(versioned)


def test_every_function_that_a_fingerprint_knows_is_covered() -> None:
    def fingerprints(mean: float) -> list[str]:
        mapped = numbers().map(lambda c: {"x": c["x"] - mean})
        return [
            mapped.fingerprint,
            penstock.mix([mapped, numbers()], [1, 1]).shuffle(0).fingerprint,
            penstock.IterDataset.of(numbers(), 4).filter(lambda c: c["x"] > mean).fingerprint,
            penstock.IterDataset.of(numbers(), 4).flat_map(lambda c: {"x": c["x"] - mean}).rebatch(2).fingerprint,
            penstock.IterDataset.of(mapped, 4).fingerprint,
            penstock.measure(numbers(), lambda c: {"x": c["x"] - mean}, progress=False).source.fingerprint,
            numbers().filter(lambda c: c["x"] >= mean).fingerprint,
        ]

    one, same, other = fingerprints(3), fingerprints(3), fingerprints(4)
    assert one == same
    assert not set(one) & set(other)
    assert len(set(one)) == len(one)


def test_measured_lengths_are_those_of_the_function(tmp_path: Path) -> None:
    calls: list[int] = []

    def lengths(times: int, version: str | None = None) -> list[int]:
        def words(columns: Any) -> Any:
            record(columns.n)
            many = columns["x"].astype(np.int64) * times
            return {"t": Ragged(np.zeros(int(many.sum())), offsets_of(many))}

        made = penstock.measure(numbers(), words, cache=tmp_path / "lengths", progress=False, version=version)
        return np.diff(made.source.value_offsets("t")).tolist()

    record = Counted(calls)
    assert lengths(1) == list(range(12))
    before = len(calls)
    assert lengths(1) == list(range(12))
    assert calls[before:] == [1, 1]  # the first record alone, which shows the columns
    assert lengths(2) == list(range(0, 24, 2))


class Counted:
    """Counts calls, which is no part of what a function computes."""

    def __init__(self, calls: list[int]) -> None:
        self.calls = calls

    def __call__(self, n: int) -> None:
        self.calls.append(n)

    def __fingerprint__(self) -> str:
        return "counts"


def test_what_an_object_states_stands_for_it() -> None:
    assert digest(Counted([1])) == digest(Counted([2]))


def test_code_of_libraries_counts_by_name() -> None:
    def made(function: Any) -> Any:
        return lambda columns: (columns, function)

    other = types.FunctionType(json.dumps.__code__, json.loads.__globals__, "dumps", None, None)
    other.__module__, other.__qualname__, other.__kwdefaults__ = "json", "dumps", json.dumps.__kwdefaults__
    assert digest(made(json.dumps)) == digest(made(other)) != digest(made(json.loads))


UNCOVERED = {
    "a lock": (threading.Lock(), "_thread.lock"),
    "a generator": (np.random.default_rng(0), r"use map\(fn, seed=...\)"),
    "an iterator that is under way": ((x for x in ()), "generator"),
}


@pytest.mark.parametrize("name", UNCOVERED)
def test_what_is_not_covered_is_told_once(name: str) -> None:
    value, message = UNCOVERED[name]
    mapped = [numbers().map(lambda c: (c, value)[0]) for _ in range(2)]
    with pytest.warns(FingerprintWarning, match=f"does not cover 'value' .*{message}.* give version="):
        one = mapped[0].fingerprint
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mapped[1].fingerprint == one
        assert numbers().map(lambda c: (c, value)[0], version="1").fingerprint != one


def test_arrays_that_would_take_long_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.data.function_digest.MOST_BYTES", 1000)
    small, large = np.zeros(100, "u1"), np.zeros(2000, "u1")
    assert FunctionDigest.of(lambda c: (c, small)).uncovered == ()
    (told,) = FunctionDigest.of(lambda c: (c, large)).uncovered
    assert told.startswith("'large' (numpy.ndarray, more than")
    assert MOST_BYTES >= 1 << 28


def test_loggers_and_modules_count_by_name() -> None:
    log = logging.getLogger("one")
    assert digest(lambda c: (log, np, c)) == digest(lambda c: (log, np, c))


def test_a_version_is_text_or_a_number() -> None:
    with pytest.raises(PlanError, match=r"expected version to be text or a whole number, got 1\.5"):
        numbers().map(len, version=1.5)  # type: ignore[arg-type]
