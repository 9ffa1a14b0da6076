"""Train while collecting: a store of episodes that grows while batches are drawn from it."""

from penstock.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
