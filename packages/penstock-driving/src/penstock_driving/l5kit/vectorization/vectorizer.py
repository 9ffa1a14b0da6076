"""How samples become vectors."""

from penstock_driving.vectorize import Vectorizer

__all__ = ["Vectorizer"]
