"""Demonstrations as the makers of benchmarks published them: no simulator is needed to read any of them."""

from penstock_imitation.formats.native.format import NativeFormat

FORMAT = NativeFormat()

__all__ = ["FORMAT", "NativeFormat"]
