"""The site, opened as files: what is copied, the entries of a phone, and the search. `make browser` builds it first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SITE = Path(__file__).parents[4] / ".build" / "site"
COPIED = """blocks => blocks.map(block => {
  block.setAttribute("data-md-copying", "")  // as the button does
  const text = block.innerText
  block.removeAttribute("data-md-copying")
  return text
})"""


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_copied_commands_run(page: Any) -> None:
    """Neither prompts nor outputs are copied."""
    page.goto(f"{SITE.as_uri()}/howto/checking.html")
    assert page.locator(".language-console .go").count() > 10
    copied = page.eval_on_selector_all(".language-console code", COPIED)
    lines = [line for text in copied for line in text.strip().splitlines()]
    assert len(lines) > 5
    assert [line for line in lines if not line.startswith("penstock ")] == []


@pytest.mark.parametrize("page", ["phone"], indirect=True)
def test_entries_fold_on_a_phone_and_links_open_them(page: Any) -> None:
    page.goto(f"{SITE.as_uri()}/reference/data.html")
    assert page.evaluate("document.documentElement.scrollHeight") < 30_000
    anchor = "penstock.MapDataset.shuffle"
    within = f"document.getElementById('{anchor}').closest('details')"
    assert not page.evaluate(f"{within}.open")
    page.goto(f"{SITE.as_uri()}/reference/data.html#{anchor}")
    page.wait_for_function(f"{within}.open")
    top = page.evaluate(f"document.getElementById('{anchor}').getBoundingClientRect().top")
    assert 0 <= top < 850


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_search_of_files_and_pages_that_have_moved(page: Any) -> None:
    page.goto(f"{SITE.as_uri()}/index.html?q=stride")
    page.wait_for_selector(".md-search-result__item > a[href*='howto/windows']", state="attached")
    page.goto(f"{SITE.as_uri()}/howto/chess.html#rows")
    page.wait_for_url("**/chess/tensors.html#rows")
