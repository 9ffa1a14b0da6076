"""Hide distributions as if they were not installed: imports do not find them, and their entry points are not listed.

As a plugin of pytest it leaves those that one of ours requires, and all that is not ours, such as tools of tests:
`PENSTOCK_ALONE=penstock-chess PYTEST_PLUGINS=tests.alone python -m pytest packages/penstock-chess/tests`.
"""

# pyright: basic

from __future__ import annotations

import importlib.metadata
import os
import sys
import tomllib
from collections.abc import Collection, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OURS = {"penstock": ROOT} | {folder.name: folder for folder in sorted(ROOT.glob("packages/*"))}


class Installed:
    """The finder of installed packages, without some."""

    def __init__(self, distributions: Collection[str]) -> None:
        self._distributions = frozenset(distributions)
        owners = importlib.metadata.packages_distributions()
        self._packages = {
            package for package, names in owners.items() if self._distributions.issuperset(map(canonical, names))
        }
        self._packages |= {name.replace("-", "_") for name in OURS if name in distributions}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self._packages:
            return None
        return PathFinder.find_spec(fullname, path, target)

    def find_distributions(self, *context: Any) -> Iterator[importlib.metadata.Distribution]:
        for each in PathFinder.find_distributions(*context):
            if canonical(each.name) not in self._distributions:
                yield each

    def invalidate_caches(self) -> None:
        PathFinder.invalidate_caches()


def hide(distributions: Collection[str]) -> None:
    """Hide distributions, given by canonical names, from this process. Modules imported before stay."""
    sys.meta_path[sys.meta_path.index(PathFinder)] = Installed(distributions)


def canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def required(name: str) -> set[str]:
    """A distribution and all that it requires, directly or through others, by canonical names."""
    seen: set[tuple[str, str]] = set()
    _add_required(canonical(name), "", seen)
    _add_required("penstock", "jit", seen)  # numba compiles the kernels of a checkout
    return {each for each, _ in seen}


def _add_required(name: str, extra: str, seen: set[tuple[str, str]]) -> None:
    from packaging.requirements import Requirement  # this module itself needs nothing but Python

    if (name, extra) in seen:
        return
    seen.add((name, extra))
    for requirement in map(Requirement, _requirements(name, extra)):
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            for each in ("", *requirement.extras):
                _add_required(canonical(requirement.name), each, seen)


def _requirements(name: str, extra: str) -> list[str]:
    """Lines of requirements; of ours from `pyproject.toml`, as an installation may be older."""
    if name in OURS:
        project = tomllib.loads((OURS[name] / "pyproject.toml").read_text("utf-8"))["project"]
        return project["optional-dependencies"][extra] if extra else project["dependencies"]
    try:
        return importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:  # of another system or Python
        return []


def pytest_load_initial_conftests() -> None:
    hide(OURS.keys() - required(os.environ["PENSTOCK_ALONE"]))
