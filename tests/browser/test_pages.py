"""Each page of the viewer with real data: what it shows, its keys, and that nothing is cut off."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.data.curation import Curation
from penstock.formats.base.format import named
from penstock.viewer.server import ViewerServer


def opened(page: Any, viewer: ViewerServer, path: str = "") -> None:
    page.goto(viewer.address + path)


def no_wider_than_the_screen(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_list_of_datasets(page: Any, viewer: ViewerServer) -> None:
    opened(page, viewer)
    page.wait_for_selector(".card")
    assert page.locator(".card strong").all_inner_texts() == ["kitchen", "clean", "v3_video"]
    no_wider_than_the_screen(page)


def test_a_dataset_its_findings_and_episodes(page: Any, viewer: ViewerServer) -> None:
    opened(page, viewer, "#/kitchen")
    page.wait_for_selector("text=frozen-sensor")
    page.wait_for_selector("th:has-text('novelty')")
    no_wider_than_the_screen(page)
    page.fill("input.where", "total_steps > 70")
    page.keyboard.press("Enter")
    page.wait_for_selector("#count:has-text('3 of 5')")
    page.fill("input.where", "total_steps > 70 and return > -1e9")
    page.keyboard.press("Enter")
    page.wait_for_selector("#count:has-text('3 of 5')")
    assert page.locator("[role=alert]").inner_text() == ""
    page.click("th button:has-text('total_steps')")
    page.wait_for_selector("th[aria-sort=ascending]")
    page.click("th button:has-text('total_steps')")
    page.wait_for_selector("th[aria-sort=descending]")
    first = page.locator("#episodes tbody tr").first
    assert first.locator("td").nth(2).inner_text() == "90"
    page.fill("input.where", "total_step > 70")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=alert]:has-text('total_step')")
    page.fill("input.where", "")
    page.keyboard.press("Enter")
    page.wait_for_selector("#count:has-text('5 of 5')")
    page.click("#show-figures")
    page.wait_for_selector("#figures td:has-text('rewards')")
    assert page.locator("#figures tbody tr").count() == page.locator("canvas.small-histogram").count() > 3
    no_wider_than_the_screen(page)
    page.click("table a:has-text('1') >> nth=0")
    page.wait_for_selector("h1:has-text('Episode 1')")
    assert "row=7" in page.url or page.locator("#row").inner_text().startswith("step 7")


@pytest.mark.parametrize("name", ["kitchen", "clean", "v3_video"])
def test_an_episode_by_keyboard(page: Any, viewer: ViewerServer, name: str) -> None:
    opened(page, viewer, f"#/{name}/1?row=3")
    page.wait_for_selector(".curve canvas")
    page.wait_for_selector("#row:has-text('step 3 of')")
    page.wait_for_selector(".cameras canvas[data-row='3']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_selector("#row:has-text('step 14 of')")
    page.wait_for_url("**row=14")
    page.keyboard.press("+")
    page.keyboard.press("End")
    page.keyboard.press("-")
    page.keyboard.press("Home")
    page.wait_for_selector("#row:has-text('step 0 of')")
    no_wider_than_the_screen(page)
    page.keyboard.press("n")
    page.wait_for_selector("h1:has-text('Episode 2')")
    page.keyboard.press("p")
    page.wait_for_selector("h1:has-text('Episode 1')")


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_playing_moves_at_the_rate_of_the_data(page: Any, viewer: ViewerServer) -> None:
    opened(page, viewer, "#/v3_video/1")
    page.wait_for_selector("#row:has-text('step 0 of 39')")
    page.click("#play")
    page.wait_for_selector("#row:has-text('step 39 of 39')", timeout=20_000)
    page.wait_for_selector("#play:has-text('Play')")


def test_two_episodes_side_by_side(page: Any, viewer: ViewerServer) -> None:
    opened(page, viewer, "#/kitchen/0?with=2&row=5")
    page.wait_for_selector("h1:has-text('Episode 2')")
    assert page.locator("section h1").all_inner_texts() == ["Episode 0", "Episode 2"]
    page.locator(".curve canvas").first.click()  # in its middle
    page.wait_for_selector("#row:text-matches('^step [234][0-9] of')")
    no_wider_than_the_screen(page)


def test_what_does_not_exist_is_said(page: Any, viewer: ViewerServer) -> None:
    opened(page, viewer, "#/clean/99")
    page.wait_for_selector(".message:has-text('within 0:5')")
    page.context.clear_cookies()
    page.goto("about:blank")


def test_names_and_metadata_are_text(chromium: Any, tmp_path: Path) -> None:
    """Nothing of the data is executed: markup in names and metadata is shown as it is."""
    spec = penstock.Spec({"<img src=x onerror=alert(1)>": penstock.Field(np.dtype("f4"))})
    with named("columns").create(tmp_path / "<b>data", spec, {"title": "<script>window.hit = 1</script>"}) as writer:
        values = np.arange(12, dtype="f4")
        writer.write(penstock.Episode(spec, {next(iter(spec)): values}, 0, {"note": "<img src=x onerror=alert(1)>"}))
    with ViewerServer([str(tmp_path / "<b>data")]) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        opened = chromium.new_page()
        alerts: list[str] = []
        opened.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
        try:
            opened.goto(server.address)
            opened.wait_for_selector("h1:has-text('<b>data')")
            opened.goto(server.address + "#/%3Cb%3Edata/0")
            opened.wait_for_selector(".curve canvas")
            assert opened.evaluate("window.hit") is None
            assert alerts == []
        finally:
            opened.close()
            server.stop()
            thread.join()


def test_marks_by_keyboard(page: Any, datasets: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "marks.json"
    with ViewerServer([str(datasets["kitchen"])], curation=file) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            _mark_by_keyboard(page, server.address, file, datasets["kitchen"])
        finally:
            page.goto("about:blank")
            server.stop()
            thread.join()


def _mark_by_keyboard(page: Any, address: str, file: Path, data: Path) -> None:
    page.goto(address + "#/kitchen/3?row=5")
    page.wait_for_selector("#row:has-text('step 5 of')")
    page.keyboard.press("4")
    page.wait_for_selector("button[aria-label='rate 4'][aria-pressed=true]")
    page.keyboard.press("x")
    page.wait_for_selector("#marks button:has-text('excluded')")
    page.keyboard.press("t")
    page.keyboard.type("good")
    page.keyboard.press("Enter")
    page.wait_for_selector("#marks .tag:has-text('good')")
    page.keyboard.press("s")
    page.wait_for_selector("#span:has-text('from 5')")
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("s")
    page.keyboard.type("slip")
    with page.expect_response(lambda answer: "slip" in (answer.request.post_data or "")) as saved:
        page.keyboard.press("Enter")
    assert saved.value.ok
    page.wait_for_selector("#marks .note:has-text('slip 5-15')")
    assert "null" not in page.locator("#marks").inner_text()
    no_wider_than_the_screen(page)
    assert Curation.read(file)[3] == penstock.EpisodeMarks({"good"}, 4, True, "", [(5, 15, "slip")])
    with Curation.edit(file, penstock.open(data).source) as curation:  # by another person
        curation[3] = penstock.EpisodeMarks({"good"}, 2, True, "", [(5, 15, "slip")])
    page.evaluate("dispatchEvent(new Event('focus'))")
    page.wait_for_selector("button[aria-label='rate 2'][aria-pressed=true]")
    page.keyboard.press("t")
    page.keyboard.type("two words")
    with page.expect_response(lambda answer: "two words" in (answer.request.post_data or "")) as refused:
        page.keyboard.press("Enter")
    assert refused.value.status == 400
    page.wait_for_selector("#marks [role=alert]:has-text('spaces')")
    assert page.locator("#marks .tag").count() == 1
    page.goto(address + "#/kitchen?where=excluded")
    page.wait_for_selector("#count:has-text('1 of 5')")
    page.wait_for_selector("th:has-text('tags/good')")
