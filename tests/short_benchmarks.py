"""Runs benchmarks in forked processes: `python -m tests.short_benchmarks`.

Each line of the standard input is a JSON object: `words`, a script and its arguments, and `printed`, a file for what it
prints.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.forking import serve

IMPORTED = ("torch", "penstock.cli.main", "penstock.kernels.compiler")  # by many of them


def run(task: dict[str, Any]) -> None:
    """Run a script. Its exit code judges claims, which mean nothing in its short form."""
    with open(task["printed"], "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = task["words"]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    try:
        with suppress(SystemExit):
            runpy.run_path(sys.argv[0], run_name="__main__")
    except Exception:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    for module in IMPORTED:
        importlib.import_module(module)
    serve(run)
