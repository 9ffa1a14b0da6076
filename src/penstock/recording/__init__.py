"""Record episodes: `Recorder` for any loop, collectors for Gymnasium environments, hooks, and rollouts."""

from penstock.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
