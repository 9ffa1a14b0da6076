"""Pages of real files of every format: what they draw, with which keys, without errors and at any width."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from playwright.sync_api import expect

import penstock
from browser.conftest import Serve, curves_drawn, hold_answers, no_wider_than_the_screen, until
from penstock.data.curation import Curation
from penstock.errors import DamageWarning
from penstock.formats.base.format import available
from penstock_studio.viewer.server import ViewerServer
from viewer.conftest import serving

GOLDEN = Path(__file__).parents[4] / "tests" / "golden"
DATA = {
    "lc0": "lc0/gz",
    "l5kit": "l5kit/single.zarr",
    "lerobot": "lerobot/v3_video",
    "minari": "minari/0.5.4/hdf5-image-v0",
    "minari-nested": "minari/0.5.4/arrow-nested-v0",
    "rlds": "rlds/tfrecord",
    "demos": "ilr/native/magical/move-to-region",
    "demos-imitation": "imitation/folder",
    "zarr": "zarr/buffer3.zarr.zip",
    **{name: f"driving/{name}" for name in ("argoverse2", "nuplan", "py123d", "waymo")},
}
NAMES = (*DATA, "columns", "webdataset", "tables", "mapping", "lc0-archive")
THEMES = ("phone", "dark")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewerServer]:
    """A viewer of copies of the files, because marks are written next to them."""
    folder = tmp_path_factory.mktemp("real")
    for name, path in DATA.items():
        copy = shutil.copytree if (GOLDEN / path).is_dir() else shutil.copy
        copy(GOLDEN / path, folder / name)
    penstock.convert(GOLDEN / DATA["lc0"], folder / "lc0-archive", format="lc0-archive", certificate=False)
    with penstock.open(GOLDEN / DATA["lerobot"]) as robot:
        for name in ("columns", "webdataset"):
            target = folder / ("webdataset.tar" if name == "webdataset" else name)
            penstock.convert(robot, target, format=name, certificate=False)
        (folder / "tables").mkdir()
        rows = {"episode_index": np.repeat(np.arange(len(robot)), robot.episodes.length)}
        rows["reward"] = np.arange(robot.total_steps) % 7 / 3
        pyarrow.parquet.write_table(pyarrow.table(rows), folder / "tables" / "part.parquet")
    (folder / "mapping").mkdir()
    for run in range(2):
        (folder / "mapping" / f"run_{run}.csv").write_text("x,action\n0.5,1\n0.25,0\n0.75,1\n")
    (folder / "mapping" / "penstock.toml").write_text('penstock_mapping = 1\nfiles = "run_{n}.csv"\n')
    view = {"map": str(GOLDEN / "l5kit/semantic_map.pb"), "meta": str(GOLDEN / "l5kit/meta.json")}
    locations = [str(path) for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    with ExitStack() as servers:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DamageWarning)  # of a column without one type, and frames without a pose
            server = servers.enter_context(serving(*locations, view=view))
        yield server


def test_every_format_has_a_page(real: ViewerServer) -> None:
    assert {data.summary()["format"] for data in real.datasets} == set(available())


@pytest.mark.parametrize(("page", "name"), [(THEMES[i % 2], name) for i, name in enumerate(NAMES)], indirect=["page"])
def test_the_pages_of_a_format(page: Any, real: ViewerServer, name: str) -> None:
    served = next(data.name for data in real.datasets if data.name.split(".")[0] == name)
    page.goto(f"{real.address}#/{served}")
    page.wait_for_selector("#episodes tbody tr")
    page.wait_for_selector("th:has-text('findings')")
    expect(page.locator("#findings [role=status]")).to_have_count(0)  # findings that come later would move the rows
    no_wider_than_the_screen(page)
    page.locator("#episodes tbody tr").nth(1 if name != "l5kit" else 0).click()
    page.wait_for_selector("#row:has-text('step 0 of')")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#row:has-text('step 1 of'), #row:has-text('after step 0'), #row:has-text('of 0')")
    page.keyboard.press("+")
    page.keyboard.press("End")
    page.keyboard.press("-")
    page.wait_for_selector(".curve canvas, .cameras canvas, .constants li", state="attached")
    expect(page.locator(".message.error")).to_have_count(0)
    no_wider_than_the_screen(page)


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_an_episode_without_steps(page: Any, serve: Serve, tmp_path: Path) -> None:
    columns = {"rewards": np.zeros(2), "camera": np.zeros((2, 9, 9, 3), np.uint8)}
    penstock.convert(penstock.from_arrays(columns, lengths=[0, 2]), tmp_path / "short", certificate=False)
    page.goto(serve(tmp_path / "short").address + "#/short/0")
    page.wait_for_selector("#row:has-text('step 0 of 0')")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    page.wait_for_selector(".curve canvas")
    page.keyboard.press("n")
    page.wait_for_selector(".cameras canvas[data-row='0']")
    page.wait_for_selector(".constants:has-text('rewards')")


GRIDS = {
    "lerobot": ".grid .thumbnail img",
    "lc0": ".grid .thumbnail svg.board[data-row='39']",
    "l5kit": ".grid .thumbnail canvas.scene[data-row='124']",
    "minari-nested": ".grid .thumbnail svg.lines path",
}


@pytest.mark.parametrize(("page", "name"), [(THEMES[i % 2], name) for i, name in enumerate(GRIDS)], indirect=["page"])
def test_episodes_as_a_grid(page: Any, real: ViewerServer, name: str) -> None:
    page.goto(f"{real.address}#/{name}")
    page.wait_for_selector("th:has-text('findings')")  # after the check, which draws the episodes again
    page.click("button:text-is('Grid')")
    page.wait_for_url("**view=grid")
    page.locator(".grid .thumbnail").first.scroll_into_view_if_needed()  # what cannot be seen is not made
    page.wait_for_selector(GRIDS[name])
    no_wider_than_the_screen(page)
    first = page.locator(".grid .card").first
    expect(first.locator(".counts li").first).to_have_text("0")
    if name == "lerobot":  # the middle of the episode, and what is under the mouse
        shown = first.locator("img")
        expect(shown).to_have_attribute("src", re.compile("/picture/0/12[?]"))
        shown.scroll_into_view_if_needed()
        shown.hover(position={"x": shown.bounding_box()["width"] - 2, "y": 20})
        expect(shown).to_have_attribute("src", re.compile("/picture/0/24[?]"))
        page.mouse.move(0, 0)
        expect(shown).to_have_attribute("src", re.compile("/picture/0/12[?]"))
        page.select_option("#looks", label="shortest")
        expect(first.locator(".counts li").first).to_have_text("2")  # which has 13 steps
    first.locator("a").click()
    page.wait_for_selector("#row:has-text('step 0 of')")


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_the_pixel_under_the_mouse_has_the_values_of_the_data(page: Any, real: ViewerServer) -> None:
    served = next(data for data in real.datasets if data.name == "rlds")
    with penstock.open(GOLDEN / DATA["rlds"]) as data:
        camera = next(path for path in served.contents.cameras if data.spec[path].dtype == np.uint16)
        depth = data[1][camera][3].squeeze()
    page.goto(f"{real.address}#/rlds/1?row=3")
    canvas = page.locator(f"canvas[aria-label='{camera}'][data-row='3']")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    height, width = depth.shape
    x, y = width // 3, height // 2
    page.mouse.move(box["x"] + (x + 0.5) * box["width"] / width, box["y"] + (y + 0.5) * box["height"] / height)
    page.wait_for_selector(f"output.pixel:has-text('x {x}, y {y}: {int(depth[y, x]):,}')")
    page.mouse.move(0, 0)
    expect(page.locator("output.pixel", has_text="x ")).to_have_count(0)


TOUCH = """(places) => {
  const surface = document.querySelector(".curve .plot");
  const { left, top, width } = surface.querySelector(".u-over").getBoundingClientRect();
  for (const [kind, pointerId, share] of places) surface.dispatchEvent(new PointerEvent(kind,
    { pointerId, pointerType: "touch", bubbles: true, clientX: left + share * width, clientY: top + 20 }));
}"""


@pytest.mark.parametrize("page", ["phone"], indirect=True)
def test_two_fingers_zoom_all_curves(page: Any, real: ViewerServer) -> None:
    page.goto(f"{real.address}#/lerobot/1")
    curves_drawn(page)
    page.evaluate(TOUCH, [["pointerdown", 1, 0.375], ["pointerdown", 2, 0.625]])
    page.evaluate(TOUCH, [["pointermove", 2, 0.875]])  # twice as far from each other: steps 15 to 25 are half the width
    page.wait_for_url(re.compile(r"range=\d+-\d+"))
    first, last = map(int, re.findall(r"range=(\d+)-(\d+)", page.url)[0])
    assert (first, last) == (pytest.approx(7, abs=1), pytest.approx(26, abs=1))
    page.evaluate(TOUCH, [["pointerup", 1, 0.375], ["pointerup", 2, 0.875]])
    page.evaluate(TOUCH, [["pointerdown", 3, 0.5], ["pointermove", 3, 0.5]])  # one finger moves the step
    page.wait_for_selector("#row:has-text('step 17 of 39')")


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_the_observation_after_the_last_step_is_on_the_axis(page: Any, real: ViewerServer) -> None:
    with penstock.open(GOLDEN / DATA["minari-nested"]) as data:
        episode = data[0]
        path = next(path for path, field in data.spec.items() if field.align == "boundary" and field.dtype.kind == "f")
        last = np.asarray(episode[path])[-1].reshape(-1)
    page.goto(f"{real.address}#/minari-nested/0")
    page.wait_for_selector(".curve canvas")
    page.keyboard.press("End")
    page.wait_for_selector(f"#row:has-text('after step {len(episode) - 1}')")
    box = page.locator(".curve", has=page.locator(f"b:text-is('{path}')"))
    expect(box.locator("li output").first).to_have_text(format(float(f"{last[0]:.5g}"), "g"))
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(f"#row:has-text('step {len(episode) - 1} of {len(episode) - 1}')")


def test_a_driving_scene_follows_the_row(page: Any, real: ViewerServer) -> None:
    page.goto(real.address + "#/l5kit/0?row=120")
    page.wait_for_selector("canvas.scene[data-row='120']")
    page.wait_for_selector("figcaption:has-text('12.0 s, 11.2 m/s')")
    page.evaluate("window.before = document.querySelector('canvas.scene').toDataURL()")
    page.click("button[aria-label='larger']")
    until(page, "document.querySelector('canvas.scene').toDataURL() !== before")
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_selector("canvas.scene[data-row='130']")
    legend = page.locator(".legend li")
    for place, kind in enumerate(("ego", "vehicles", "cycles")):
        expect(legend.nth(place)).to_have_text(kind)


def test_a_board_follows_the_row_and_moves_are_links(page: Any, real: ViewerServer) -> None:
    page.goto(real.address + "#/lc0/0?row=23")
    page.wait_for_selector("figcaption:has-text('black to move: 12... d7-d6')")
    expect(page.locator(".board path")).to_have_count(31)
    page.click(".moves button:has-text('1. g2-g4')")
    page.wait_for_selector(".board[data-row='1']")
    expect(page.locator(".moves [aria-current=true]")).to_have_text("1. g2-g4")
    page.wait_for_url("**row=1")


@pytest.mark.parametrize("page", ["dark"], indirect=True)
def test_a_span_is_excluded_by_keyboard_and_no_window_has_it(
    page: Any, serve: Serve, real: ViewerServer, tmp_path: Path
) -> None:
    file = tmp_path / "marks.json"
    location = next(data.summary()["location"] for data in real.datasets if data.name == "columns")
    address = serve(location, curation=file).address
    page.goto(address + "#/columns/1?row=5")
    page.wait_for_selector("#row:has-text('step 5 of')")
    page.keyboard.press("X")
    page.wait_for_selector("#exclude-span:has-text('from 5')")
    page.keyboard.press("Shift+ArrowRight")
    with page.expect_response("**/marks/1*") as saved:
        page.keyboard.press("X")
    assert saved.value.ok
    page.wait_for_selector("#marks .chip:has-text('excluded 5-15')")
    page.goto(address + "#/columns?sort=excluded_steps&descending=1")
    page.wait_for_selector("th:has-text('excluded_steps')")
    expect(page.locator("#episodes tbody td.number").first).to_have_text("1")
    assert Curation.read(file)[1].excluded_spans == ((5, 15),)
    with penstock.open(location, curation=file) as data:
        windows = data.filter("id == 1").windows(3).with_row_numbers()[:]["timesteps"]
        assert set(windows.ravel().tolist()) == set(range(5)) | set(range(16, 40))


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_what_is_worth_a_look_comes_first(page: Any, real: ViewerServer) -> None:
    page.goto(real.address + "#/lerobot")
    page.wait_for_selector("#looks option:has-text('jerkiest')", state="attached")
    choices = {"least like the others": "novelty", "stillest": "stillness", "shortest": "total_steps"}
    for choice, column in choices.items():
        page.select_option("#looks", label=choice)
        page.wait_for_selector(f"th[aria-sort]:has-text('{column}')")
    expect(page.locator("#episodes tbody tr").first.locator("td").nth(2)).to_have_text("13")


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_an_answer_that_comes_late_is_not_shown(page: Any, real: ViewerServer) -> None:
    release = hold_answers(page, "sort=novelty")
    page.goto(real.address + "#/lerobot")
    page.wait_for_selector("#looks option:has-text('jerkiest')", state="attached")
    page.select_option("#looks", label="least like the others")
    page.select_option("#looks", label="shortest")
    with penstock.open(GOLDEN / DATA["lerobot"]) as robot:
        lengths = [str(length) for length in sorted(robot.episodes.length)]
    shown = page.locator("#episodes tbody tr td:nth-child(3)")
    expect(shown).to_have_text(lengths)
    release()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("total_steps")
    assert shown.all_inner_texts() == lengths
