"""Versions of the datasets that can be read."""

from __future__ import annotations

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
