"""The page of an episode: values and pictures are those of the data, curves can be zoomed and compared, keys reach all.

Data are files of other projects, or written by real encoders; what the page shows is compared with what penstock reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

import penstock
from browser.conftest import Serve, curves_drawn, no_wider_than_the_screen, until
from penstock_studio.viewer.server import ViewerServer
from viewer.conftest import serving

GOLDEN = Path(__file__).parents[4] / "tests" / "golden"
FILES = ("lerobot/v3_video", "lerobot/depth_image_mm", "lerobot/language", "lerobot/v3_types", "rlds/tfrecord")
SIDE = 320, 272  # larger than what is sent as PNG
PIXELS = """(canvas) => {
  const copy = document.createElement("canvas");
  Object.assign(copy, { width: canvas.width, height: canvas.height });
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  return Array.from(context.getImageData(0, 0, copy.width, copy.height).data);
}"""
LABELLED = """[...document.querySelectorAll("button, input, select")].every((each) =>
  each.hidden || each.textContent.trim() || each.ariaLabel || each.labels?.length)"""
IS_DRAWN = """[...document.querySelectorAll("canvas.ahead")].some((each) => each.width &&
  each.getContext("2d").getImageData(0, 0, each.width, each.height).data.some(Boolean))"""
RECORD_ROWS = """() => {
  const row = document.getElementById("row");
  window.rows = new Set();
  const seen = new MutationObserver(() => rows.add(Number(row.textContent.split(" ")[1])));
  seen.observe(row, { childList: true, subtree: true });
}"""
RECORD_LINES = """(() => {
  window.lines = [];
  const { lineTo, moveTo } = Path2D.prototype, places = new WeakMap();
  Path2D.prototype.moveTo = function (x, y) { places.set(this, [x, y]); moveTo.call(this, x, y); };
  Path2D.prototype.lineTo = function (x, y) {
    const from = places.get(this);
    if (from) lines.push([x - from[0], y - from[1]]);
    places.set(this, [x, y]);
    lineTo.call(this, x, y);
  };
})()"""
light = pytest.mark.parametrize("page", ["light"], indirect=True)


@pytest.fixture(scope="module")
def robots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewerServer]:
    """A viewer of golden files, and of video that an encoder made here: each frame has its number in gray."""
    folder = tmp_path_factory.mktemp("robots")
    n = 90
    frames = np.zeros((n, SIDE[1], SIDE[0], 3), np.uint8)
    frames[:] = (20 + 2 * np.arange(n))[:, None, None, None]
    frames[:, 40:80, 60:120] = (200, 60, 40)
    actions = np.random.default_rng(3).normal(size=(n, 2)).astype("f4")
    columns = {"actions": actions, "camera": frames, "mode": np.repeat(np.arange(9), 10), "big": np.arange(n) + 2**60}
    names = {"element_names": {"actions": ["left", "right"]}, "value_names": {"mode": ["idle", "go", "stop"]}}
    data = penstock.from_arrays(columns, lengths=[50, 40], metadata={"fps": 10, "units": {"actions": "m"}, **names})
    penstock.convert(data, folder / "states", format="columns", certificate=False)
    film = penstock.from_arrays({"actions": actions, "camera": frames}, lengths=[50, 40], metadata={"fps": 10})
    options = {"cameras": "video", "codec": "libx264", "g": 25}  # long groups, whose packets are in another order
    penstock.convert(film, folder / "video", format="lerobot", certificate=False, options=options)
    chunks = np.stack([np.roll(actions, -step, axis=0) for step in range(8)], axis=1) + np.float32(0.5)
    policy = penstock.from_arrays({"actions": chunks}, lengths=[50, 40])
    penstock.convert(policy, folder / "policy", format="columns", certificate=False)
    with serving(*(GOLDEN / path for path in FILES), folder / "states", folder / "video") as server:
        yield server


def shown(page: Any, title: str) -> Any:
    """The plot of a column."""
    return page.locator(".curve").filter(has=page.locator(f".name > b:text-is('{title}')"))


def values(page: Any, title: str) -> list[str]:
    return [text for text in shown(page, title).locator("output").all_inner_texts() if text]


@pytest.mark.parametrize("page", ["dark", "phone"], indirect=True)
def test_values_at_the_row_and_under_the_mouse_are_those_of_the_data(page: Any, robots: ViewerServer) -> None:
    page.goto(robots.address + "#/v3_video/1?row=20")
    curves_drawn(page)
    with penstock.open(GOLDEN / FILES[0]) as data:
        states = data[1].columns["observations/state"]
    until(page, "document.querySelectorAll('.curve output')[5]?.textContent")
    found = [float(text) for text in values(page, "observations/state")]
    np.testing.assert_allclose(found, states[20], rtol=1e-4)
    labels = shown(page, "observations/state").locator("li button").all_inner_texts()
    assert labels == [f"j{i}" for i in range(6)]
    over = shown(page, "observations/state").locator(".u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    over.hover(position={"x": box["width"] * (10.5 / 40), "y": 30})  # the middle of step 10
    hovered = shown(page, "observations/state").locator(".hovered")
    expect(hovered.first).not_to_be_empty()
    np.testing.assert_allclose([float(text) for text in hovered.all_inner_texts()], states[10], rtol=1e-4)
    no_wider_than_the_screen(page)


@light
def test_exact_values_of_a_thinned_curve_and_of_large_integers(page: Any, serve: Serve, tmp_path: Path) -> None:
    random = np.random.default_rng(7).normal(size=20_000)
    columns = {"rewards": random, "count": np.arange(20_000) + 2**60}
    penstock.convert(penstock.from_arrays(columns, lengths=[20_000]), tmp_path / "long", certificate=False)
    page.goto(serve(tmp_path / "long").address + "#/long/0?row=777")
    count = shown(page, "count").locator("output")
    expect(count).to_have_text(str(777 + 2**60))
    expect(shown(page, "rewards").locator("output")).not_to_contain_text("…")
    assert float(values(page, "rewards")[0]) == pytest.approx(random[777], rel=2e-5)
    table = shown(page, "rewards").locator("table td")
    assert float(table.nth(2).inner_text()) == random.min()  # kept where points stand for many rows
    assert float(table.nth(3).inner_text()) == random.max()


@light
def test_integers_are_steps_and_named_values_are_bands(page: Any, robots: ViewerServer) -> None:
    page.add_init_script(RECORD_LINES)
    measured = "observations/state|actions|rewards|observations/effort|timestamp"
    page.goto(robots.address + f"#/v3_video/1?row=10&hide={measured}")
    until(page, "lines.length > 100")
    moves = np.array(page.evaluate("lines"))
    assert ((moves[:, 0] == 0) | (moves[:, 1] == 0)).all()
    assert (np.abs(moves[:, 1]) > 1).any()
    expect(shown(page, "terminations").locator("output")).to_have_text("false")
    page.goto(robots.address + "#/states/0?row=10")
    expect(shown(page, "mode").locator("output")).to_have_text("1 = go")
    expect(shown(page, "mode")).to_have_class(re.compile("state"))


@light
def test_a_small_picture_is_the_row_bit_for_bit(page: Any, robots: ViewerServer) -> None:
    page.goto(robots.address + "#/v3_video/1?row=17")
    page.wait_for_selector(".cameras canvas[data-row='17'][data-kind=png]")
    with penstock.open(GOLDEN / FILES[0]) as data:
        frame = data[1].columns["observations/images/top"][17]
    canvas = page.locator("canvas[aria-label='observations/images/top'][data-row='17']")
    found = np.array(canvas.evaluate(PIXELS), np.uint8).reshape(*frame.shape[:2], 4)
    np.testing.assert_array_equal(found[..., :3], frame)


@light
def test_frames_of_stored_video_are_those_of_the_row(page: Any, robots: ViewerServer) -> None:
    page.goto(robots.address + "#/video/1?row=0")
    canvas = page.locator("canvas[aria-label='camera']")
    with penstock.open(next(data.summary()["location"] for data in robots.datasets if data.name == "video")) as data:
        frames = np.asarray(data[1].columns["camera"])
    for row in (0, 39, 13, 14, 31):  # also backwards, and across chunks
        page.evaluate(f"location.hash = '#/video/1?row={row}'")
        page.wait_for_selector(f"canvas[aria-label='camera'][data-row='{row}']")
        found = np.array(canvas.evaluate(PIXELS), np.uint8).reshape(*SIDE[::-1], 4)[..., :3]
        assert np.abs(found[200, 200].astype(int) - frames[row][200, 200]).max() <= 2, row  # neighbours differ by 2
        assert np.abs(found.astype(int) - frames[row]).mean() < 2
    expect(canvas).to_have_attribute("data-kind", "video")
    page.locator("figcaption:has-text('camera') .badge").click()
    page.wait_for_selector("canvas[aria-label='camera'][data-kind=png][data-row='31']")
    found = np.array(canvas.evaluate(PIXELS), np.uint8).reshape(*SIDE[::-1], 4)[..., :3]
    np.testing.assert_array_equal(found, frames[31])
    page.wait_for_url("**exact=camera**")


@light
def test_lossy_pictures_say_so_where_the_browser_has_no_decoder(page: Any, robots: ViewerServer) -> None:
    page.add_init_script("delete globalThis.VideoDecoder")
    page.goto(robots.address + "#/video/0?row=4")
    page.wait_for_selector("canvas[aria-label='camera'][data-kind=jpeg][data-row='4']")
    expect(page.locator(".badge")).to_have_text("JPEG")


@pytest.mark.parametrize("page", ["dark", "phone"], indirect=True)
def test_depth_has_colours_with_a_scale(page: Any, robots: ViewerServer) -> None:
    page.goto(robots.address + "#/depth_image_mm/1?row=2")
    page.wait_for_selector("canvas[aria-label='observations/images/depth'][data-row='2']")
    expect(page.locator(".scale")).to_contain_text("mm")
    expect(page.locator("figcaption:has-text('depth in colour')")).to_be_visible()
    no_wider_than_the_screen(page)


@light
def test_texts_are_at_their_time(page: Any, robots: ViewerServer) -> None:
    with penstock.open(GOLDEN / FILES[2]) as data:
        texts = data[0].columns["language_events"].strings()
    row = next(i for i, text in enumerate(texts) if i and text != texts[i - 1])
    page.goto(robots.address + f"#/language/0?row={row}")
    panel = page.locator("figure.text:has-text('language_events')")
    expect(panel.locator("blockquote")).to_have_text(texts[row])
    panel.locator("summary").click()
    panel.locator("ol button").first.click()
    expect(page.locator("#row")).to_contain_text("step 0 of")


@light
def test_a_drag_zooms_all_curves_and_the_address_has_it(page: Any, robots: ViewerServer) -> None:
    page.goto(robots.address + "#/v3_video/1?row=20")
    box = curves_drawn(page).first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 30, steps=4)
    page.mouse.up()
    page.wait_for_url("**range=10-19**")
    assert curves_drawn(page).count() > 3
    address = page.url
    page.keyboard.press("a")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("b")
    page.locator(".curve .tools button[aria-label='hide actions']").click()
    page.wait_for_url("**hide=actions**a=20&b=21**")
    expect(page.locator(".marks-readout")).to_have_text("A 20 · B 21 · B − A: 1 steps, 0.1 s")
    full = page.url
    page.goto("about:blank")
    page.goto(full)
    expect(page.locator(".away")).to_have_text("hidden: actions")
    curves_drawn(page)
    expect(page.locator(".marks-readout")).to_be_visible()
    curves_drawn(page).first.dblclick()
    until(page, "!location.hash.includes('range')")
    assert "range=10-19" in address


@pytest.mark.parametrize("page", ["light", "phone"], indirect=True)
def test_the_player_covers_nothing_and_plays_a_loop(page: Any, robots: ViewerServer) -> None:
    page.goto(robots.address + "#/v3_video/1?row=12&range=10-14")
    curves_drawn(page)
    player, stage = page.locator(".player").bounding_box(), page.locator(".stage").bounding_box()
    assert stage["y"] + stage["height"] <= player["y"]
    assert player["height"] == 56
    inside = page.locator(".player").evaluate("(row) => row.scrollWidth <= row.clientWidth")
    assert inside
    page.keyboard.press("l")
    page.keyboard.press(">")
    page.keyboard.press(">")
    expect(page.locator("#speed")).to_have_value("4")
    page.evaluate(RECORD_ROWS)
    page.keyboard.press("Space")
    until(page, "rows.has(14) && rows.has(10)")
    page.keyboard.press("Space")
    assert set(page.evaluate("[...rows]")) <= {10, 11, 12, 13, 14}
    page.keyboard.press("?")
    expect(page.locator("#sheet")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#sheet")).to_be_hidden()


@light
def test_a_plot_is_reached_by_keys_and_read_out(page: Any, robots: ViewerServer) -> None:
    page.goto(robots.address + "#/states/0?row=3")
    curves_drawn(page)
    shown(page, "actions").locator(".plot").focus()
    page.keyboard.press("ArrowRight")
    live = page.locator("[aria-live=polite]")
    expect(live).to_contain_text("actions at step 4: left")
    expect(shown(page, "actions").locator("table caption")).to_contain_text("actions, steps 0 to 49")
    expect(shown(page, "actions").locator(".unit")).to_have_text("[m]")
    assert page.evaluate(LABELLED)


@light
def test_episodes_are_compared_at_an_event(page: Any, robots: ViewerServer) -> None:
    location = next(data.summary()["location"] for data in robots.datasets if data.name == "states")
    with penstock.open(location) as data:
        first, other = (np.asarray(data[e].columns["actions"]) for e in (0, 1))
    page.goto(robots.address + "#/states/0?row=12&with=1&align=last:mode&diff=1")
    curves_drawn(page)
    expect(page.locator("section h1")).to_have_text(["Episode 0", "Episode 1"])
    difference = shown(page, "actions: Episode 0 − Episode 1")
    expect(difference.locator("output").first).not_to_be_empty()
    found = [float(text) for text in difference.locator("output").all_inner_texts()]
    np.testing.assert_allclose(found, first[12] - other[12 - 40 + 30], rtol=1e-4)  # `mode` changes last at 40 and at 30
    expect(page.locator("#align")).to_have_value("last:mode")
    page.goto(robots.address + "#/states/0?row=2&with=video:1")
    expect(page.locator("section h1")).to_have_text(["Episode 0", "video, episode 1"])


@light
def test_chunks_of_a_policy_are_drawn_over_the_curves(page: Any, serve: Serve, robots: ViewerServer) -> None:
    location = next(Path(data.summary()["location"]) for data in robots.datasets if data.name == "states")
    server = serve(location, predictions=str(location.parent / "policy"))
    page.goto(server.address + "#/states/0?row=10")
    curves_drawn(page)
    until(page, IS_DRAWN)


@light
def test_a_plot_is_saved_as_a_picture(page: Any, robots: ViewerServer) -> None:
    page.goto(robots.address + "#/v3_video/1?row=5")
    curves_drawn(page)
    with page.expect_download() as saved:
        page.click("button[aria-label='picture of actions']")
    assert saved.value.suggested_filename == "v3_video_1_actions.png"
    assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
    with page.expect_download() as saved, penstock.open(GOLDEN / FILES[0]) as data:
        page.click("button[aria-label='picture of observations/images/top']")
        frame = data[1].columns["observations/images/top"][5]
    np.testing.assert_array_equal(np.asarray(Image.open(saved.value.path()).convert("RGB")), frame)
