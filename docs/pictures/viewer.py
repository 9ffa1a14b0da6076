"""Draw the pictures of the viewer with Chromium: `python docs/pictures/viewer.py [CHROMIUM]`."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path

from penstock.domains.driving.map import MapAPI
from penstock.domains.driving.map.api import load_metadata, matrix_of
from penstock.viewer.server import ViewerServer

HERE = Path(__file__).parent
GOLDEN = HERE.parents[1] / "tests" / "golden"
DATA = ("lerobot/v3_video", "l5kit/single.zarr", "lc0/gz")
EPISODES = {  # name of the picture: address, and what is there when it is drawn
    "viewer_episode": ("#/v3_video/1?row=20", ".cameras canvas[data-row='20']"),
    "viewer_driving": ("#/single.zarr/0?row=120", "canvas.scene[data-row='120']"),
    "viewer_chess": ("#/gz/0?row=23", ".board[data-row='23']"),
}


def main() -> None:
    """Draw a dataset and episodes of a robot, a driving log and a game of chess."""
    from playwright.sync_api import sync_playwright  # of the group `browser`, which tests do not install

    chromium = sys.argv[1] if len(sys.argv) > 1 else shutil.which("chromium")
    world_to_ecef = matrix_of(load_metadata(GOLDEN / "l5kit" / "meta.json"), "world_to_ecef")
    road = MapAPI(GOLDEN / "l5kit" / "semantic_map.pb", world_to_ecef)
    with ViewerServer([str(GOLDEN / path) for path in DATA], road=road) as server, sync_playwright() as playwright:
        thread = threading.Thread(target=server.run)
        thread.start()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 760})
        page.goto(server.address + "#/v3_video")
        page.wait_for_selector("th:has-text('novelty')")
        page.locator(".location").evaluate("(line) => { line.textContent = './v3_video'; }")
        page.screenshot(path=HERE / "viewer_dataset.png")
        for name, (address, drawn) in EPISODES.items():
            page.goto(server.address + address)
            page.wait_for_selector(drawn)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=HERE / f"{name}.png")
        browser.close()
        server.stop()
        thread.join()


if __name__ == "__main__":
    main()
