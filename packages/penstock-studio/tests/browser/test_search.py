"""Search of the site: words that a user types find the page that answers. `make browser` builds the site first."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest

SITE = Path(__file__).parents[4] / ".build" / "site"
PAGES = {
    "window": "howto/windows",
    "windows": "howto/windows",
    "stride": "howto/windows",
    "own data": "howto/own_data",
    "csv": "howto/own_data",
    "npz": "howto/own_data",
    "matlab": "howto/own_data",
    "minari": "formats/minari",
    "lerobot": "formats/lerobot",
    "resume": "concepts/order_and_resume",
    "packing": "concepts/mixing_and_packing",
    "pack": "howto/packed_sequences",
    "mix datasets": "concepts/mixing_and_packing",
    "replay": "howto/replay",
    "prioritized": "howto/replay",
    "ddp": "howto/ddp",
    "lightning": "howto/trainers",
    "jax": "howto/jax",
    "normalize": "howto/normalizing",
    "video": "howto/video",
    "record": "howto/recording",
    "weights": "howto/weighting",
    "slurm": "howto/clusters",
    "ray": "cluster/ray",
    "s3": "howto/remote",
    "install": "start/install",
    "decision transformer": "howto/decision_transformer",
    "diffusion policy": "howto/diffusion_policy",
    "returns": "howto/returns",
    "statistics": "howto/normalizing",
    "viewer": "studio/viewing",
    "frame stack": "howto/video",
    "hindsight": "howto/goals",
    "tickets": "howto/loading",
    "gpu": "howto/gpu",
    "reverb": "howto/coming_from",
    "next_observations": "howto/",
}
BEST = 3  # pages of the list that are looked at


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing."""


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_words_find_the_page_that_answers(page: Any) -> None:
    assert (SITE / "search" / "search_index.json").exists(), "build the site with `make docs`"
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(SITE)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        site = f"http://127.0.0.1:{server.server_port}/index.html"
        wrong = {
            words: found
            for words, wanted in PAGES.items()
            if wanted not in " ".join(found := _pages(page, site, words))
        }
        assert wrong == {}
    finally:
        page.goto("about:blank")
        server.shutdown()
        thread.join()
        server.server_close()


def _pages(page: Any, site: str, words: str) -> list[str]:
    """The pages at the top of the list for some words."""
    page.goto(f"{site}?q={quote(words)}")
    links = ".md-search-result__item > a[href]"
    page.wait_for_selector(links, state="attached")
    addresses = page.eval_on_selector_all(links, "links => links.map(link => new URL(link.href).pathname)")
    return list(dict.fromkeys(address.strip("/") for address in addresses))[:BEST]
