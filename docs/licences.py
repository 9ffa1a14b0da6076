"""The lists of `licences.md`, from the `pyproject.toml` of each distribution and the metadata of what is installed.

    python docs/licences.py

writes them again. Packages that are not installed, or do not say, keep the licence of the line that they have.
"""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PACKAGES = {file.parent.name: file for file in sorted(ROOT.glob("packages/*/pyproject.toml"))}
PAGE = ROOT / "docs" / "licences.md"
BEGIN, END = "<!-- {} -->", "<!-- end -->"
CONTAINED = {"uPlot": "penstock-studio"}  # code of others that a distribution has in it
ROW = re.compile(r"^\* `(?P<name>[^`]+)`: (?P<licence>[^;\n]+)(?:; (?P<used>.+))?$", re.MULTILINE)
CLASSIFIED = {
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
    "Apache Software License": "Apache-2.0",
    "GNU Library or Lesser General Public License (LGPL)": "LGPL-2.1-or-later",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
}


def licence_of(name: str) -> str | None:
    """The licence of an installed package: its SPDX expression, its classifier, or what it says; None if unknown."""
    try:
        told = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    classified = [c.rpartition(" :: ")[2] for c in told.get_all("Classifier") or [] if c.startswith("License ::")]
    known = [CLASSIFIED[each] for each in classified if each in CLASSIFIED]
    words = (told.get("License") or "").strip().splitlines() or [None]  # a package that says nothing
    return told.get("License-Expression") or (known[0] if known else words[0])


def requirements() -> dict[str, dict[str, set[str]]]:
    """By table: every package, and the extras or groups that ask for it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    tables: dict[str, dict[str, set[str]]] = {"core": _closure(project["project"]["dependencies"]), "extras": {}}
    tables["contained"] = {name: {f"`{package}`"} for name, package in CONTAINED.items()}
    tables["development"] = {}
    for extra, wanted in extras.items():
        for text in wanted:
            if not _is_ours(name := _name(text)):
                tables["extras"].setdefault(name, set()).add(f"`{extra}`")
    for package in PACKAGES:
        for requirement in _required(package, all_extras=True):
            tables["extras"].setdefault(canonicalize_name(requirement.name), set()).add(f"`{package}`")
    for text in (ROOT / "magical-requirements.txt").read_text("utf-8").splitlines():
        if text and not text.startswith("#"):
            tables["extras"].setdefault(_name(text), set()).add("`magical`")
    for group, wanted in project["dependency-groups"].items():
        for text in wanted:
            tables["development"].setdefault(_name(text), set()).add(group)
    return tables


def of_all() -> set[str]:
    """The packages that the extra `all` asks for."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    waiting, found = ["all"], set[str]()
    while waiting:
        for requirement in map(Requirement, extras[waiting.pop()]):
            if requirement.name == "penstock":
                waiting += requirement.extras
            elif _is_ours(requirement.name):
                found |= {canonicalize_name(each.name) for each in _required(requirement.name)}
            else:
                found.add(canonicalize_name(requirement.name))
    return found


def _is_ours(name: str) -> bool:
    return name == "penstock" or name in PACKAGES


def _required(package: str, all_extras: bool = False) -> list[Requirement]:
    """What a distribution beside the core requires, without distributions of ours."""
    project = tomllib.loads(PACKAGES[package].read_text("utf-8"))["project"]
    extras = project.get("optional-dependencies", {}) if all_extras else {}
    wanted = map(Requirement, [*project["dependencies"], *(text for texts in extras.values() for text in texts)])
    return [requirement for requirement in wanted if not _is_ours(requirement.name)]


def _name(text: str) -> str:
    return canonicalize_name(Requirement(text).name)


def _closure(wanted: list[str]) -> dict[str, set[str]]:
    """Return the packages that these requirements install, and who asks for it."""
    found: dict[str, set[str]] = {}
    waiting = [(text, "penstock") for text in wanted]
    while waiting:
        text, asker = waiting.pop()
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(requirement.name)
        if name not in found:
            waiting += [(inner, name) for inner in importlib.metadata.requires(name) or ()]
        found.setdefault(name, set()).add(asker)
    return found


def rendered(page: str) -> str:
    """The page with its lists as they have to be: extras name who asks for a package."""
    before = {match["name"]: match["licence"] for match in ROW.finditer(page)}
    for table, packages in requirements().items():
        rows = [
            f"* `{name}`: {licence_of(name) or before.get(name, 'unknown')}"
            + (f"; {', '.join(sorted(used))}" if table == "extras" else "")
            for name, used in sorted(packages.items())
        ]
        begin = BEGIN.format(table)
        text = "\n".join([begin, "", *rows, "", END])
        page = re.sub(re.escape(begin) + ".*?" + re.escape(END), lambda _, text=text: text, page, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text("utf-8")), "utf-8")
