"""Small videos of every codec, encoded once, and what PyAV reads from them."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.containers.video.writer import same_priority

HEIGHT, WIDTH = 48, 64

_IN_PARTS = {"muxer": {"movflags": "frag_keyframe+empty_moov"}}
# name: encoder, format of the pixels, options, settings of the stream
KINDS: dict[str, tuple[str, str, dict[str, str], dict[str, Any]]] = {
    "av1.mp4": ("libsvtav1", "yuv420p", {"g": "2", "crf": "30", "preset": "10"}, {}),
    "av1_10bit.mp4": ("libsvtav1", "yuv420p10le", {"g": "8", "crf": "30", "preset": "10"}, {}),
    "av1_faststart.mp4": (
        "libsvtav1",
        "yuv420p",
        {"g": "4", "crf": "30", "preset": "10"},
        {"muxer": {"movflags": "faststart"}},
    ),
    "h264.mp4": ("libx264", "yuv420p", {"g": "12", "bf": "3"}, {}),
    "h264_long.mp4": ("libx264", "yuv420p", {"g": "250", "bf": "2"}, {}),
    "h264_open.mp4": ("libx264", "yuv420p", {"x264-params": "open-gop=1:keyint=10:bframes=3:scenecut=0"}, {}),
    "h264_refresh.mp4": ("libx264", "yuv420p", {"x264-params": "intra-refresh=1:keyint=10:bframes=0"}, {}),
    "h264_10bit.mp4": ("libx264", "yuv420p10le", {"g": "12"}, {}),
    "h264_444.mkv": ("libx264", "yuv444p", {"g": "12"}, {}),
    "h264_rotated.mp4": ("libx264", "yuv420p", {"g": "12"}, {"rotation": 90}),
    "h264_odd_base.mp4": ("libx264", "yuv420p", {"g": "12"}, {"rate": Fraction(30000, 1001)}),
    "h264_variable.mp4": ("libx264", "yuv420p", {"g": "12", "bf": "2"}, {"variable": True}),
    "h264.mov": ("libx264", "yuv420p", {"g": "12"}, {}),
    "hevc.mp4": ("libx265", "yuv420p", {"x265-params": "log-level=none:keyint=10:bframes=3:open-gop=1"}, {}),
    "vp9.webm": ("libvpx-vp9", "yuv420p", {"g": "12", "deadline": "realtime", "cpu-used": "8"}, {}),
    "vp9.mp4": ("libvpx-vp9", "yuv420p", {"g": "12", "auto-alt-ref": "1", "lag-in-frames": "10"}, {}),
    "ffv1.mkv": ("ffv1", "bgr0", {"g": "4"}, {}),
    "png.mov": ("png", "rgb24", {}, {}),  # its decoder asks which packets are key frames
    "palette.avi": ("rawvideo", "pal8", {}, {"palette": True}),
    "mpeg4.avi": ("mpeg4", "yuv420p", {"g": "12", "bf": "2"}, {}),
    "mpeg4.mp4": ("mpeg4", "yuv420p", {"g": "12"}, {}),
    "fragmented.mp4": (
        "libx264",
        "yuv420p",
        {"g": "12", "bf": "2"},
        _IN_PARTS,
    ),
    "faststart.mp4": ("libx264", "yuv420p", {"g": "12", "bf": "2"}, {"muxer": {"movflags": "faststart"}}),
}
FRAMES = 40
_COLOURS = np.random.default_rng(1).integers(0, 256, (256, 4), dtype=np.uint8)  # alpha, red, green and blue


def pictures(count: int = FRAMES, seed: int = 0) -> np.ndarray[Any, Any]:
    """`[count, HEIGHT, WIDTH, 3]` a pattern that moves, and differs in every frame."""
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 256, (HEIGHT // 4, WIDTH // 4, 3), dtype=np.uint8).repeat(4, 0).repeat(4, 1)
    return np.stack([np.roll(base, (i, 2 * i), (0, 1)) for i in range(count)])


def encode(path: Path, kind: str, frames: np.ndarray[Any, Any], **changed: Any) -> Path:
    """Write a video with PyAV alone, and not with the writer under test."""
    import av

    codec, pix_fmt, options, settings = KINDS[kind]
    settings = {**settings, **changed}
    rate = settings.get("rate", 30)
    with same_priority(), av.open(str(path), "w", options=settings.get("muxer", {})) as container:
        stream = container.add_stream(codec, rate=rate, options=options)
        stream.height, stream.width, stream.pix_fmt = *frames.shape[1:3], pix_fmt
        if "rotation" in settings:
            stream.set_display_rotation(settings["rotation"])
        if settings.get("variable") or "first" in settings:
            stream.codec_context.time_base = Fraction(1, 1000)
        tick = settings.get("first", 0)
        for i, frame in enumerate(frames):
            picture = av.VideoFrame.from_ndarray(frame, format="rgb24")
            if "palette" in settings:
                picture = av.VideoFrame.from_ndarray((frame[..., 0], _COLOURS), format="pal8")
            if settings.get("variable") or "first" in settings:
                picture.pts, picture.time_base = tick, Fraction(1, 1000)
                tick += 20 + 17 * (i % 3)
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return path


def decoded(path: Path, **options: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All frames in order, as PyAV reads them, and their times in seconds."""
    import av

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = list(container.decode(stream))
        rgb = [frame.to_ndarray(format="rgb24", **options) for frame in frames]
        return np.stack(rgb), np.array([float(frame.pts * stream.time_base) for frame in frames])


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder for each test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("PENSTOCK_CACHE", str(folder))
    monkeypatch.setenv("SVT_LOG", "1")
    return folder


@pytest.fixture(scope="session")
def videos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each kind."""
    folder = tmp_path_factory.mktemp("videos")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SVT_LOG", "1")
        return {kind: encode(folder / kind, kind, pictures()) for kind in KINDS}
