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

    Names that Python has dropped exist while the libraries are imported, and are removed afterwards.
    """
    with _as_of_2020():
        if sys.platform == "linux" and "pyglet.window" not in sys.modules:
            require("pyglet", _EXTRA, "penstock-imitation").options["headless"] = True
        require("pymunkoptions", _EXTRA, "penstock-imitation").options["debug"] = False  # it prints its path
        gym = require("gym", _EXTRA, "penstock-imitation")
        with context_kept():  # pyglet makes another context when it is imported
            magical = require("magical", _EXTRA, "penstock-imitation")
            importlib.import_module("magical.base_env")  # with pymunk
        magical.register_envs()
    return gym


@contextmanager
def context_kept() -> Generator[None]:
    """Afterwards the OpenGL context is current again that was: dm_control does not look whether its own still is."""
    if not importlib.import_module("pyglet").options["headless"]:
        yield
        return
    egl: Any = importlib.import_module("pyglet.libs.egl.egl")
    display, context = egl.eglGetCurrentDisplay(), egl.eglGetCurrentContext()
    surfaces = [egl.eglGetCurrentSurface(kind) for kind in (egl.EGL_DRAW, egl.EGL_READ)]
    try:
        yield
    finally:
        if context:
            egl.eglMakeCurrent(display, *surfaces, context)


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
