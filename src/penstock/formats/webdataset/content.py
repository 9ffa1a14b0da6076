"""Result of reading a layout: the columns of a dataset and the places of their values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.arrays import AnyArray, IntArray
from penstock.core.narrowing import is_array, is_scalar
from penstock.core.spec import Field, Spec
from penstock.errors import DataError
from penstock.formats.base.account import Account
from penstock.formats.webdataset.places import Places
from penstock.formats.webdataset.samples import Samples

Arrays = dict[str, AnyArray]
_PLACES = ("rows", "buffer", "offset", "held", "cuts")
_SAMPLES = ("keys", "shard", "archive", "payload", "size")


@dataclass(frozen=True, eq=False)
class Content:
    """A dataset in archives: `layout` that it was read by, spec, offsets of the episodes, the place of each column, and
    the samples it was read from."""

    layout: str
    spec: Spec
    offsets: IntArray
    columns: Mapping[str, Places]
    samples: Samples
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    episodes: tuple[Mapping[str, Any], ...] = ()  # metadata of each; () where there is none
    described: int = 0  # how often our own layout was described again
    account: Account = field(default_factory=Account)
    torn_tails: Mapping[str, int] = field(default_factory=dict[str, int])  # by archive: byte where an append stopped

    def packed(self) -> tuple[dict[str, Any], Arrays]:
        """As a header that JSON can hold once its arrays are lists, and arrays; `unpacked` is the inverse."""
        arrays: Arrays = {"offsets": self.offsets}
        arrays |= {f"samples/{name}": getattr(self.samples, name) for name in _SAMPLES}
        for i, places in enumerate(self.columns.values()):
            arrays |= {f"{i}/{name}": a for name in _PLACES if (a := getattr(places, name)) is not None}
        header = {
            "layout": self.layout,
            "spec": self.spec.to_json(),
            "columns": {path: places.field.to_json() for path, places in self.columns.items()},
            "extensions": self.samples.extensions,
            "metadata": self.metadata,
            "episodes": self.episodes,
            "described": self.described,
            "account": self.account.to_json(),
            "torn_tails": self.torn_tails,
        }
        return header, arrays

    @classmethod
    def unpacked(cls, header: Mapping[str, Any], arrays: Mapping[str, AnyArray]) -> Content:
        """What `packed` took apart. Places are checked against the archives when they are read."""
        columns: dict[str, Places] = {}
        for i, (path, described) in enumerate(header["columns"].items()):
            columns[path] = Places(Field.from_json(described), *(arrays.get(f"{i}/{name}") for name in _PLACES))  # pyright: ignore[reportArgumentType]
        keys, shard, archive, payload, size = (arrays[f"samples/{name}"] for name in _SAMPLES)
        samples = Samples(keys, shard, archive, tuple(header["extensions"]), payload, size)
        spec, episodes = Spec.from_json(header["spec"]), tuple(header["episodes"])
        account = Account.from_json(header["account"])
        entries = (header["metadata"], episodes, header["described"], account, header["torn_tails"])
        return cls(header["layout"], spec, arrays["offsets"], columns, samples, *entries)


def is_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata as JSON will give it back: NumPy values as numbers and lists.

    Raises `DataError` for what JSON cannot hold.
    """
    try:
        return json.loads(json.dumps(dict(metadata), default=_number))
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"expected metadata that JSON can hold: {error}") from error


def _number(value: object) -> Any:
    if (is_array(value) or is_scalar(value)) and value.dtype.kind in "biufU":
        return value.tolist()
    raise TypeError(f"got {type(value).__name__} {str(value)[:100]}")
