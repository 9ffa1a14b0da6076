"""Datasets to tensors: ordered prefetch on threads, a state of one position, and the adapters of the frameworks."""

from penstock.loading.arranged import BatchDict
from penstock.loading.engine import LoaderIterator, LoaderStats
from penstock.loading.layout import Layout
from penstock.loading.loader import Loader
from penstock.loading.ticket import Batch, Ticket

__all__ = ["Batch", "BatchDict", "Layout", "Loader", "LoaderIterator", "LoaderStats", "Ticket"]
