"""`RecordingSchema`: the columns of a recording."""

from __future__ import annotations

import os

import numpy as np

from penstock.core.space_columns import space_fields
from penstock.core.spaces import Space
from penstock.core.spec import Field, Spec
from penstock.errors import SpecError
from penstock.recording.infos import MASK, SHAPE, InfoSchema

# First keys that extras cannot have.
RESERVED = ("observations", "actions", "rewards", "terminations", "truncations", "infos", MASK)


class RecordingSchema:
    """Columns of a recording: the Minari standard's, infos, and extras. Final after the first episode."""

    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        infos: InfoSchema | None = None,
        *,
        extras: bool = False,
        reserved: tuple[str, ...] = RESERVED,
    ) -> None:
        self.spaces = observation_space, action_space
        self.infos = infos
        self.extras = InfoSchema("error", "", "boundary", reserved) if extras else None
        self.step_extras = InfoSchema("error", "", "step", reserved) if extras else None

    def spec(self) -> Spec:
        """Return the columns that are known so far."""
        fields = self._standard()
        for schema in (self.infos, self.extras, self.step_extras):
            if schema is not None:
                fields |= schema.all_fields()
        return Spec(fields, *self.spaces)

    @property
    def is_plain(self) -> bool:
        """Whether there are no infos, and no extras so far."""
        extras = [schema for schema in (self.extras, self.step_extras) if schema is not None]
        return self.infos is None and not any(schema.fields for schema in extras)

    def adopt(self, stored: Spec, path: str | os.PathLike[str]) -> None:
        """Take over the columns of a dataset that is continued. They are final."""
        names = ("observation space", "action space")
        for name, own, theirs in zip(names, self.spaces, (stored.observation_space, stored.action_space), strict=True):
            if theirs is not None and own != theirs:
                raise SpecError(
                    f"expected the {name} {theirs} of the dataset at {path}, got {own}; record to a new path"
                )
        self._adopt_fields(stored)
        own, theirs = dict(self.spec().fields), dict(stored.fields)
        if own != theirs:
            differing = sorted(p for p in own.keys() | theirs.keys() if own.get(p) != theirs.get(p))
            raise SpecError(
                f"expected the columns of the dataset at {path}, got others: {', '.join(differing)} differ; "
                "record with the same record_infos, hook and dtypes as before, or to a new path; "
                "record_infos='error' has no infos_mask"
            )

    def _adopt_fields(self, stored: Spec) -> None:
        standard = self._standard()
        for path, field in stored.fields.items():
            first = path.split("/", 1)[0]
            if self.infos is not None and first == self.infos.prefix:
                self.infos.fields[path] = field
                if self.infos.shape(path) in stored:
                    self.infos.varying.add(path)
            elif first not in ("infos", MASK, SHAPE) and path not in standard:
                schema = self.step_extras if field.align == "step" else self.extras
                if schema is not None:
                    schema.fields[path] = field
        for schema in (self.infos, self.extras, self.step_extras):
            if schema is not None:
                schema.fixed = True

    def _standard(self) -> dict[str, Field]:
        return {
            **space_fields(self.spaces[0], "observations", "boundary"),
            **space_fields(self.spaces[1], "actions", "step"),
            "rewards": Field(np.dtype(np.float64)),
            "terminations": Field(np.dtype(np.bool_)),
            "truncations": Field(np.dtype(np.bool_)),
        }
