"""The names of `airio.pygrain_common.constants`."""

from __future__ import annotations

from penstock_mirrors.airio.runtime import SKIP_FEATURE

__all__ = ["SKIP_FEATURE"]
