"""Kernels compile with what numba documents, where numba has none of the parts that make compiling faster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.core.arrays import IntArray
from penstock.kernels import jit
from penstock.kernels.plain_compiler import PlainCompiler

WITHOUT = """
import warnings
from operator import attrgetter
import numba.core.typed_passes, numba.np.linalg
from penstock.kernels import jit

def compiler_without(owner, name):
    owner = attrgetter(owner)(numba)
    part = getattr(owner, name)
    delattr(owner, name)
    try:
        return jit._compiler()
    finally:
        setattr(owner, name, part)
"""


def printed(program: str) -> list[str]:
    """The lines that a program prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("core.typed_passes", "NativeLowering"),
        ("core.compiler_machinery", "register_pass"),
        ("core.types.functions", "BaseFunction"),
        ("core.codegen.CPUCodeLibrary", "_finalize_dynamic_globals"),
        ("np.linalg", "ensure_blas"),
    ],
)
def test_a_missing_part_of_numba_is_told_once_and_the_plain_compiler_taken(owner: str, name: str) -> None:
    program = f"""{WITHOUT}
with warnings.catch_warnings(record=True) as caught:
    print(type(compiler_without({owner!r}, {name!r})).__name__)
    jit._compiler()
    print(*(each.message for each in caught), sep=chr(10))
"""
    compiler, message = printed(program)
    assert compiler == "PlainCompiler"
    assert "lacks a part that penstock uses to compile kernels faster" in message
    assert name in message
    assert "results are the same, but the first call of a kernel takes about 1.5 times as long" in message


KERNELS = """
import json
import numpy as np
from penstock.kernels import checksum, locate, permute, returns, runs, warmup

lengths, out = np.arange(100, dtype=np.int32), np.zeros(60, np.int64)
runs.gather_runs(lengths, np.arange(20) * 4, np.full(20, 3), out)
rewards = np.random.default_rng(0).normal(size=1000)
sums = np.zeros(1000)
returns.discounted_sums(rewards, np.array([0, 300, 1000]), 0.99, sums)
numbers = permute.permute(np.arange(50), np.full(50, 50), np.zeros(50, np.int64), 7)
located = locate.Groups.of(np.array([2, 3])).locate(np.array([1, 2, 4]))
print(json.dumps([checksum.lookup3(b"kernels" * 9), out.tolist(), sums.tolist(), numbers.tolist(), located.tolist()]))
try:
    returns.discounted_sums(rewards, np.array([0.0, 1000.0]), 0.99, sums)
except TypeError as error:
    print(error)
few = [each for each in warmup.signatures() if each[0].endswith(("._lookup3", ".permute_in", "._discounted_sums"))]
warmup.signatures = lambda: few
warmup.compile_all()
print(warmup.compile_all())
"""


def test_kernels_give_equal_results_by_both_compilers() -> None:
    plain = f"{WITHOUT}compiler_without('core.typed_passes', 'NativeLowering')\n{KERNELS}"
    (results, refused, warmed), quick = printed(plain), printed(KERNELS)
    assert [json.loads(results), refused, warmed] == [json.loads(quick[0]), *quick[1:]]
    assert "expected _discounted_sums to be called with" in refused
    assert warmed == "(3, 0)"


@jit.uncounted_helper
def thrice(x: int) -> int:
    return 3 * x


@jit.uncounted_kernel("i8[1C] i8[1C]")
def add_thrice(x: IntArray, out: IntArray) -> None:
    for i in range(len(x)):
        out[i] = thrice(x[i]) + 1


def test_machine_code_with_a_helper_that_changed_is_not_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    compiler = PlainCompiler()
    monkeypatch.setattr(jit, "_compiler", lambda: compiler)
    kernel = jit.KERNELS[f"{__name__}.add_thrice"]
    compiled: list[int] = []
    for content in ("first", "first", "second"):

        def digest_of(_path: str, content: str = content) -> str:
            return content

        monkeypatch.setattr(jit, "_file_digest", digest_of)
        dispatcher: Any = jit.Kernel(kernel.function, kernel.signatures, counted=False).made()
        out = np.zeros(3, np.int64)
        dispatcher(np.arange(3), out)
        assert out.tolist() == [1, 4, 7]
        compiled.append(sum(dispatcher.stats.cache_misses.values()))
    assert compiled == [1, 0, 1]
