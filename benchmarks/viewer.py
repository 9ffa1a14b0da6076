"""Speed of the viewer in a browser: `python benchmarks/viewer.py [--chromium PATH]`.

Two claims. A dataset of 10^6 episodes is listed, sorted and filtered within 200 ms: by the server, and in the page,
from the key or the click to the new table, while the check of the dataset runs. And a video of 640 x 480 is scrubbed
at 30 frames a second: the slider moves 30 times a second, and the script in the page notes which pictures were shown
and how late. Videos have a key frame every 2 frames, as LeRobot writes them, or every 250, as encoders do by
themselves. Jumps come first, when nothing is in memory yet. Where rows are decoded, they are also shown once a frame
of the screen, and the memory of the page is measured after many of them. `make browser` installs Playwright.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import figures
import numpy as np

import penstock
from penstock_studio.viewer.server import ViewerServer

HEIGHT, WIDTH, FPS = 480, 640, 30
SCRUBBED = 30_000  # rows that are gone over for the memory of the page, each fifth of them shown
QUERIES = {
    "list": "",
    "sort": "&sort=total_steps&descending=1",
    "where": f"&where={quote('total_steps > 4')}",
    "where_sort": f"&where={quote('total_steps > 4 and total_steps % 2 == 0')}&sort=total_steps",
}
# Move the slider to each row, one every 1 / fps seconds; resolve to how late each shown row was, and the duration.
SCRUB = """async ([rows, fps]) => {
  const slider = document.querySelector("input[type=range]"), canvas = document.querySelector(".cameras canvas");
  const asked = new Map(), late = [];
  const seen = new MutationObserver(() => {
    const row = Number(canvas.dataset.row);
    if (asked.has(row)) { late.push(performance.now() - asked.get(row)); asked.delete(row); }
  });
  seen.observe(canvas, { attributes: true, attributeFilter: ["data-row"] });
  const begun = performance.now();
  for (const [i, row] of rows.entries()) {
    while (performance.now() < begun + (i * 1000) / fps) await new Promise((wake) => setTimeout(wake, 1));
    asked.set(row, performance.now());
    slider.value = String(row);
    slider.dispatchEvent(new Event("input"));
  }
  const seconds = (performance.now() - begun) / 1000;
  await new Promise((wake) => setTimeout(wake, 500));
  return [late, seconds];
}"""
# Move the slider once a frame of the screen; resolve to the milliseconds of each frame, and how many rows were shown.
EACH_FRAME = """async (rows) => {
  const slider = document.querySelector("input[type=range]"), canvas = document.querySelector(".cameras canvas");
  const times = [], shown = new Set();
  const seen = new MutationObserver(() => shown.add(canvas.dataset.row));
  seen.observe(canvas, { attributes: true, attributeFilter: ["data-row"] });
  let before = await new Promise(requestAnimationFrame);
  for (const row of rows) {
    slider.value = String(row);
    slider.dispatchEvent(new Event("input"));
    const now = await new Promise(requestAnimationFrame);
    times.push(now - before);
    before = now;
  }
  seen.disconnect();
  return [times, shown.size];
}"""
# Do something to the page and resolve to the milliseconds until its table of episodes was replaced.
UNTIL_TABLE = """async ([selector, key]) => {
  const table = document.querySelector("#episodes");
  const changed = new Promise((wake) => {
    new MutationObserver((_, observer) => { observer.disconnect(); wake(); }).observe(table, { childList: true });
  });
  const begun = performance.now();
  const target = document.querySelector(selector);
  if (key) target.dispatchEvent(new KeyboardEvent("keydown", { key })); else target.click();
  await changed;
  await new Promise(requestAnimationFrame);
  return performance.now() - begun;
}"""


@contextmanager
def served(path: Path) -> Iterator[ViewerServer]:
    with ViewerServer([str(path)]) as server:
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join()


def million(folder: Path, episodes: int) -> Path:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 9, episodes)
    columns = {"rewards": rng.normal(size=int(lengths.sum())).astype("f4")}
    penstock.convert(penstock.from_arrays(columns, lengths.tolist()), folder / "episodes", certificate=False)
    return folder / "episodes"


def film(folder: Path, codec: str, g: int, frames: int) -> Path:
    rng = np.random.default_rng(1)
    base = rng.integers(0, 256, (HEIGHT // 16, WIDTH // 16, 3), np.uint8).repeat(16, 0).repeat(16, 1)
    columns = {
        "observations/images/top": np.stack([np.roll(base, 3 * i, 1) for i in range(frames)]),
        "actions": rng.normal(size=(frames, 6)).astype("f4"),
    }
    data = penstock.from_arrays(columns, lengths=[frames])
    options = {"fps": FPS, "cameras": "video", "codec": codec, "g": g}
    out = folder / f"{codec}_{g}"
    penstock.convert(data, out, format="lerobot", options=options, fill_missing=True, certificate=False)
    return out


def asked(server: ViewerServer, path: str) -> float:
    """Milliseconds of one request."""
    place = urlsplit(server.address)
    begun = time.perf_counter()
    connection = http.client.HTTPConnection(place.netloc, timeout=60)
    connection.request("GET", f"{path}{'&' if '?' in path else '?'}{place.query}")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(json.loads(body)["error"])
    return 1000 * (time.perf_counter() - begun)


def table(browser: Any, folder: Path, episodes: int) -> None:
    print(f"\n{episodes:,} episodes, ms from request to answer: first, then the median of 20")
    path, begun = million(folder, episodes), time.perf_counter()
    with served(path) as server:
        opened = time.perf_counter() - begun
        figures.record("opened", opened, "s")
        print(f"  opened       {1000 * opened:7.1f}")
        for name, query in QUERIES.items():
            first = asked(server, f"/api/episodes/episodes?limit=50{query}")
            usual = statistics.median(asked(server, f"/api/episodes/episodes?limit=50{query}") for _ in range(20))
            figures.record(f"{name}_first", first / 1000, "s")
            figures.record(name, usual / 1000, "s")
            print(f"  {name:12} {first:7.1f} {usual:7.1f}")
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(server.address)
        page.wait_for_selector("#episodes tbody tr")
        print("in the page, ms to the new table while the check runs in the background: median of 10, most")
        for name, selector, key in (("sort", "th:nth-child(2) button", ""), ("where", "input.where", "Enter")):
            page.fill("input.where", "total_steps > 4")
            times = [page.evaluate(UNTIL_TABLE, [selector, key]) for _ in range(10)]
            figures.record(f"page_{name}", statistics.median(times) / 1000, "s")
            print(f"  {name:12} {statistics.median(times):7.1f} {max(times):7.1f}")
        page.close()
        print("closing", flush=True)


def scrubbed(browser: Any, folder: Path, codec: str, g: int, frames: int) -> None:
    with served(film(folder, codec, g, frames)) as server:
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(f"{server.address}#/{codec}_{g}/0")
        page.wait_for_selector(".cameras canvas[data-row='0']")
        time.sleep(1)  # the first chunk
        rng = np.random.default_rng(2)
        before = resident()
        ways = {
            "jumps": rng.integers(0, frames, 60).tolist(),
            "forward": list(range(1, frames)),
            "backward": list(range(frames - 2, -1, -1)),
            "twice": [abs(2 * i % (2 * frames - 2) - frames + 1) for i in range(frames // 2)],
        }
        for name, rows in ways.items():
            late, seconds = page.evaluate(SCRUB, [rows, FPS])
            rate = len(late) / seconds
            ordered = sorted(late) or [float("nan")]
            label = f"{codec}_{g}_{name}"
            figures.record(label, rate, "/s")
            print(
                f"  {codec:10} {g:4} {name:10} {rate:6.1f} of {FPS} pictures/s, late by "
                f"{statistics.median(ordered):5.0f} ms, at most {ordered[-1]:5.0f} ms",
                flush=True,
            )
        each_frame(page, f"{codec}_{g}", frames)
        page.close()
        print(f"  {'':15} memory of the server: {resident() - before:+.0f} MB")


def each_frame(page: Any, label: str, frames: int) -> None:
    """Rows at the rate of the screen where they are decoded, then the memory of the page after many rows."""
    near = list(range(min(frames, 96)))
    page.evaluate(EACH_FRAME, near)
    times, shown = page.evaluate(EACH_FRAME, near)
    rate = 1000 / statistics.median(times)
    figures.record(f"{label}_decoded", rate, "/s")
    print(f"  {label:15} {'decoded':10} {rate:6.1f} frames/s, {shown} of {len(near)} rows shown", flush=True)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def heap() -> float:
        session.send("HeapProfiler.collectGarbage")
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "JSHeapUsedSize") / 1e6

    before, rows = heap(), [row for _ in range(SCRUBBED // frames) for row in range(0, frames, 5)]
    page.evaluate(EACH_FRAME, rows)
    after = heap()
    figures.record(f"{label}_heap", after * 1e6, "B")
    print(f"  {'':15} heap of the page {before:.1f} MB, {after:.1f} MB after {len(rows):,} rows over the episode")


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chromium", default=shutil.which("chromium"))
    parser.add_argument("--episodes", type=int, default=1_000_000)
    parser.add_argument("--frames", type=int, default=600)
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
        print(f"scrubbing a video of {WIDTH} x {HEIGHT}, codec and frames from key frame to key frame")
        for codec, g in (("libsvtav1", 2), ("libx264", 2), ("libx264", 250)):
            scrubbed(browser, Path(name), codec, g, given.frames)
        table(browser, Path(name), given.episodes)
        browser.close()


if __name__ == "__main__":
    main()
