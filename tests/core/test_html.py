"""What objects print on a terminal and in a notebook."""

from __future__ import annotations

import base64
import io
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock
from penstock.core.html import ROWS, SIDE, preview

EVIL = "<script>alert('1')</script><img src=x onerror=alert(1)>\"&"
TAGS = {"div", "b", "span", "table", "thead", "tbody", "tr", "th", "td", "img"}


class Reader(HTMLParser):
    """Elements and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def data() -> penstock.EpisodeDataset:
    images = np.random.default_rng(7).integers(0, 255, (22, 3, 20, 30), np.uint8)
    columns: dict[str, Any] = {
        "observations": {"image": images, "state": np.linspace(0, 1, 44).reshape(22, 2)},
        "rewards": np.arange(20.0) / 3,
        EVIL: penstock.Ragged.from_strings([EVIL, "left"] * 10),
    }
    return penstock.from_arrays(columns, lengths=[12, 8])


def test_pages_have_elements_of_ours_alone_and_escaped_text(data: penstock.EpisodeDataset) -> None:
    windows = data.filter("total_steps > 3").windows(2, pad="zero").shuffle(seed=3)
    shown: dict[str, Any] = {
        "EpisodeDataset": data,
        "MapDataset": windows.map(dict),
        "Shuffled": windows.plan,
        "Columns": windows[:3],
        "Batch": next(iter(data.steps().loader(batch_size=9, threads=0))),
        "Episode 1": data[1],
    }
    for name, each in shown.items():
        page = Reader(each._repr_html_())
        assert {tag for tag, _ in page.elements} <= TAGS
        assert {key for _, attributes in page.elements for key in attributes} <= {"style", "src", "alt"}
        assert all(str(a["src"]).startswith("data:image/png;base64,") for tag, a in page.elements if tag == "img")
        assert EVIL in page.text
        assert page.text.startswith(name)


def test_pictures_are_small_and_of_the_first_rows(data: penstock.EpisodeDataset) -> None:
    batch = data.steps()[:9]
    sources = [a["src"] for tag, a in Reader(batch._repr_html_()).elements if tag == "img"]
    assert len(sources) == ROWS
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(str(sources[2]).split(",")[1]))))
    assert np.array_equal(shown, batch["observations/image"][2].transpose(1, 2, 0))
    large = penstock.Columns({"image": np.zeros((2, 400, 100, 3), np.uint8)})
    file = io.BytesIO(base64.b64decode(large._repr_html_().split("base64,")[1].split('"')[0]))
    assert Image.open(file).size == (SIDE // 4, SIDE)


def test_pictures_are_numbers_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert str(preview(np.zeros((2, 20, 20, 3), np.uint8))).startswith("[[[0 0 0]")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([b"go", b"left"], "Ragged(['go', 'left'], uint8[2])"),
        (["\u00fc".encode() * 30], "Ragged(['" + "\u00fc" * 20 + "'], uint8[1])"),
        ([b"\xff\xd8\xff"], "Ragged([[255, 216, 255]], uint8[1])"),
        ([b"a\x00b"], "Ragged([[97, 0, 98]], uint8[1])"),
        ([b"a"] * 6, "Ragged(['a', 'a', 'a', 'a', ...], uint8[6])"),
        ([], "Ragged([], uint8[0])"),
    ],
)
def test_text_prints_as_text_and_other_bytes_as_numbers(rows: list[bytes], text: str) -> None:
    assert repr(penstock.Ragged.from_bytes(rows)) == text


def test_datasets_and_loaders_print_their_chain(data: penstock.EpisodeDataset) -> None:
    windows = data.filter("total_steps > 3").windows(2, pad="zero").shuffle(seed=3)
    chain = "MemorySource(2 episodes) > Where(condition='total_steps > 3') > Windows(length=2, pad='zero')"
    assert f"chain={chain} > Shuffle(seed=3))" in repr(windows)
    assert "> map(builtins.dict, seed=None)" in repr(windows.map(dict))
    mixed = penstock.mix({"a": data.steps(), "b": data.steps()})
    assert "chain=mix(a: MemorySource(2 episodes) > Steps(), b:" in repr(mixed)
    loader = data.steps().loader(batch_size=4, threads=0, rank=1, world=2)
    assert repr(loader) == f"Loader({data.steps()!r}, batch_size=4, rank=1, world=2)"
    stream = penstock.IterDataset.of(data.steps(), 4).filter(len).rebatch(2)
    text = "IterDataset(chain=MemorySource(2 episodes) > Steps() > blocks of 4 > filter(builtins.len) > rebatch(2))"
    assert repr(stream) == text
    assert "rebatch(2)" in stream._repr_html_()
    assert repr(data.source).startswith("MemorySource(2 episodes, 20 steps, columns=[")
