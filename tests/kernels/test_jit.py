# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
"""How kernels compile: helpers are linked in, other processes wait, and a long compilation is told."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from penstock.kernels import compiled, jit
from penstock.kernels.dispatch import kernels


@jit.uncounted_helper
def twice(x: Any) -> Any:
    return 2 * x


def add_twice(x: Any, out: Any) -> None:
    for i in range(len(x)):
        out[i] = twice(x[i]) + 1


@pytest.fixture
def new_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A kernel that is not in the cache, and whose process has compiled nothing yet."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(jit, "_state", jit._Compiling())
    return jit.uncounted_kernel(add_twice)


def test_a_helper_is_linked_into_its_kernel_and_stays_a_function_for_python(new_kernel: Any) -> None:
    out = np.zeros(3, np.int64)
    new_kernel(np.arange(3), out)
    assert out.tolist() == [1, 3, 5]
    assert twice(4) == 8
    assert [path.suffix for path in sorted(Path(new_kernel.stats.cache_path).iterdir())] == [".nbc", ".nbi"]


def test_the_cache_is_locked_while_a_kernel_compiles(monkeypatch: pytest.MonkeyPatch, new_kernel: Any) -> None:
    locks: list[tuple[int, bool]] = []

    @contextmanager
    def locked(fd: int, *, wait: bool) -> Generator[None]:
        locks.append((os.fstat(fd).st_ino, wait))
        yield

    monkeypatch.setattr(jit, "locked", locked)
    for _ in range(2):
        new_kernel(np.arange(3), np.zeros(3, np.int64))
    assert locks == [(os.stat(new_kernel.stats.cache_path).st_ino, True)]


def test_a_file_system_without_locks_does_not_stop_a_kernel(monkeypatch: pytest.MonkeyPatch, new_kernel: Any) -> None:
    def locked(fd: int, *, wait: bool) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(jit, "locked", locked)
    out = np.zeros(1, np.int64)
    new_kernel(np.ones(1, np.int64), out)
    assert out.tolist() == [3]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_long_compilation_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, new_kernel: Any, terminal: bool
) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(errors, "isatty", lambda: terminal)
    monkeypatch.setattr(jit.sys, "stderr", errors)
    monkeypatch.setattr(jit, "QUIET_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, logger="penstock"):
        new_kernel(np.arange(3), np.zeros(3, np.int64))
        new_kernel(np.arange(3, dtype=np.int32), np.zeros(3, np.int64))
    told = errors.getvalue().splitlines() if terminal else caplog.messages
    assert len(told) == 1
    assert "compiled kernels for" in told[0]
    assert new_kernel.stats.cache_path in told[0]


def test_a_short_compilation_is_not_told(monkeypatch: pytest.MonkeyPatch, caplog: Any, new_kernel: Any) -> None:
    monkeypatch.setattr(jit, "QUIET_SECONDS", float("inf"))
    with caplog.at_level(logging.INFO, logger="penstock"):
        new_kernel(np.arange(3), np.zeros(3, np.int64))
    assert caplog.messages == []


def test_each_kernel_has_a_definition_and_no_other_name_is_one() -> None:
    for file, names in compiled.FILES.items():
        for name in names:
            assert callable(getattr(compiled, name)), (file, name)
    with pytest.raises(AttributeError, match="no attribute 'gather_columns'"):
        _ = compiled.gather_columns
    assert kernels() is compiled
