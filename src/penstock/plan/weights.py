"""Weights of a mix as exact shares, and reports of the resulting shares.

Shares are fractions that add up to exactly 1, so that counts have no rounding error after any number of samples. A
float counts as the decimal that it prints as: 0.1 is 1/10, and not the nearest binary number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import isfinite
from numbers import Rational, Real

from penstock.errors import PlanError

Weight = int | float | Fraction | Decimal | str


def shares(weights: Sequence[Weight]) -> tuple[Fraction, ...]:
    """Return weights as exact fractions that add up to 1.

    A float counts as the decimal that it prints as: 0.1 is 1/10. `(0.5, 0.3, 0.2)` therefore repeats after ten samples.
    """
    exact = [_exact(weight, i) for i, weight in enumerate(weights)]
    total = sum(exact, Fraction(0))
    if total == 0:
        raise PlanError(f"expected at least one weight above zero, got {list(weights)}")
    return tuple(weight / total for weight in exact)


def proportional(sizes: Sequence[int], maximum: int | None = None, temperature: float = 1) -> tuple[Fraction, ...]:
    """Return shares by size, `min(size, maximum) ** (1 / temperature)`.

    A high temperature makes the shares more equal. At temperature 1 they are exact.
    """
    if not (isfinite(temperature) and temperature > 0) or (maximum is not None and maximum < 1):
        raise PlanError(
            f"expected a temperature above zero and a maximum of 1 or more, got {temperature} and {maximum}"
        )
    capped = [size if maximum is None else min(size, maximum) for size in sizes]
    return shares(capped if temperature == 1 else [size ** (1 / temperature) if size > 0 else size for size in capped])


def nested(outer: Sequence[Weight], inner: Sequence[Sequence[Weight] | None]) -> tuple[Fraction, ...]:
    """Return the shares of a mix of mixes, flattened."""
    if len(outer) != len(inner):
        raise PlanError(f"expected one inner weight for each outer one, got {len(inner)} for {len(outer)}")
    parts = zip(shares(outer), inner, strict=True)
    return tuple(share * each for share, part in parts for each in (shares(part) if part is not None else (1,)))


def per_sample(wanted: Sequence[Fraction], mean_rows: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Return shares of samples that result in exact shares of rows (steps, tokens)."""
    if len(wanted) != len(mean_rows):
        raise PlanError(f"expected the mean rows of {len(wanted)} sources, got {len(mean_rows)}")
    for i, (share, rows) in enumerate(zip(wanted, mean_rows, strict=True)):
        if share > 0 and rows <= 0:
            raise PlanError(
                f"expected samples with rows in source {i}, of which {share} is wanted, got a mean of {rows}"
            )
    return shares([share / rows if share else share for share, rows in zip(wanted, mean_rows, strict=True)])


@dataclass(frozen=True)
class MixShare:
    """Contribution of one dataset to an epoch of a mix."""

    name: str
    wanted: Fraction
    samples: int
    share_of_samples: float
    rows: int | None = None
    share_of_rows: float | None = None


@dataclass(frozen=True)
class MixReport:
    """Contribution of each dataset to a mix. It prints as a table."""

    parts: tuple[MixShare, ...]

    @classmethod
    def of(
        cls, names: Sequence[str], wanted: Sequence[Fraction], samples: Sequence[int], rows: Sequence[int] | None = None
    ) -> MixReport:
        """Make a report from counts."""
        many, long = sum(samples) or 1, sum(rows or ()) or 1
        return cls(
            tuple(
                MixShare(name, wanted[i], int(samples[i]), samples[i] / many)
                if rows is None
                else MixShare(name, wanted[i], int(samples[i]), samples[i] / many, int(rows[i]), rows[i] / long)
                for i, name in enumerate(names)
            )
        )

    def __str__(self) -> str:
        table = [("source", "wanted", "samples", "share", "rows", "share"), *map(_cells, self.parts)]
        used = 6 if any(part.rows is not None for part in self.parts) else 4
        widths = [max(len(row[c]) for row in table) for c in range(used)]
        lines = [
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:used], widths[1:], strict=True))]
            for row in table
        ]
        return "\n".join("  ".join(line) for line in lines)


def _cells(part: MixShare) -> tuple[str, ...]:
    rows = ("", "") if part.rows is None else (str(part.rows), f"{part.share_of_rows:.4f}")
    return part.name, f"{float(part.wanted):.4f}", str(part.samples), f"{part.share_of_samples:.4f}", *rows


def _exact(weight: object, i: int) -> Fraction:
    value = _fraction(weight)
    if value is None or value < 0:
        raise PlanError(f"expected a weight that is a number of zero or more, got {weight!r} for source {i}")
    return value


def _fraction(weight: object) -> Fraction | None:
    """The number, floats as they print, or None for anything but a finite number."""
    if isinstance(weight, bool):
        return None
    if isinstance(weight, Rational):
        return Fraction(int(weight.numerator), int(weight.denominator))
    try:
        if isinstance(weight, str) and "/" in weight:
            return Fraction(weight)
        if not isinstance(weight, Real | Decimal | str):
            return None
        number = Decimal(str(weight))
        # Of a number with a huge exponent, the fraction alone would fill the memory.
        return Fraction(number) if abs(number.adjusted()) < 1000 else None
    except (ValueError, OverflowError, ZeroDivisionError, InvalidOperation):
        return None
