"""Pages of the viewer in Chromium, for `make browser`. Other runs of the tests do not collect this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.viewer.conftest import datasets, viewer  # noqa: F401 - fixtures

CHROMIUM = os.environ.get("PENSTOCK_CHROMIUM")
PATIENCE = 120_000  # milliseconds; a busy machine may need half a minute for a page
collect_ignore_glob = [] if CHROMIUM else ["*"]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=["light", "dark", "phone"])
def page(request: pytest.FixtureRequest, chromium: Any) -> Iterator[Any]:
    """A page without errors: those of scripts and of the console fail the test at its end."""
    size = {"width": 390 if request.param == "phone" else 1200, "height": 850}
    context = chromium.new_context(viewport=size, color_scheme="dark" if request.param == "dark" else "light")
    context.set_default_timeout(PATIENCE)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda line: errors.append(line.text) if line.type in ("error", "warning") else None)
    opened.on("requestfailed", lambda failed: errors.append(f"{failed.url}: {failed.failure}"))
    yield opened
    context.close()
    expected = ("ERR_ABORTED", "status of 400")  # left pages, and answers that a test asks for
    assert [error for error in errors if not any(each in error for each in expected)] == []
