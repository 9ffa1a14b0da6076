"""Settings of the encoders of cameras, with the names and defaults of `lerobot.configs`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from penstock.errors import ArgumentError, require
from penstock.formats.lerobot.depth import CODE_NAMES, Depth
from penstock.formats.lerobot.video import EncoderSettings

ENCODERS = {
    "libsvtav1": "libsvtav1",
    "libaom-av1": "libaom-av1",
    "h264": "libx264",
    "hevc": "libx265",
    "h264_videotoolbox": "h264_videotoolbox",
    "hevc_videotoolbox": "hevc_videotoolbox",
    "h264_nvenc": "h264_nvenc",
    "hevc_nvenc": "hevc_nvenc",
    "h264_vaapi": "h264_vaapi",
    "h264_qsv": "h264_qsv",
}
"""Names of encoders in PyAV. `"auto"` is `"libsvtav1"`: an encoder of a GPU is chosen by its name."""
ALIASES = {"av1": "libsvtav1", "auto": "libsvtav1"}


@dataclass
class VideoEncoderConfig:
    """Settings of the encoder of a camera: codec, pixels, frames between key frames, quality, speed."""

    vcodec: str = "libsvtav1"
    pix_fmt: str = "yuv420p"
    g: int | None = 2
    crf: float | None = 30
    preset: int | str | None = None
    fast_decode: int = 0
    video_backend: str = "pyav"
    extra_options: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        self.resolve_vcodec()
        if self.preset is None and self.vcodec == "libsvtav1":
            self.preset = 12
        self.validate()

    @classmethod
    def from_video_info(cls, video_info: Mapping[str, Any] | None) -> Self:
        """Return the settings that a feature has under `info`; what it lacks has its default."""
        stored = {"video.vcodec": (video_info or {}).get("video.codec"), **(video_info or {})}
        named = {each.name: stored.get(f"video.{each.name}") for each in fields(cls)}
        return cls(**{name: value for name, value in named.items() if value is not None and value != {}})

    def resolve_vcodec(self) -> None:
        """Replace other names of a codec, and check that PyAV has its encoder."""
        self.vcodec = ALIASES.get(self.vcodec, self.vcodec)
        if self.vcodec not in ENCODERS:
            raise ArgumentError(f"expected vcodec among {[*ENCODERS, *ALIASES]}, got {self.vcodec!r}")
        if not self.detect_available_encoders(self.vcodec):
            raise ArgumentError(f"expected an encoder that this PyAV has, got vcodec={self.vcodec!r}")

    def validate(self) -> None:
        """Check the other settings."""
        if self.video_backend != "pyav":
            raise ArgumentError(f"expected video_backend 'pyav', got {self.video_backend!r}")
        if self.g is not None and self.g < 1:
            raise ArgumentError(f"expected g of at least 1, got {self.g}")

    def detect_available_encoders(self, encoders: list[str] | str) -> list[str]:
        """Return the encoders that PyAV has."""
        names = [encoders] if isinstance(encoders, str) else encoders
        known = require("av", "video").codecs_available
        return [name for name in names if ENCODERS.get(name, name) in known]

    def get_codec_options(self, encoder_threads: int | None = None, as_strings: bool = False) -> dict[str, Any]:
        options: dict[str, Any] = {"g": self.g, **self._quality(), **self._threads(encoder_threads)}
        options = {**self.extra_options, **{name: value for name, value in options.items() if value is not None}}
        return {name: str(value) for name, value in options.items()} if as_strings else options

    def _quality(self) -> dict[str, Any]:
        """Quality and speed, under the names that an encoder has for them."""
        match self.vcodec:
            case "h264_videotoolbox" | "hevc_videotoolbox":
                return {} if self.crf is None else {"q:v": max(1, min(100, 100 - self.crf * 2))}
            case "h264_nvenc" | "hevc_nvenc":
                return {"rc": 0, "qp": self.crf, "preset": self.preset}
            case "h264_vaapi":
                return {"qp": self.crf}
            case "h264_qsv":
                return {"global_quality": self.crf, "preset": self.preset}
            case "h264" | "hevc":
                tune = "fastdecode" if self.fast_decode else None
                return {"crf": self.crf, "preset": self.preset, "tune": tune}
            case _:
                return {"crf": self.crf, "preset": self.preset}

    def _threads(self, threads: int | None) -> dict[str, Any]:
        """Number of threads, and for AV1 what makes decoding fast."""
        if self.vcodec == "libsvtav1":
            words = [f"fast-decode={max(0, min(2, self.fast_decode))}", *([f"lp={threads}"] if threads else [])]
            return {"svtav1-params": ":".join(words)}
        if threads is None or self.vcodec not in ("h264", "hevc", "libaom-av1"):
            return {}
        return {"threads": threads, **({"row-mt": 1} if self.vcodec == "libaom-av1" else {})}


@dataclass
class RGBEncoderConfig(VideoEncoderConfig):
    """Settings of the encoder of a camera in colour."""

    def settings(self, threads: int | None) -> EncoderSettings:
        """Return the settings as the writer of the format has them."""
        options = self.get_codec_options(threads, as_strings=True)
        options.pop("g", None)
        return EncoderSettings(ENCODERS[self.vcodec], None, self.g or 250, self.pix_fmt, options)


@dataclass
class DepthEncoderConfig(VideoEncoderConfig):
    """Settings of the encoder of a depth map, and the meaning of its codes. Codes are stored without loss."""

    vcodec: str = "hevc"
    pix_fmt: str = "gray12le"
    extra_options: dict[str, Any] = field(default_factory=lambda: {"x265-params": "lossless=1"})
    depth_min: float = 0.01
    depth_max: float = 10.0
    shift: float = 3.5
    use_log: bool = True

    def validate(self) -> None:
        """Check that codes are stored without loss, and that they mean depth."""
        super().validate()
        lossless = str(self.extra_options.get("x265-params", ""))
        if self.vcodec != "hevc" or self.pix_fmt != "gray12le" or "lossless=1" not in lossless:
            raise ArgumentError(f"expected depth as HEVC 'gray12le' without loss (x265-params: lossless=1), got {self}")
        try:
            Depth(**{name: getattr(self, name) for name in CODE_NAMES})
        except ValueError as error:
            raise ArgumentError(str(error)) from error


def is_known(codec: Any) -> bool:
    """Whether videos of a codec can be encoded."""
    return ALIASES.get(codec, codec) in ENCODERS


def described(config: VideoEncoderConfig) -> dict[str, Any]:
    """Return settings as LeRobot stores them under `info` of a feature; codec and pixels are read from the video."""
    return {f"video.{name}": value for name, value in asdict(config).items() if name not in ("vcodec", "pix_fmt")}


def with_encoders(
    features: Mapping[str, Mapping[str, Any]], rgb: VideoEncoderConfig, depth: VideoEncoderConfig
) -> dict[str, dict[str, Any]]:
    """Return features whose cameras in video have the settings of their encoders under `info`."""
    known: dict[str, dict[str, Any]] = {}
    for name, feature in features.items():
        known[name] = dict(feature)
        if feature.get("dtype") == "video":
            settings = described(rgb if Depth.of(feature) is None else depth)
            known[name]["info"] = {**settings, **(feature.get("info") or {})}
    return known
