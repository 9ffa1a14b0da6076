"""Vector samples: how they are made, from a configuration."""

from penstock_driving.l5kit.vectorization.vectorizer import Vectorizer
from penstock_driving.l5kit.vectorization.vectorizer_builder import build_vectorizer

__all__ = ["Vectorizer", "build_vectorizer"]
