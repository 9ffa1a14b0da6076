"""How samples become vectors."""

from penstock.domains.driving.vectorize import Vectorizer

__all__ = ["Vectorizer"]
