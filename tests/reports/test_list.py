"""The page of reports from the field lists exactly the reports that have tests."""

# pyright: basic

from __future__ import annotations

import importlib.util
from pathlib import Path

from tests.reports.reported import REPORTS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/reports.md"


def rows() -> list[str]:
    """A row of the page for each report, by project and number."""
    for file in (*Path(__file__).parent.glob("test_*.py"), *ROOT.glob("packages/*/tests/*/test_*_reports.py")):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    unique = {(each.reference.split("#")[0], int(each.reference.split("#")[1]), each.property) for each in REPORTS}
    return [f"| {project} | {number} | {property} |" for project, number, property in sorted(unique)]


def test_the_page_lists_every_report_that_has_a_test() -> None:
    listed = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ") and "/" in line]
    assert listed == rows()
