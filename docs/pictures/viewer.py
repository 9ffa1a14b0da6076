"""Draw the pictures of the viewer with Chromium: `python docs/pictures/viewer.py [CHROMIUM]`.

`python docs/pictures/viewer.py CHROMIUM FOLDER` draws every page in light, in dark and at phone width into a folder, to
be looked at. It takes half a minute: the curves of a running loader need some time to run.
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock_live import MetricsEndpoint
from penstock_studio.viewer.server import ViewerServer

HERE = Path(__file__).parent
GOLDEN = HERE.parents[1] / "tests" / "golden"
DATA = ("lerobot/v3_video", "l5kit/single.zarr", "lc0/gz")
WATCHED = 20.0  # seconds of a running loader
PLACE = "train.py:loader"
Pages = dict[str, tuple[str, str]]  # name of the picture: address, and what is there when it is drawn
DATASETS: Pages = {
    "viewer_dataset": ("#/v3_video", "th:has-text('novelty')"),
    "viewer_episode": ("#/v3_video/1?row=20", ".cameras canvas[data-row='20']"),
    "viewer_review": ("#/v3_video/1?queue=sort%3Dnovelty", ".cameras canvas[data-row='0']"),
    "viewer_compare": ("#/v3_video/1?row=12&with=3&diff=1&a=5&b=30", ".cameras canvas[data-row='12'] >> nth=3"),
    "viewer_driving": ("#/single.zarr/0?row=120", "canvas.scene[data-row='120']"),
    "viewer_chess": ("#/gz/0?row=23", ".board[data-row='23']"),
}
WAYS: dict[str, dict[str, Any]] = {
    "": {"viewport": {"width": 1100, "height": 760}},
    "_dark": {"viewport": {"width": 1100, "height": 760}, "color_scheme": "dark"},
    "_phone": {"viewport": {"width": 390, "height": 760}},
}


@contextmanager
def serving(locations: list[str], **given: Any) -> Iterator[ViewerServer]:
    """A server that runs."""
    with ViewerServer(locations, **given) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        yield server
        server.stop()
        thread.join()


def draw(browser: Any, server: ViewerServer, pages: Pages, folder: Path | None) -> None:
    """Draw pages into this folder, or in all ways into another one."""
    for suffix, way in WAYS.items() if folder else [("", WAYS[""])]:
        page = browser.new_context(**way).new_page()
        for name, (address, drawn) in pages.items():
            page.goto(server.address + address)
            page.wait_for_selector(drawn)
            page.wait_for_load_state("networkidle") if "live" not in name else None
            if page.locator(".location").count() and "v3_video" in address:
                page.locator(".location").first.evaluate("(line) => { line.textContent = './v3_video'; }")
            long = name in ("viewer_plan", "viewer_live") or folder is not None
            page.screenshot(path=(folder or HERE) / f"{name}{suffix}.png", full_page=long)
        page.context.close()


def packs() -> penstock.Loader:
    """Packs of a mix of two sets of episodes. The values do not matter: a plan depends on lengths."""
    random = np.random.default_rng(0)
    parts: dict[str, Any] = {}
    for name, longest in (("kitchen", 300), ("cartpole", 120)):
        lengths = random.integers(20, longest, 400).tolist()
        parts[name] = penstock.from_arrays({"x": np.zeros(sum(lengths), "u1")}, lengths).sequences().shuffle(seed=1)
    mixed = penstock.mix(parts, [0.7, 0.3], stop="first_exhausted", label=None).pack(512, window=256)
    return mixed.loader(batch_size=8, threads=0)


@contextmanager
def training() -> Iterator[MetricsEndpoint]:
    """A loader that is used."""
    data = penstock.from_arrays({"x": np.zeros((100_000, 64))}, [1000] * 100)
    windows = data.windows(16).shuffle(seed=0).map(lambda columns: {"x": columns["x"] * 2})
    loader = windows.loader(batch_size=256, threads=2)
    ended = threading.Event()

    def train() -> None:
        while not ended.is_set():
            for _ in loader:
                if ended.wait(0.001):
                    return

    with MetricsEndpoint(lambda: loader.stats.snapshot) as endpoint:
        thread = threading.Thread(target=train)
        thread.start()
        yield endpoint
        ended.set()
        thread.join()


def main() -> None:
    """Draw all pages: datasets, episodes, a plan, a batch, a running loader."""
    from playwright.sync_api import sync_playwright  # of the group `browser`, which tests do not install

    chromium = sys.argv[1] if len(sys.argv) > 1 else shutil.which("chromium")
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    view = {"map": str(GOLDEN / "l5kit" / "semantic_map.pb"), "meta": str(GOLDEN / "l5kit" / "meta.json")}
    video = penstock.open(GOLDEN / DATA[0])
    batches = video.windows(4).shuffle(seed=0).loader(batch_size=24, threads=0)
    ticket = next(iter(batches)).ticket
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        with training() as endpoint, serving([], live=str(endpoint.port)) as watching:
            with serving([str(GOLDEN / path) for path in DATA], view=view) as server:
                draw(browser, server, DATASETS, folder)
            with serving([], loader=packs(), place=PLACE) as server:
                draw(browser, server, {"viewer_plan": ("#plan", "#says")}, folder)
            with serving([], loader=batches, place=PLACE) as server:
                draw(browser, server, {"viewer_batch": (f"#ticket/{ticket}", "#rows tr img")}, folder)
            threading.Event().wait(WATCHED)
            draw(browser, watching, {"viewer_live": ("#live", "#stages")}, folder)
        browser.close()


if __name__ == "__main__":
    main()
