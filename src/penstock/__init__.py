"""The data layer for learning from sequential experience: open, record, plan, fetch, resume.

Importing this package loads nothing else: each name below is fetched from its own module when it is first used.

>>> import penstock
>>> penstock.Columns({"rewards": [1.0, 2.0]})
Columns(rewards: float64[2])
"""

from penstock.lazy_names import lazy_names

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
