"""The names of `airio.pygrain_common`."""

from __future__ import annotations

from penstock_mirrors.airio import constants, feature_converters, packing, preprocessors

__all__ = ["constants", "feature_converters", "packing", "preprocessors"]


def __getattr__(name: str) -> object:
    message = f"module {__name__!r} has no attribute {name!r}"
    hint = "; use a RandomMapFnTransform of a function that masks spans" if name == "span_corruption" else ""
    raise AttributeError(message + hint)
