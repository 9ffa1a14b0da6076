"""Processes of penstock reuse memory: blocks of the same sizes need no new pages."""

# pyright: basic

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from penstock.freed_memory import keep_freed_memory

SCRIPT = """
import resource
import numpy as np
from penstock.freed_memory import keep_freed_memory
kept = keep_freed_memory()
def blocks():
    for size in (3, 2, 3, 1) * 20:
        np.ones((2, size << 17)) + np.ones((2, size << 17))
blocks()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
blocks()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(**environment: str) -> tuple[str, int]:
    clean = {name: value for name, value in os.environ.items() if "MALLOC" not in name and name != "GLIBC_TUNABLES"}
    words = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(words, env={**clean, **environment}, capture_output=True, text=True, check=True)
    kept, faults = done.stdout.split()
    return kept, int(faults)


def test_blocks_need_no_new_pages() -> None:
    kept, faults = run()
    glibc = platform.libc_ver()[0] == "glibc"
    assert kept == str(glibc)
    assert faults < 1000 or not glibc  # 80 times up to 2,304 pages without it


@pytest.mark.parametrize("limits", [{"MALLOC_ARENA_MAX": "2"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"}])
def test_limits_of_the_user_stay(limits: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in limits.items():
        monkeypatch.setenv(name, value)
    assert not keep_freed_memory()
