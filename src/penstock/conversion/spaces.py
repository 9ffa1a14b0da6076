"""Spaces for targets that need them: the source's where they fit the columns, else what the values can come from."""

from __future__ import annotations

from penstock.conversion.draft import Draft
from penstock.core.space_columns import leaf_columns, widest_space
from penstock.core.spaces import Box, Space
from penstock.core.spec import Field
from penstock.errors import SpecError


def fitting(draft: Draft, root: str, space: Space | None) -> Space:
    """The space if the columns below `root` are its leaves; else boxes as wide as their dtypes, with a note.

    Raises `SpecError` for columns that no box can be made for.
    """
    fields = {path: draft.fields[path] for path in draft.below(root)}
    if space is not None and _fits(space, root, fields):
        return space
    wrong = [path for path, field in fields.items() if field.ragged or field.dtype.kind not in "biuf"]
    if wrong:
        field = fields[wrong[0]]
        raise SpecError(
            f"expected {root} of numbers, or a space for them, got {wrong[0]} of {field.kind} {field.dtype}; leave it "
            f"out or rename it (--drop {wrong[0]}, --rename {wrong[0]}=...)"
        )
    why = "the source has no space" if space is None else "the source's space does not have these columns"
    for path, field in fields.items():
        draft.note("inferred", path, f"a Box as wide as {field.dtype}{list(field.shape)}: {why}")
    return widest_space(root, fields)


def known(draft: Draft, root: str, space: Space | None) -> Space | None:
    """The space if the columns below `root` are its leaves; else none, with a note."""
    if space is not None and not _fits(space, root, {path: draft.fields[path] for path in draft.below(root)}):
        draft.note("left out", f"the space of {root}", "it does not have these columns")
        return None
    return space


def _fits(space: Space, root: str, fields: dict[str, Field]) -> bool:
    leaves = leaf_columns(root, space)
    return leaves.keys() == fields.keys() and all(
        getattr(leaf, "shape", ()) == fields[path].shape
        and (not isinstance(leaf, Box) or leaf.dtype.kind == fields[path].dtype.kind)
        for path, leaf in leaves.items()
    )
