"""Draw the pictures of the viewer with Chromium: `python docs/pictures/viewer.py [CHROMIUM]`."""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path

from penstock.viewer.server import ViewerServer

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "tests" / "golden" / "lerobot" / "v3_video"


def main() -> None:
    """Draw a dataset and an episode of LeRobot's format."""
    from playwright.sync_api import sync_playwright  # of the group `browser`, which tests do not install

    chromium = sys.argv[1] if len(sys.argv) > 1 else shutil.which("chromium")
    with ViewerServer([str(DATA)]) as server, sync_playwright() as playwright:
        thread = threading.Thread(target=server.run)
        thread.start()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 760})
        page.goto(server.address)
        page.wait_for_selector("th:has-text('novelty')")
        page.locator(".location").evaluate("(line) => { line.textContent = './v3_video'; }")
        page.screenshot(path=HERE / "viewer_dataset.png")
        page.goto(server.address + "#/v3_video/1?row=20")
        page.wait_for_selector(".cameras canvas[data-row='20']")
        page.screenshot(path=HERE / "viewer_episode.png")
        browser.close()
        server.stop()
        thread.join()


if __name__ == "__main__":
    main()
