"""Videos on a web server: equal frames, and no more bytes than their groups of pictures need."""

# pyright: basic

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.containers.video import VideoFiles, VideoWriter
from penstock.locations.blocks import BLOCK
from penstock.locations.mirror import mirror
from tests.locations.server import serving


def read(files: VideoFiles, frames: list[int]) -> np.ndarray:
    out = np.empty((len(frames), *files.shape), np.uint8)
    files.read(0, frames, range(len(frames)), out)
    return out


@pytest.mark.parametrize(("name", "codec"), [("a.mp4", "libsvtav1"), ("a.mkv", "ffv1")])
def test_frames_of_a_remote_video(name: str, codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVT_LOG", "1")
    rng = np.random.default_rng(0)
    options = {"preset": "12"} if codec == "libsvtav1" else {}
    with VideoWriter(tmp_path / name, 10, codec=codec, crf=5 if options else None, options=options) as writer:
        for _ in range(60):
            writer.append(rng.integers(0, 256, (128, 128, 3), np.uint8))
    content = (tmp_path / name).read_bytes()
    assert len(content) > 12 * BLOCK
    local = VideoFiles([tmp_path / name])
    with serving({f"set/{name}": content}) as site:
        path = mirror(f"{site.url}/set") / name
        remote = VideoFiles([path])
        np.testing.assert_array_equal(read(remote, [31]), read(local, [31]))
        if codec == "libsvtav1":  # its index needs the table of packets alone
            assert sum((r.end or 0) + 1 - (r.begin or 0) for r in site.gets()) < len(content) // 2
        np.testing.assert_array_equal(read(remote, list(range(59, -1, -7))), read(local, list(range(59, -1, -7))))
        assert remote.digest() == local.digest()
