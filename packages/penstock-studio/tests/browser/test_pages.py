"""Each page of the viewer with real data: what it shows, its keys, and that nothing is cut off."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

import penstock
from browser.conftest import Serve, curves_drawn, hold_answers, no_wider_than_the_screen, until
from penstock.data.curation import Curation
from penstock.formats.base.format import named
from penstock_studio.viewer.server import ViewerServer


def opened(page: Any, viewer: ViewerServer, path: str = "") -> None:
    page.goto(viewer.address + path)


def test_the_list_of_datasets(page: Any, viewer: ViewerServer) -> None:
    opened(page, viewer)
    expect(page.locator(".card strong")).to_have_text(["kitchen", "clean", "v3_video"])
    no_wider_than_the_screen(page)


def test_a_dataset_its_findings_and_episodes(page: Any, viewer: ViewerServer) -> None:
    opened(page, viewer, "#/kitchen")
    page.wait_for_selector("text=frozen-sensor")
    page.wait_for_selector("th:has-text('novelty')")
    no_wider_than_the_screen(page)
    page.fill("input.where", "total_steps > 70")
    page.keyboard.press("Enter")
    page.wait_for_selector("#count:has-text('3 of 5')")
    page.fill("input.where", "total_steps > 75 and return > -1e9")
    page.keyboard.press("Enter")
    page.wait_for_selector("#count:has-text('2 of 5')")
    expect(page.locator("[role=alert]")).to_have_text("")
    page.click("th button:has-text('total_steps')")
    page.wait_for_selector("th[aria-sort=ascending]")
    page.click("th button:has-text('total_steps')")
    page.wait_for_selector("th[aria-sort=descending]")
    expect(page.locator("#episodes tbody tr td:nth-child(3)")).to_have_text(["90", "80"])
    page.wait_for_selector("th:has-text('total_steps') svg[role=slider]")
    page.fill("input.where", "total_step > 70")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=alert]:has-text('total_step')")
    page.fill("input.where", "")
    page.keyboard.press("Enter")
    page.wait_for_selector("#count:has-text('5 of 5')")
    page.click("#tab-columns")
    page.wait_for_selector("#columns td:has-text('rewards')")
    expect(page.locator("#columns svg.bars").nth(3)).to_be_visible()
    no_wider_than_the_screen(page)
    page.click("#findings li:has-text('NaN') a")
    page.wait_for_selector("h1:has-text('Episode 1')")
    expect(page.locator("#row")).to_have_text(re.compile("^step 7 "))


def test_a_filter_by_completion_and_by_histogram(page: Any, viewer: ViewerServer) -> None:
    """By keyboard alone: the condition is completed, a bin of a histogram narrows it, the address keeps both."""
    opened(page, viewer, "#/kitchen")
    page.wait_for_selector("th:has-text('novelty')")
    where = page.locator("input.where")
    where.press_sequentially("total_st")
    page.wait_for_selector(".offers li:has-text('total_steps')")
    expect(page.locator("#episodes tbody tr")).to_have_count(5)  # nothing is filtered while it is typed
    where.press("ArrowDown")
    where.press("Enter")
    where.press_sequentially(">= 75 ")
    page.wait_for_selector(".offers li:has-text('and')")
    where.press("Escape")
    where.press("Enter")
    page.wait_for_selector("#count:has-text('3 of 5')")
    bars = page.locator("th:has-text('total_steps') svg")
    bars.focus()
    bars.press("ArrowLeft")
    expect(bars).to_have_attribute("aria-valuetext", re.compile("75.*: 1"))
    bars.press("Enter")
    page.wait_for_selector("#count:has-text('1 of 5')")
    assert page.url.count("total_steps") == 2
    page.reload()
    page.wait_for_selector("#count:has-text('1 of 5')")
    page.click(".chips button")
    page.wait_for_selector("#count:has-text('5 of 5')")
    page.click("#findings li:has-text('nan') button")
    page.wait_for_selector("#count:has-text('1 of 5')")
    page.wait_for_url("**finding=nan*")


def test_columns_are_chosen(page: Any, viewer: ViewerServer) -> None:
    opened(page, viewer, "#/kitchen?column=jerk&column=total_steps&sort=jerk")
    heads = page.locator("#episodes th button")
    expect(heads).to_have_text(["id", "jerk ▴", "total_steps"])
    page.click("summary:has-text('Columns')")
    page.click(".choices label:has-text('jerk')")
    expect(heads).to_have_text(["id", "total_steps"])
    expect(page.locator(".choices label:has-text('novelty')")).to_contain_text("standard deviations")
    no_wider_than_the_screen(page)


def test_everything_is_reached_by_the_palette(page: Any, viewer: ViewerServer) -> None:
    opened(page, viewer, "#/kitchen")
    page.wait_for_selector("th:has-text('novelty')")
    for typed, there in (
        ("jerk", "th[aria-sort=ascending]:has-text('jerk')"),
        ("metad", "#tab-metadata[aria-selected=true]"),
    ):
        page.keyboard.press("Control+k")
        page.wait_for_selector("dialog[open] .offers li")
        page.keyboard.type(typed)
        page.wait_for_selector(f"dialog .offers li:first-child:has-text('{typed}')")
        page.keyboard.press("Enter")
        page.wait_for_selector(there)
    page.click("#palette")
    page.wait_for_selector("dialog[open] .offers li")
    no_wider_than_the_screen(page)
    page.keyboard.type("3")
    page.wait_for_selector("dialog .offers li:has-text('episode 3')")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('Episode 3')")


def test_breadcrumbs_say_where_the_page_is_and_lead_back(page: Any, viewer: ViewerServer) -> None:
    crumbs = page.locator("#crumbs")
    opened(page, viewer)
    page.click(".card:has-text('kitchen')")
    expect(page).to_have_title("kitchen - penstock")
    expect(crumbs).to_have_text("kitchen")
    page.click("#episodes tbody tr >> nth=2")
    expect(page).to_have_title("kitchen 2 - penstock")
    expect(crumbs).to_have_text("kitchen / episode 2")
    crumbs.locator("a").click()
    expect(page).to_have_title("kitchen - penstock")
    expect(crumbs).to_have_text("kitchen")
    page.wait_for_selector("#episodes tbody tr")
    page.go_back()
    expect(crumbs).to_have_text("kitchen / episode 2")
    page.evaluate("location.hash = '#/clean/1'")
    expect(crumbs).to_have_text("clean / episode 1")
    page.evaluate("location.hash = '#/'")
    expect(page).to_have_title("datasets - penstock")
    expect(crumbs).to_be_empty()
    no_wider_than_the_screen(page)


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
    page.wait_for_selector("#row:has-text('step 39 of 39')")
    page.wait_for_selector("#play[aria-label=play]")


def test_two_episodes_side_by_side(page: Any, viewer: ViewerServer) -> None:
    opened(page, viewer, "#/kitchen")
    page.wait_for_selector("text=frozen-sensor")  # findings that come later would move the curves
    opened(page, viewer, "#/kitchen/0?with=2&row=5")
    expect(page.locator("section h1")).to_have_text(["Episode 0", "Episode 2"])
    expect(page.locator(".cameras canvas[data-row='5']")).to_have_count(2)
    curves_drawn(page).first.click()  # in its middle, when it is drawn
    page.wait_for_selector("#row:text-matches('^step [234][0-9] of')")
    no_wider_than_the_screen(page)


THUMBNAIL = "document.querySelector('.thumbnail')"
POINTED = f"""{THUMBNAIL}.dispatchEvent(new PointerEvent('pointer%s',
  {{ clientX: {THUMBNAIL}.getBoundingClientRect().left + 1 }}))"""
SHOWN = f"['img', '.unread'].filter((each) => {THUMBNAIL}.querySelector(`${{each}}:not([hidden])`)).join()"


@pytest.mark.parametrize("page", ["light", "phone"], indirect=True)
def test_the_message_of_a_picture_that_cannot_be_read_is_in_its_place(
    page: Any, serve: Serve, damaged_pictures: Path
) -> None:
    server, said = serve(damaged_pictures), ".unread:has-text('expected an image')"
    opened(page, server, "#/pictures")
    page.wait_for_selector(f".frames {said}")
    expect(page.locator(".frames img:visible")).to_have_count(3)
    page.wait_for_selector(f"#episodes {said}")
    no_wider_than_the_screen(page)
    opened(page, server, "#/pictures?view=grid")
    page.wait_for_selector(".thumbnail img")
    until(page, f"{POINTED % 'move'} && {SHOWN} === '.unread'")  # until: the grid is drawn again when all is checked
    until(page, f"{POINTED % 'leave'} && {SHOWN} === 'img'")
    opened(page, server, "#/pictures/0")
    page.wait_for_selector(".cameras .message:has-text('expected an image')")


def test_a_dataset_without_episodes_says_so(page: Any, serve: Serve, tmp_path: Path) -> None:
    data = penstock.from_arrays({"rewards": np.zeros(2)}, lengths=[2])
    penstock.convert(data[:0], tmp_path / "none", format="columns", certificate=False, allow_empty=True)
    server = serve(tmp_path / "none")
    opened(page, server, "#/none")
    page.wait_for_selector("#findings:has-text('no episodes')")
    expect(page.locator("#episodes .message")).to_have_text("no episodes")
    opened(page, server, "#/none/review")
    page.wait_for_selector("text=0 of 0 episodes reviewed")
    opened(page, server, "#/none/0")
    page.wait_for_selector("[role=alert]:has-text('no episodes')")


def test_what_does_not_exist_is_said(page: Any, viewer: ViewerServer) -> None:
    opened(page, viewer, "#/clean/99")
    page.wait_for_selector(".message:has-text('within 0:5')")
    page.context.clear_cookies()
    page.goto("about:blank")


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_names_and_metadata_are_text(page: Any, serve: Serve, tmp_path: Path) -> None:
    """Nothing of the data is executed: markup in names and metadata is shown as it is."""
    spec = penstock.Spec({"<img src=x onerror=alert(1)>": penstock.Field(np.dtype("f4"))})
    with named("columns").create(tmp_path / "<b>data", spec, {"title": "<script>window.hit = 1</script>"}) as writer:
        values = np.arange(12, dtype="f4")
        writer.write(penstock.Episode(spec, {next(iter(spec)): values}, 0, {"note": "<img src=x onerror=alert(1)>"}))
    server = serve(tmp_path / "<b>data")
    alerts: list[str] = []
    page.on("dialog", lambda dialog: (alerts.append(dialog.message), dialog.dismiss()))
    page.goto(server.address)
    page.wait_for_selector("h1:has-text('<b>data')")
    page.goto(server.address + "#/%3Cb%3Edata/0")
    page.wait_for_selector(".curve canvas[width]")
    assert page.evaluate("window.hit") is None
    assert alerts == []


def test_marks_by_keyboard(page: Any, serve: Serve, datasets: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "marks.json"
    address = serve(datasets["kitchen"], curation=file).address
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
    expect(page.locator("#marks")).not_to_contain_text("null")
    no_wider_than_the_screen(page)
    assert Curation.read(file)[3] == penstock.curation.EpisodeMarks({"good"}, 4, True, "", [(5, 15, "slip")])
    with Curation.edit(file, penstock.open(datasets["kitchen"]).source) as curation:  # by another person
        curation[3] = penstock.curation.EpisodeMarks({"good"}, 2, True, "", [(5, 15, "slip")])
    page.evaluate("dispatchEvent(new Event('focus'))")
    page.wait_for_selector("button[aria-label='rate 2'][aria-pressed=true]")
    page.keyboard.press("t")
    page.keyboard.type("two words")
    with page.expect_response(lambda answer: "two words" in (answer.request.post_data or "")) as refused:
        page.keyboard.press("Enter")
    assert refused.value.status == 400
    page.wait_for_selector("#marks [role=alert]:has-text('spaces')")
    expect(page.locator("#marks .tag")).to_have_count(1)
    page.goto(address + "#/kitchen?where=excluded")
    page.wait_for_selector("#count:has-text('1 of 5')")
    page.wait_for_selector("th:has-text('tags/good')")


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_a_zoom_whose_rows_come_late_is_not_drawn(page: Any, viewer: ViewerServer) -> None:
    release = hold_answers(page, "first=34&last=57")
    opened(page, viewer, "#/kitchen/1?row=45")
    page.wait_for_selector(".curve canvas[width]")
    curves = "[...document.querySelectorAll('.curve canvas')]"
    page.evaluate(f"window.drawn = () => String({curves}.map((each) => each.toDataURL()))")
    page.evaluate("window.whole = drawn()")
    page.keyboard.press("+")
    until(page, "drawn() !== whole")
    page.keyboard.press("+")
    page.keyboard.press("-")
    page.keyboard.press("-")
    until(page, "drawn() === whole")
    release()
    assert page.evaluate("drawn() === whole")


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_marks_that_were_set_on_refused_ones_are_taken_back(
    page: Any, serve: Serve, datasets: dict[str, Path], tmp_path: Path
) -> None:
    file, asked = tmp_path / "marks.json", list[Any]()
    page.route("**/marks/3*", lambda route: asked.append(route))  # noqa: PLW0108  Playwright marks it
    page.goto(serve(datasets["kitchen"], curation=file).address + "#/kitchen/3")
    page.wait_for_selector("#marks")
    page.keyboard.press("x")
    page.keyboard.press("4")
    rate = page.locator("button[aria-label='rate 4']")
    expect(rate).to_have_attribute("aria-pressed", "true")
    while not asked:
        page.wait_for_timeout(10)
    asked[0].fulfill(status=400, json={"error": "the disk is full"})
    page.wait_for_selector("#marks [role=alert]:has-text('disk')")
    expect(rate).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#marks .chip.error")).to_have_count(0)
    page.unroute("**/marks/3*")
    with page.expect_response("**/marks/3*") as saved:
        page.keyboard.press("4")
    assert saved.value.ok
    assert Curation.read(file)[3] == penstock.curation.EpisodeMarks(rating=4)
    assert len(asked) == 1
