"""Tar shards: the webdataset library's, il-representations' self-describing ones, and our own."""

from penstock.formats.webdataset.format import WebDatasetFormat

FORMAT = WebDatasetFormat()

__all__ = ["FORMAT", "WebDatasetFormat"]
