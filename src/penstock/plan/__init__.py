"""Which rows, in which order: arithmetic on integers that knows no values."""

from penstock.plan.base import Plan, apply
from penstock.plan.episodes import Episodes
from penstock.plan.shuffle import Shuffle
from penstock.plan.steps import Steps
from penstock.plan.windows import Windows

__all__ = ["Episodes", "Plan", "Shuffle", "Steps", "Windows", "apply"]
