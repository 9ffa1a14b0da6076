"""From the columns of a source to the columns that a target can store."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.conversion.draft import (
    FLAG,
    Draft,
    closed,
    earlier,
    ended_by,
    flags,
    flattened,
    later,
    lengths,
    padded,
    single,
    unless,
    zeros,
)
from penstock.conversion.scan import LENGTHS, Scan
from penstock.core.columns import under
from penstock.core.spec import Field
from penstock.errors import DataError, SpecError
from penstock.formats.base.writer import NUMBERED, Target

REWARD = Field(np.dtype(np.float64))
NEXT = "next_observations"
FILLS = {
    "rewards": "zeros",
    "terminations": "False",
    "truncations": "True at the last step where nothing else ends the episode",
    "observations": "the last one once more behind the last step",
}


def adapt(draft: Draft, target: Target, scan: Scan, *, fill: bool) -> None:
    """Change the draft until the target has a place for all of it."""
    _drop_repeated(draft, scan)
    if target.flat:
        _flatten(draft)
    if target.lerobot or target.name == "rlds":
        for path in list(draft.fields):
            _optional(draft, target, scan, path)
    if (target.seed or target.lerobot) and (empty := np.flatnonzero(scan.lengths == 0)).size:
        raise DataError(
            f"expected episodes of at least one step for {target.name}, got {empty.size} without, the first of number "
            f"{empty[0]}; leave them out with --where 'total_steps > 0'"
        )
    if not target.needs:
        return
    missing = _observations(draft, fill=fill) + _flags(draft, target, scan, fill=fill)
    missing += [name for name in ("actions",) if not draft.has(name)]
    if missing:
        raise SpecError(_complaint(missing, draft, target))
    if target.seed:
        _inner(draft, target)
        if both := scan.ended_twice().size:
            draft.put("terminations", FLAG, unless(draft.makes["terminations"], draft.makes["truncations"]))
            draft.note("adapted", "terminations", f"False in {both} episodes that were truncated at the same step")
    for path in [p for p in draft.fields if not any(under(name, p) for name in target.needs)]:
        _optional(draft, target, scan, path)


def _inner(draft: Draft, target: Target) -> None:
    for root in ("observations", "actions"):
        for path in [
            p for p in draft.below(root) if draft.fields[p].ragged or draft.fields[p].dtype.kind not in "biufc"
        ]:
            draft.leave_out(path, f"{target.name} has no place for {draft.fields[path].kind} in {root}")
        if not draft.has(root):
            raise SpecError(f"expected {root} of numbers, as {target.name} needs them, got none")


def _complaint(missing: list[str], draft: Draft, target: Target) -> str:
    fillable = [name for name in missing if name in FILLS and (name != "observations" or draft.has(name))]
    fills = ", ".join(f"{name}: {FILLS[name]}" for name in fillable)
    hint = f"; fill_missing=True (--fill-missing) puts {fills}" if fills else ""
    if len(fillable) < len(missing):
        hint += "; rename (--rename old=new) gives columns the names that are asked for"
    return f"expected {missing} as {target.name} needs them, got the columns {list(draft.fields)}{hint}"


def _drop_repeated(draft: Draft, scan: Scan) -> None:
    """Next observations that are the same column read one row later are not stored twice."""
    if not draft.has(NEXT) or not draft.has("observations"):
        return
    pairs = {path: "observations" + path[len(NEXT) :] for path in draft.below(NEXT)}
    if all(scan.continues(path, other) for path, other in pairs.items()):
        for path, other in pairs.items():
            draft.leave_out(path, f"it is the row after each of {other}, in all steps")


def _observations(draft: Draft, *, fill: bool) -> list[str]:
    """Observations of T + 1 rows; the names of those missing."""
    if not draft.has("observations"):
        return ["observations"]
    for path in draft.below("observations"):
        field = draft.fields[path]
        if field.align == "boundary":
            continue
        after = NEXT + path[len("observations") :]
        if field.align != "step":
            return ["observations"]
        if draft.fields.get(after) == field:
            draft.put(path, replace(field, align="boundary"), ended_by(draft.makes[path], draft.makes[after]))
            draft.note("adapted", path, f"T + 1 rows: the last is that of {after}")
        elif fill:
            draft.put(path, replace(field, align="boundary"), ended_by(draft.makes[path], None))
            draft.note("filled", path, "T + 1 rows: the last is there twice, for there is none behind the last step")
        else:
            return ["observations"]
    return []


def _flags(draft: Draft, target: Target, scan: Scan, *, fill: bool) -> list[str]:
    missing: list[str] = []
    if "rewards" in target.needs:
        if "rewards" not in draft.fields and fill:
            draft.put("rewards", REWARD, zeros(REWARD))
            draft.note("filled", "rewards", "zeros: the source has none")
        elif "rewards" not in draft.fields:
            missing.append("rewards")
        else:
            _scalar(draft, "rewards")
    if "dones" in draft.fields and "terminations" not in draft.fields:
        draft.put("terminations", FLAG, flags(draft.makes["dones"]))
        draft.note("adapted", "terminations", "as dones say")
    for name in ("terminations", "truncations"):
        if name in draft.fields:
            _scalar(draft, name)
            if draft.fields[name].dtype != np.bool_:
                draft.note("adapted", name, f"bool, from {draft.fields[name].dtype}")
                draft.put(name, FLAG, flags(draft.makes[name]))
        elif not fill:
            missing.append(name)
    if not missing and fill:
        _close(draft, scan)
    elif not missing and target.seed and (open_ends := scan.unfinished()).size:
        raise DataError(
            f"expected the last step of every episode to be terminated or truncated, as {target.name} needs it, got "
            f"{open_ends.size} that are not, the first of number {open_ends[0]}; fill_missing=True (--fill-missing) "
            "truncates them there"
        )
    return missing


def _close(draft: Draft, scan: Scan) -> None:
    """Missing flags, and ends of episodes that nothing ends."""
    if "terminations" not in draft.fields:
        draft.put("terminations", FLAG, zeros(FLAG))
        draft.note("filled", "terminations", "False: the source has none")
    make = draft.makes.get("truncations")
    if make is None:
        draft.note("filled", "truncations", f"{FILLS['truncations']}: the source has none")
    elif count := scan.unfinished().size:
        draft.note("filled", "truncations", f"True at the last step of {count} episodes that nothing ends")
    draft.put("truncations", FLAG, closed(make, [draft.makes["terminations"]]))


def _scalar(draft: Draft, path: str) -> None:
    """`[T, 1]` as `[T]`."""
    field = draft.fields[path]
    if field.align != "step" or field.ragged or field.shape not in ((), (1,)):
        raise SpecError(f"expected {path} as one number a step, got {field}; rename or leave it out (--rename, --drop)")
    if field.shape:
        draft.put(path, replace(field, shape=()), single(draft.makes[path]))
        draft.note("adapted", path, "shape (), from (1,)")


def _optional(draft: Draft, target: Target, scan: Scan, path: str) -> None:
    """A column that the target can do without: as it is, in another form, or left out."""
    field = draft.fields[path]
    if target.seed and path == "frame":
        draft.leave_out(path, "the layout numbers all frames anew")
        return
    if target.seed and path == "dones":
        draft.leave_out(path, "the layout makes them of terminations and truncations")
        return
    if target.lerobot and path in NUMBERED:
        draft.leave_out(path, "the layout numbers all frames again")
        return
    if target.fits(path, field):
        if target.minari and field.align == "episode" and len(scan.lengths) and (scan.lengths == 1).all():
            draft.note("adapted", path, "read back as a column of steps: all episodes have one")
        return
    listed = [path]
    if field.kind == "ragged" and (field.dtype.itemsize > 1 or field.shape):
        _pad(draft, scan, path)
        listed.append(path + LENGTHS)
    for name in listed:
        source_field = draft.fields[name]
        if source_field.align == "boundary" and target.fits(name, replace(source_field, align="step")):
            cut = earlier if target.lerobot else later
            draft.put(name, replace(source_field, align="step"), cut(draft.makes[name]))
            lost = "that after the last step" if target.lerobot else "that of the reset"
            draft.note("adapted", name, f"T rows: {lost} is left out")
        elif not target.fits(name, source_field):
            what = f"{field.kind} of {field.dtype}, {field.align} rows"
            draft.leave_out(name, f"{target.name} has no place for it: {what}")


def _flatten(draft: Draft) -> None:
    """Rows that are lists of vectors or matrices, as lists of numbers."""
    for path, field in list(draft.fields.items()):
        if field.ragged and field.shape:
            draft.put(path, replace(field, shape=()), flattened(draft.makes[path]))
            draft.note("adapted", path, f"lists of numbers: each value of shape {field.shape}, number by number")


def _pad(draft: Draft, scan: Scan, path: str) -> None:
    field, make = draft.fields[path], draft.makes[path]
    width = scan.longest(path)
    draft.put(path, replace(field, shape=(width, *field.shape), kind="array"), padded(make, width))
    draft.put(path + LENGTHS, Field(np.dtype(np.int64), (), field.align), lengths(make))
    draft.note("adapted", path, f"padded with zeros to {width} values a row; {path}{LENGTHS} says how many count")
