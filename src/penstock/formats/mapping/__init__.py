"""Data of anyone: files of any kind as episodes, by a mapping that says which array is which column."""

from __future__ import annotations

from penstock.formats.mapping.format import MappingFormat

FORMAT = MappingFormat()
