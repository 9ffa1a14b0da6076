"""Replay buffers in Zarr, as Diffusion Policy and UMI store them: `data/<key>` arrays and `meta/episode_ends`."""

from penstock.formats.zarr.format import ZarrFormat
from penstock.formats.zarr.source import ZarrSource
from penstock.formats.zarr.writer import ZarrWriter, pack_zip

FORMAT = ZarrFormat()

__all__ = ["FORMAT", "ZarrFormat", "ZarrSource", "ZarrWriter", "pack_zip"]
