"""RLDS and TFDS datasets: shards of records with an episode each, described by `features.json`."""

from penstock.formats.rlds.format import RLDSFormat

FORMAT = RLDSFormat()

__all__ = ["FORMAT", "RLDSFormat"]
