"""What is looked at when an episode closes: finite values, and members of the spaces. Whole columns at a time."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from penstock.core.ragged import Array, Ragged
from penstock.core.spaces import Box, Space
from penstock.core.spec import Spec
from penstock.errors import DataError

Verdict = Literal["error", "warn", "keep"]


class RecordingWarning(UserWarning):
    """Something recorded looks wrong; said once a column and kind."""


class Checks:
    """Looks at closed episodes: `nan` decides about NaN and infinity, `outside` about values outside their space.

    Raises `DataError` for "error", warns once a column with `RecordingWarning` for "warn". Cost: one or two passes
    over the columns.

    >>> from penstock.core.spec import Field
    >>> spec = Spec({"rewards": Field(np.dtype("float64"))})
    >>> Checks(spec, nan="error", outside="keep")(3, {"rewards": np.array([0.0, np.nan])})
    Traceback (most recent call last):
    penstock.errors.DataError: expected finite rewards, got nan - at row 1 of episode 3; ...
    """

    def __init__(self, spec: Spec, nan: Verdict, outside: Verdict) -> None:
        self.nan: Verdict = nan
        self.outside: Verdict = outside
        self._said: set[tuple[str, str]] = set()
        roots = (("observations", spec.observation_space), ("actions", spec.action_space))
        leaves = [(root, *leaf) for root, space in roots if space is not None for leaf in space.leaves()]
        every = [(f"{root}/{path}" if path else root, space) for root, path, space in leaves]
        watched = [*(path for path, _ in every if path.startswith("observations")), "rewards"]
        self._spaces = [(path, space) for path, space in every if not _boundless(space)]
        self._floats = [path for path in watched if spec[path].dtype.kind in "fc"]

    def __call__(self, number: int, columns: dict[str, Array]) -> None:
        """Look at one episode, whose number in the dataset is for the message."""
        if self.nan != "keep":
            for path in self._floats:
                finite = np.isfinite(np.asarray(columns[path]))
                if not finite.all():
                    self._report(self.nan, number, path, columns[path], _rows(~finite), "finite")
        if self.outside != "keep":
            for path, space in self._spaces:
                inside = space.contains(columns[path])
                if not inside.all():
                    self._report_outside(number, path, columns[path], ~inside, space)

    def _report_outside(self, number: int, path: str, values: Array, out: npt.NDArray[np.bool_], space: Any) -> None:
        if not isinstance(values, Ragged) and values.dtype.kind in "fc":
            out = out & ~_rows(np.isnan(values))  # NaN is the other check's
        if out.any():
            self._report(self.outside, number, path, values, out, f"in {_brief(space)},", "outside")

    def _report(
        self,
        verdict: Verdict,
        number: int,
        path: str,
        values: Array,
        bad: npt.NDArray[np.bool_],
        what: str,
        kind: str = "nan",
    ) -> None:
        row = int(np.argmax(bad))
        value = values[row : row + 1].strings()[0] if isinstance(values, Ragged) else values[row]
        message = (
            f"expected {what} {path}, got {_brief(value)} - at row {row} of episode {number}; "
            f"{int(bad.sum())} of {len(bad)} rows are so; {kind}='keep' records them unseen"
        )
        if verdict == "error":
            raise DataError(f"{message}, the episode was not saved")
        if (path, kind) not in self._said:
            self._said.add((path, kind))
            warnings.warn(f"{message}; not said again for {path}", RecordingWarning, stacklevel=2)


def _boundless(space: Space) -> bool:
    return isinstance(space, Box) and bool(np.isneginf(space.low).all() and np.isposinf(space.high).all())


def _rows(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return np.logical_or.reduce(flags.reshape(len(flags), -1), axis=1)


def _brief(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else text[:200] + "..."
