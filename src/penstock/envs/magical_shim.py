"""MAGICAL and the libraries of 2020 below it, imported on a Python that has dropped what they import."""

from __future__ import annotations

import collections
import collections.abc
import importlib
import importlib.util
import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from penstock.errors import require

_EXTRA = "magical"


def load() -> Any:
    """The old `gym`, with MAGICAL's environments registered in it; pyglet draws without a display.

    Names that Python has dropped are there while the libraries are imported, and gone afterwards. Raises
    `MissingExtraError` if one of the libraries is not there.
    """
    with _as_of_2020():
        if "pyglet.window" not in sys.modules:
            require("pyglet", _EXTRA).options["headless"] = True
        require("pymunkoptions", _EXTRA).options["debug"] = False  # it prints where it lies
        gym, magical = require("gym", _EXTRA), require("magical", _EXTRA)
        importlib.import_module("magical.base_env")  # with pymunk
        magical.register_envs()
    return gym


@contextmanager
def _as_of_2020() -> Generator[None]:
    """`collections.Sequence` for a class of pymunk, an empty `imp` for pymunk's search of its library.

    And an empty `cv2` where OpenCV is missing: only MAGICAL's own preprocessing would call it, and ours does not.
    """
    modules = {"imp": ModuleType("imp")}
    if "cv2" not in sys.modules and importlib.util.find_spec("cv2") is None:
        modules["cv2"] = ModuleType("cv2")
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    absent = not hasattr(collections, "Sequence")
    if absent:
        collections.Sequence = collections.abc.Sequence  # type: ignore[attr-defined]
    try:
        yield
    finally:
        if absent:
            del collections.Sequence  # type: ignore[attr-defined]
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
