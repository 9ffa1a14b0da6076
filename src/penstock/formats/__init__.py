"""What a format implements, and the formats: each folder here with a `FORMAT` is a format."""

from penstock.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
