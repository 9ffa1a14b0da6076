"""Pages of the viewer in Chromium, for `make browser`. Other runs of the tests do not collect this folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from penstock_studio.viewer.server import ViewerServer
from viewer.conftest import damaged_pictures, datasets, serving, viewer  # noqa: F401 - fixtures

CHROMIUM = os.environ.get("PENSTOCK_CHROMIUM")
PATIENCE = int(os.environ.get("PENSTOCK_PATIENCE", "60000"))  # milliseconds; a busy machine may need half a minute
collect_ignore_glob = [] if CHROMIUM else ["*"]

Serve = Callable[..., ViewerServer]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE)
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
    opened.evaluate("0")  # all that happened before is listed now
    said = list(errors)
    context.close()
    expected = ("ERR_ABORTED", "status of 400")  # left pages, and answers that a test asks for
    assert [error for error in said if not any(each in error for each in expected)] == []


@pytest.fixture
def serve(page: Any) -> Iterator[Serve]:
    """Start a viewer with the arguments of `serving`. It stops when the test ends."""
    with ExitStack() as servers:
        yield lambda *locations, **options: servers.enter_context(serving(*locations, **options))
        page.goto("about:blank")  # which ends its requests: a server stops when it has answered all


def until(page: Any, condition: str) -> None:
    """Wait for a condition of JavaScript. `page.wait_for_function` evaluates text, which the pages forbid."""
    page.evaluate(
        f"""(patience) => new Promise((done, failed) => {{
          const last = performance.now() + patience;
          const look = () => {{
            if ({condition}) done();
            else if (performance.now() > last) failed(new Error("not within the time: " + {condition!r}));
            else setTimeout(look, 20);
          }};
          look();
        }})""",
        PATIENCE,
    )


def curves_drawn(page: Any) -> Any:
    """Wait until the curves of an episode keep their places, and return their surfaces."""
    page.wait_for_selector(".curves:not([aria-busy]) .curve .u-over")
    return page.locator(".curve .u-over")


def broken_rules(page: Any, pages: dict[str, str]) -> dict[str, list[str]]:
    """Return what axe finds on pages, by address and rule. With each address comes what its page draws last."""
    from axe_playwright_python.sync_playwright import Axe

    found: dict[str, list[str]] = {}
    for address, drawn in pages.items():
        page.goto("about:blank")  # so that an idle network means that this page has all
        page.goto(address)
        page.wait_for_selector(drawn)
        page.wait_for_load_state("networkidle")
        for broken in Axe().run(page).response["violations"]:
            found[f"{address} {broken['id']}"] = [node["html"] for node in broken["nodes"]]
    return found


HOLD_ANSWERS = """(() => {
  const answered = fetch, late = [];
  window.late = late;
  window.fetch = async (path, ...rest) => {
    const answer = await answered(path, ...rest);
    if (!path.includes("%s")) return answer;
    const held = new Response(await answer.arrayBuffer(), answer);
    await new Promise((release) => { late.push(release); document.body.dataset.late = late.length; });
    return held;
  };
})()"""


def hold_answers(page: Any, part: str) -> Callable[[], None]:
    """Hold answers to requests with a part in their address. Returns what waits for one and lets all of them come."""
    page.add_init_script(HOLD_ANSWERS % part)

    def release() -> None:
        page.wait_for_selector("body[data-late]")
        page.evaluate("late.forEach((release) => release())")
        for _ in range(5):  # the page reads and draws them in some tasks
            page.evaluate("new Promise((done) => setTimeout(done))")

    return release


no_wider_than_the_screen = partial(
    until, condition="document.documentElement.scrollWidth <= document.documentElement.clientWidth"
)
