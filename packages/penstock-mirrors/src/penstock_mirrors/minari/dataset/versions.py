"""Versions of the datasets that can be read, and of the packages that a dataset asks for."""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import require

supported_dataset_versions: set[str] = {
    "0.4.0",
    "0.4.1",
    "0.4.2",
    "0.4.3",
    "0.5.0",
    "0.5.1",
    "0.5.2",
    "0.5.3",
    "0.5.4",
}


def is_supported(version: Any) -> bool:
    """Return whether a dataset of `version` can be read: a release, or a range such as the `~=0.4` of old files."""
    if version in supported_dataset_versions:
        return True
    specifiers: Any = require("packaging.specifiers", "minari")
    try:
        wanted = specifiers.SpecifierSet(version)
    except (specifiers.InvalidSpecifier, AttributeError, TypeError):
        return False
    return bool(wanted) and any(wanted.contains(release) for release in supported_dataset_versions)


def check_requirements(requirements: Iterable[str], provided: Mapping[str, str]) -> None:
    """Warn about each pip-style requirement that is malformed, not installed, or installed in another version."""
    parsing: Any = require("packaging.requirements", "minari")
    for text in requirements:
        try:
            requirement = parsing.Requirement(text)
        except parsing.InvalidRequirement:
            warnings.warn(f"Ignoring malformed requirement `{text}`", stacklevel=3)
            continue
        name = str(requirement.name)
        try:
            installed = provided.get(name.lower()) or importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            warnings.warn(f'Package {name} is not installed. Install it with `pip install "{text}"`', stacklevel=3)
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            warnings.warn(
                f"Installed {name} {installed} does not meet {requirement.specifier}. We recommend to "
                f'install the required version with `pip install "{text}"`',
                stacklevel=3,
            )
