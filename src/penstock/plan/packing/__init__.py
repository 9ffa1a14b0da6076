"""Packing: which items share a sample, planned from their lengths alone."""

from penstock.plan.packing.bound import lower_bound
from penstock.plan.packing.index import PackIndex, PackReport, Pieces
from penstock.plan.packing.rule import Rule

__all__ = ["PackIndex", "PackReport", "Pieces", "Rule", "lower_bound"]
