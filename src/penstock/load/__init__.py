"""Datasets to tensors: ordered prefetch on threads, a state of one position, and the adapters of the frameworks."""

from penstock.load.engine import LoaderIterator, LoaderStats
from penstock.load.loader import Loader
from penstock.load.ticket import Batch, Ticket

__all__ = ["Batch", "Loader", "LoaderIterator", "LoaderStats", "Ticket"]
