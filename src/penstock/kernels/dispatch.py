"""Choose the kernels: the compiled ones, or their NumPy definitions with `PENSTOCK_KERNELS=reference`."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from penstock.errors import PenstockError
from penstock.kernels import compiled, reference


@cache
def kernels() -> Any:
    """The module whose functions run. Read from the environment once; tests that change it call `kernels.cache_clear`.

    Raises `PenstockError` for a value that is neither `compiled` nor `reference`.

    >>> kernels().__name__
    'penstock.kernels.compiled'
    """
    wanted = os.environ.get("PENSTOCK_KERNELS", "compiled")
    if wanted not in ("compiled", "reference"):
        raise PenstockError(f"expected PENSTOCK_KERNELS to be 'compiled' or 'reference', got {wanted!r}")
    if wanted == "reference":
        return reference
    return compiled
