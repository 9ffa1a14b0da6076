"""Datasets to tensors: ordered prefetch on threads, a state of one position, and the adapters of the frameworks."""

from penstock.load.loader import Loader, LoaderIterator, LoaderStats

__all__ = ["Loader", "LoaderIterator", "LoaderStats"]
