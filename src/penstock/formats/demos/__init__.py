"""Demonstrations in the files that their makers published: no simulator is needed to read any of them."""

from penstock.formats.demos.format import DemosFormat

FORMAT = DemosFormat()

__all__ = ["FORMAT", "DemosFormat"]
