"""One meaning a name: the name of a public class of the core occurs once in `src/`."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "penstock"

# Names that still have several meanings. Entries are only removed.
SEVERAL_MEANINGS = {
    "OpenPacks",
    "Pack",
    "Recorded",
}


def class_names() -> dict[str, list[str]]:
    """Return where each class is, by its name without underscores."""
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            if found := re.match(r" *class (\w+)[(:]", line):
                places[found[1].lstrip("_")].append(f"{file.relative_to(PACKAGE)}:{number} {found[1]}")
    return places


def test_each_public_class_has_a_name_of_its_own() -> None:
    clashes = {
        name: where
        for name, where in class_names().items()
        if len(where) > 1 and any(not place.split()[1].startswith("_") for place in where)
    }
    assert {name: where for name, where in clashes.items() if name not in SEVERAL_MEANINGS} == {}
