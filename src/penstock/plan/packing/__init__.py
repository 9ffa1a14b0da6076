"""Packing: which items share a sample, planned from their lengths alone."""

from penstock.plan.packing.bound import lower_bound
from penstock.plan.packing.index import PackIndex, PackPieces
from penstock.plan.packing.report import PackReport
from penstock.plan.packing.rule import Rule

__all__ = ["PackIndex", "PackPieces", "PackReport", "Rule", "lower_bound"]
