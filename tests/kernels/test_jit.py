# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
"""How kernels compile: at their first call, once for all threads and processes, and for the types they list."""

from __future__ import annotations

import gc
import io
import logging
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from penstock.core.arrays import IntArray
from penstock.kernels import compiler, jit


@jit.uncounted_helper
def twice(x: int) -> int:
    return 2 * x


@jit.uncounted_kernel("i8[1C] i8[1C]", "i4[1C] i8[1C]")
def add_twice(x: IntArray, out: IntArray) -> None:
    for i in range(len(x)):
        out[i] = twice(x[i]) + 1


LAZY: Any = add_twice


@pytest.fixture
def new_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The dispatcher of a kernel that is not in the cache, in a process that has compiled nothing yet."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiler, "_compiled", compiler._Compiled())
    kernel = jit.KERNELS[f"{__name__}.add_twice"]
    return jit.Kernel(kernel.function, kernel.signatures, counted=False).made()


def test_a_helper_is_linked_into_its_kernel_and_stays_a_function_for_python(new_kernel: Any) -> None:
    out = np.zeros(3, np.int64)
    new_kernel(np.arange(3), out)
    assert out.tolist() == [1, 3, 5]
    assert twice(4) == 8
    assert [path.suffix for path in sorted(Path(new_kernel.stats.cache_path).iterdir())] == [".nbc", ".nbi"]


def test_machine_code_with_a_helper_that_changed_is_not_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    kernel = jit.KERNELS[f"{__name__}.add_twice"]
    compiled: list[int] = []
    for content in ("first", "first", "second"):

        def digest_of(_path: str, content: str = content) -> str:
            return content

        monkeypatch.setattr(jit, "_file_digest", digest_of)
        dispatcher = jit.Kernel(kernel.function, kernel.signatures, counted=False).made()
        dispatcher(np.arange(3), np.zeros(3, np.int64))
        compiled.append(sum(dispatcher.stats.cache_misses.values()))
    assert compiled == [1, 0, 1]


def test_files_of_helpers_and_intrinsics_belong_to_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    files: set[str] = set()

    def seen(path: str) -> str:
        files.add(Path(path).name)
        return path

    monkeypatch.setattr(jit, "_file_digest", seen)
    import_module("penstock.kernels.runs")
    kernels = [kernel for name, kernel in jit.KERNELS.items() if name.startswith("penstock.kernels.runs.")]
    for _ in ("names as written", "names that numba's objects replaced"):
        files.clear()
        for kernel in kernels:
            jit.linked_files(kernel.function)
            jit.link(kernel.function)
        assert {"runs.py", "intrinsics.py"} <= files


def test_numba_and_the_collector_of_garbage_are_as_before_a_compilation(new_kernel: Any) -> None:
    before = compiler.BaseFunction.get_call_type
    for collects in (True, False):
        (gc.enable if collects else gc.disable)()
        try:
            with pytest.raises(TypeError, match="expected add_twice"):
                new_kernel(np.zeros(1), np.zeros(1, np.int64))
            new_kernel(np.arange(1, dtype=np.int64 if collects else np.int32), np.zeros(1, np.int64))
            assert gc.isenabled() == collects
        finally:
            gc.enable()
        assert compiler.BaseFunction.get_call_type is before
    assert len(compiler._operators) > 0


def test_the_cache_is_locked_while_a_kernel_compiles(monkeypatch: pytest.MonkeyPatch, new_kernel: Any) -> None:
    locks: list[tuple[int, bool]] = []

    @contextmanager
    def locked(fd: int, *, wait: bool) -> Generator[None]:
        locks.append((os.fstat(fd).st_ino, wait))
        yield

    monkeypatch.setattr(compiler, "locked", locked)
    for _ in range(2):
        new_kernel(np.arange(3), np.zeros(3, np.int64))
    assert locks == [(os.stat(new_kernel.stats.cache_path).st_ino, True)]


def test_a_file_system_without_locks_does_not_stop_a_kernel(monkeypatch: pytest.MonkeyPatch, new_kernel: Any) -> None:
    def locked(fd: int, *, wait: bool) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(compiler, "locked", locked)
    out = np.zeros(1, np.int64)
    new_kernel(np.ones(1, np.int64), out)
    assert out.tolist() == [3]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_long_compilation_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, new_kernel: Any, terminal: bool
) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(errors, "isatty", lambda: terminal)
    monkeypatch.setattr(compiler.sys, "stderr", errors)
    monkeypatch.setattr(compiler, "QUIET_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, logger="penstock"):
        new_kernel(np.arange(3), np.zeros(3, np.int64))
        new_kernel(np.arange(3, dtype=np.int32), np.zeros(3, np.int64))
    told = errors.getvalue().splitlines() if terminal else caplog.messages
    assert len(told) == 1
    assert "compiled kernels for" in told[0]
    assert new_kernel.stats.cache_path in told[0]


def test_a_short_compilation_is_not_told(monkeypatch: pytest.MonkeyPatch, caplog: Any, new_kernel: Any) -> None:
    monkeypatch.setattr(compiler, "QUIET_SECONDS", float("inf"))
    with caplog.at_level(logging.INFO, logger="penstock"):
        new_kernel(np.arange(3), np.zeros(3, np.int64))
    assert caplog.messages == []


def test_the_dispatcher_replaces_a_kernel_in_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "add_twice", LAZY)
    out = np.zeros(3, np.int64)
    add_twice(np.arange(3), out)
    assert out.tolist() == [1, 3, 5]
    assert add_twice is LAZY.made()
    LAZY(np.arange(3), out)  # a name that was imported before the first call goes on to work


def test_a_kernel_takes_the_types_that_it_lists(new_kernel: Any) -> None:
    new_kernel(np.arange(3, dtype=np.int32), np.zeros(3, np.int64))
    with pytest.raises(
        TypeError, match=r"add_twice to be called with \(i8\[1C\] i8\[1C\]\) or .* got \(array\(float64"
    ):
        new_kernel(np.zeros(3), np.zeros(3, np.int64))
    assert len(new_kernel.signatures) == 1


PROGRAM = """
import sys, threading
import numpy as np
import penstock.plan
from penstock.kernels import locate, spans, tiles, warmup
assert "numba" not in sys.modules
together = threading.Barrier(8)
painted = []

def paint():
    out, one = np.empty(3, np.int32), np.ones(1, np.int64)
    together.wait()
    spans.paint(one, one, one, 0, out)
    painted.append(out.tolist())

threads = [threading.Thread(target=paint) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert painted == [[0, 1, 0]] * 8
groups = locate.Groups.of(np.array([2, 3]))
print(groups.locate(np.array([1, 2, 4])).tolist())
kernels = spans._paint, locate._locate
print([sum(kernel.stats.cache_misses.values()) for kernel in kernels])
"""


def test_threads_share_a_first_call_and_the_next_process_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for compiled in (1, 0):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == ["[[1, 0, 2]]", str([compiled] * 2)]


def test_a_kernel_does_not_import_scipy_and_numba_still_knows_it() -> None:
    program = """
import sys
import numpy as np
from penstock.kernels.digest import digest_of
digest_of(np.arange(3))
assert "scipy.linalg" not in sys.modules
from numba.np import arraymath, linalg
assert arraymath.ensure_blas is linalg.ensure_blas and linalg.ensure_blas.__module__ == linalg.__name__
known = arraymath._HAVE_BLAS
assert known == arraymath._check_blas()
"""
    subprocess.run([sys.executable, "-c", program], check=True)
