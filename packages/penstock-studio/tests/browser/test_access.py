"""Pages for everybody: axe-core finds nothing, drawings can be told from what is below, keys reach all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser.conftest import broken_rules, until
from penstock_studio.viewer.server import ViewerServer
from viewer.conftest import serving

GOLDEN = Path(__file__).parents[4] / "tests" / "golden"
PAGES = {
    "#/": ".card",
    "#/v3_video": "th:has-text('findings')",
    "#/v3_video?view=grid": ".grid img",
    "#/v3_video?tab=columns": "td.small svg",
    "#/v3_video?tab=metadata": "#tab th",
    "#/v3_video/review": ".queues",
    "#/v3_video/1?row=20": ".cameras canvas[data-row='20']",
    "#/v3_video/1?with=3&diff=1&a=5&b=30": ".cameras canvas[data-row='0']",
    "#/v3_video/1?queue=sort%3Dnovelty": ".reviewed .cameras canvas[data-row='0']",
    "#/gz?view=grid": ".thumbnail svg.board[data-row]",
    "#/gz/0?row=23": ".board[data-row='23']",
    "#/single.zarr/0?row=120": "canvas.scene[data-row='120']",
}
# Relative luminance of colours of the style sheet, or of BANDS, as WCAG 2 defines it, by the canvas of the browser.
LUMINANCE = """async (names) => {
  const { BANDS } = await import("/static/plots.js");
  const style = getComputedStyle(document.documentElement);
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const luminance = (color) => {
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    const [red, green, blue] = [...context.getImageData(0, 0, 1, 1).data].map((each) => each / 255)
      .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  return [names.map((name) => luminance(style.getPropertyValue(name))), BANDS.map(luminance)];
}"""


@pytest.fixture(scope="module")
def shown() -> Any:
    with serving(
        *(GOLDEN / path for path in ("lerobot/v3_video", "lc0/gz", "l5kit/single.zarr")), read_only=True
    ) as server:
        yield server


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_no_page_breaks_a_rule_of_axe(page: Any, shown: ViewerServer) -> None:
    assert broken_rules(page, {shown.address + address: drawn for address, drawn in PAGES.items()}) == {}


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_what_is_drawn_can_be_told_from_what_is_below(page: Any, shown: ViewerServer) -> None:
    """Axe does not look into drawings. WCAG 2.1 AA: 3 for curves and edges of fields, 4.5 for text."""
    page.goto(shown.address + "#/v3_video/1")
    page.wait_for_selector(".curve canvas")
    curves = [f"--curve{i}" for i in range(16)]
    names = ["--panel", "--back", "--edge", "--accent", "--dim", "--error", "--warning", "--note", *curves]
    listed, bands = page.evaluate(LUMINANCE, names)
    luminance = dict(zip(names, listed, strict=True))

    def contrast(one: float, other: float) -> float:
        high, low = max(one, other), min(one, other)
        return (high + 0.05) / (low + 0.05)

    for below in ("--panel", "--back"):
        ratios = {name: contrast(luminance[name], luminance[below]) for name in names[2:]}
        assert {name: ratio for name, ratio in ratios.items() if ratio < (4.5 if name == "--dim" else 3)} == {}
    assert min(contrast(1.0, band) for band in bands) >= 4.5
    assert len(set(np.round([luminance[name] for name in curves], 6))) == 16


@pytest.mark.parametrize("page", ["light", "phone"], indirect=True)
@pytest.mark.parametrize("address", ["#/v3_video?view=grid", "#/v3_video/1"])
def test_tab_goes_once_through_all_that_can_be_used_and_shows_where_it_is(
    page: Any, shown: ViewerServer, address: str
) -> None:
    page.goto(shown.address + address)
    page.wait_for_selector(".grid img, .curve canvas")
    page.wait_for_load_state("networkidle")
    until(page, "!document.querySelector('#findings [role=status]')")
    listed = """() => [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
      .filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.disabled && each.tabIndex >= 0)"""
    count = page.evaluate(f"() => ({listed})().length")
    places: list[int] = []
    while len(places) < count:
        page.keyboard.press("Tab")
        place, is_seen = page.evaluate(
            f"""() => {{ const now = document.activeElement, style = getComputedStyle(now);
              return [({listed})().indexOf(now), style.outlineStyle !== "none" || now.matches("tr")]; }}"""
        )
        if place >= 0:  # others are parts that scroll, which browsers let keys reach
            places.append(place)
            assert is_seen, page.evaluate("document.activeElement.outerHTML")
    assert places == list(range(count))
