"""`PlanArguments`: the samples that options of `penstock plan` name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, TypeVar

from penstock.cli.chosen import chosen, chosen_dataset
from penstock.cli.options import opened, pairs
from penstock.data.map_dataset import MapDataset
from penstock.data.mix import mix
from penstock.errors import ArgumentError, DataError

T = TypeVar("T")
OWN_OPTIONS = ("length", "keep", "cache")
"""Arguments of `pack` that other options give."""


@dataclass(frozen=True)
class PlanArguments:
    """Windows, steps or packs of one dataset, or of several to mix."""

    locations: list[str]
    windows: int | None = None
    pack: dict[str, Any] | None = None
    shares: list[float] | None = None
    opening: list[str] | None = None
    storage: dict[str, Any] = field(default_factory=dict[str, Any])
    where: str | None = None

    def __post_init__(self) -> None:
        if self.windows is not None and self.pack is not None:
            raise ArgumentError("expected --windows or --pack, got both")
        if self.shares is not None and len(self.locations) == 1:
            raise ArgumentError(f"expected --shares with several datasets, got {self.locations}")

    def dataset(self) -> MapDataset:
        """Return the samples, in the order in which they are stored."""
        parts: list[MapDataset] = []
        for location in self.locations:
            episodes = chosen(opened(location, self.opening, storage=self.storage)[1], None, self.where)
            if self.pack is not None:
                parts.append(episodes.sequences().pack(**self.pack))
            else:
                parts.append(episodes.steps() if self.windows is None else episodes.windows(self.windows))
        return parts[0] if len(parts) == 1 else mix(parts, self.shares, union=True)

    def work_arguments(self) -> dict[str, Any]:
        """Return the arguments of the operation `pack`, without the folder of the plan."""
        if self.pack is None or len(self.locations) != 1:
            raise ArgumentError(f"expected one dataset with --pack and --cache to plan in parts, got {self.locations}")
        data = chosen_dataset(self.locations[0], self.opening, storage=self.storage, where=self.where)
        return {**data.arguments(), "pack": self.pack}


def pack_arguments(length: str | None, options: list[str] | None) -> dict[str, Any] | None:
    """Return the arguments of `MapDataset.pack` that options give, or None without a length."""
    given = pairs(options, "--pack-option")
    if length is None:
        if given:
            raise ArgumentError(f"expected --pack-option with --pack, got {given}")
        return None
    known = [name for name in signature(MapDataset.pack).parameters if name not in ("self", *OWN_OPTIONS)]
    if unknown := sorted(given.keys() - set(known)):
        raise ArgumentError(f"expected --pack-option with one of {', '.join(known)}, got {', '.join(unknown)}")
    default: Mapping[str, Any] = {} if given.get("method") == "concat_split" else {"overlong": "split"}
    return {"length": _length(length), **default, **given}


def _length(text: str) -> int | dict[str, int] | list[tuple[int, int]]:
    try:
        parts = [each.strip() for each in text.split(",")]
        if "=" in text:
            return {name: int(places) for name, _, places in (part.partition("=") for part in parts)}
        if ":" in text:
            return [(int(first), int(places)) for first, _, places in (part.partition(":") for part in parts)]
        return int(text)
    except ValueError:
        forms = "2048, tokens=2048,images=16 or 0:512,10000:2048"
        raise DataError(f"expected --pack as {forms}, got {text!r}") from None


def numbers(text: str, option: str, kind: Callable[[str], T]) -> list[T]:
    """Numbers of a kind between commas."""
    try:
        return [kind(each) for each in text.split(",") if each.strip()]
    except ValueError:
        raise DataError(f"expected {option} as numbers such as 4,1, got {text!r}") from None
