"""A writer that is killed at any of its system calls leaves the old content or the new one, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

# One process forks a writer for every point at which it can be killed, with `renameat2` and without.
SCRIPT = """
import os, signal, shutil, sys, tempfile
from pathlib import Path
from penstock.files import atomic_file, atomic_path, replace as files, sweep, write_checked, read_checked, AppendLog

exchanges, kind = sys.argv[1] == "exchange", sys.argv[2]
real = files._renameat2
patched = dict(open=os.open, mkdir=os.mkdir, replace=os.replace, rename=os.rename, unlink=os.unlink, fsync=os.fsync,
               rmdir=os.rmdir, pwrite=os.pwrite, close=os.close, ftruncate=os.ftruncate)

def killed_at(point):
    calls = 0
    def step():
        nonlocal calls
        calls += 1
        if calls == point:
            os.kill(os.getpid(), signal.SIGKILL)
    def wrapped(function):
        def call(*args, **kwargs):
            step()
            return function(*args, **kwargs)
        return call
    for name, function in patched.items():
        setattr(os, name, wrapped(function))
    files._renameat2 = wrapped(real if exchanges else lambda *_: False)

def fill(folder, text):
    folder.mkdir()
    (folder / "a").write_text(text)

def content(path):
    return sorted((p.name, p.read_text()) for p in path.iterdir()) if path.is_dir() else path.read_bytes()

root = Path(tempfile.mkdtemp())

def write(path):
    if kind == "file":
        with atomic_file(path, durable="folder") as file:
            file.write(b"new")
            file.flush()
            file.write(b"er")
    elif kind == "checked":
        write_checked(path, b"magic", "key", b"newer")
    elif kind == "log":
        log = AppendLog(path, b"log\\n", "a log")
        log.append(b"newer\\n")
        log.close()
    else:
        with atomic_path(path, overwrite=True, durable="folder") as made:
            fill(made, "newer")

def begin(path):
    if kind == "folder":
        fill(path, "old")
    elif kind == "checked":
        write_checked(path, b"magic", "key", b"old")
    elif kind == "log":
        path.write_bytes(b"log\\n")
    else:
        path.write_bytes(b"old")

for existed in (True, False):
    point = 0
    while True:
        point += 1
        folder = root / f"{existed}{point}"
        folder.mkdir()
        path, other = folder / "data", root / f"other{existed}{point}"
        if existed:
            begin(path)
        write(other) if point == 1 else None
        if point == 1:
            new = content(other)
            old = content(path) if existed else None
        child = os.fork()
        if child == 0:
            killed_at(point)
            write(path)
            os._exit(7)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (7, -signal.SIGKILL), code
        sweep(folder)
        left = content(path) if path.exists() else None
        whole = kind != "log" or (left or b"log\\n").startswith(b"log\\n")
        assert left in (old, new) or (kind == "log" and left in (b"log\\n", None)), (existed, point, left)
        assert [p.name for p in folder.iterdir() if p != path] == [], (existed, point, list(folder.iterdir()))
        write(path)
        assert content(path) in (new, new + b"newer\\n" if kind == "log" else new)
        if code == 7:
            break
    assert point > 3, point
shutil.rmtree(root)
print("points", point)
"""


@pytest.mark.parametrize("kind", ["file", "folder", "checked", "log"])
@pytest.mark.parametrize("renames", ["exchange", "rename"])
def test_a_kill_at_any_call_leaves_old_or_new_and_no_scratch(kind: str, renames: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, renames, kind], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("points ")
