"""What tests of the core take of other distributions, where these are installed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.formats.base.format import available

ROOT = Path(__file__).parents[1]


def modules_of_packages(name: str) -> list[Any]:
    """The modules of this name in the folders of tests of those distributions that can be imported."""
    found = list[Any]()
    for file in sorted(ROOT.glob(f"packages/*/tests/*/{name}.py")):
        if find_spec(file.relative_to(ROOT).parts[1].replace("-", "_")) is None:
            continue
        if (tests := str(file.parents[1])) not in sys.path:
            sys.path.append(tests)
        found.append(import_module(f"{file.parent.name}.{name}"))
    return found


def of_installed(keys: Iterable[str]) -> list[str]:
    """Those of `format/name`, or of formats, whose format is installed."""
    return [key for key in keys if key.partition("/")[0] in available()]
