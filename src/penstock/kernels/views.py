"""Views of arrays in the form that kernels accept."""

from __future__ import annotations

from penstock.core.arrays import AnyArray


def read_only(array: AnyArray) -> AnyArray:
    """Return a view that numba types as read-only, or the array if it is so already.

    A kernel that reads an array takes it as read-only, so one compiled variant serves memory and mapped files.
    """
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
