"""The specification page: its example runs, and its numbers are those of the code."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from penstock.formats.columns import table
from penstock.formats.columns.writer import ColumnsWriter
from penstock.testing.examples import FLAT

PAGE = (Path(__file__).parents[3] / "docs" / "formats" / "columns.md").read_text("utf-8")


def test_three_lines_of_numpy_read_a_store(tmp_path: Path) -> None:
    episodes = FLAT.episodes()
    with ColumnsWriter.create(tmp_path / "store", FLAT.spec) as writer:
        writer.write_all(episodes)
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    assert len(code.splitlines()) == 3
    names: dict[str, Any] = {"np": np, "store": tmp_path / "store"}
    exec(code, names)  # noqa: S102  the page of this repository
    assert names["rewards"].tobytes() == np.concatenate([e.rewards for e in episodes]).tobytes()
    assert names["steps"].tolist() == list(FLAT.lengths)
    for episode, start in zip(episodes, names["starts"], strict=True):
        assert names["rewards"][start : start + len(episode)].tobytes() == episode.rewards.tobytes()


def test_the_table_on_the_page_is_that_of_the_code() -> None:
    rows = re.findall(r"\| (\d+) \| uint(\d+) \| `(\w+)` \|", PAGE)
    fields = table.ENTRY.fields or {}
    assert [(int(byte), int(bits) // 8, name) for byte, bits, name in rows] == [
        (fields[name][1], fields[name][0].itemsize, name) for name in table.ENTRY.names or ()
    ]


def test_the_checksum_is_the_one_on_the_page(tmp_path: Path) -> None:
    episode = FLAT.episodes()[0]
    with ColumnsWriter.create(tmp_path / "store", FLAT.spec) as writer:
        writer.write(episode)
    line = (tmp_path / "store/segments/0/metadata.jsonl").read_bytes()
    raw = (tmp_path / "store/episodes").read_bytes()
    expected = zlib.crc32(b"".join(np.asarray(a).tobytes() for a in episode.columns.values()) + line)
    assert np.frombuffer(raw, table.ENTRY)["payload"].tolist() == [expected]
    assert raw[-4:] == zlib.crc32(raw[:-4]).to_bytes(4, "little")
