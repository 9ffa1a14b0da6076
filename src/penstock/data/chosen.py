"""`ChosenDataset`: a dataset and its chosen episodes as plain values, which any process can open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.narrowing import is_dict
from penstock.data.curation import Curation
from penstock.data.dataset import EpisodeDataset
from penstock.data.located import LocatedData, locate
from penstock.errors import DataError
from penstock.formats.base.source import Source
from penstock.locations.location import Location, without_credentials
from penstock.plan.episodes import Episodes

CREDENTIALS = ("key", "secret", "token", "password", "passwd", "sas", "credential", "auth", "cookie", "headers")
_ADVICE = "work plans are files that others may read: give credentials in the environment or in a profile"


@dataclass(frozen=True)
class ChosenDataset:
    """A location, how to open it, and which of its episodes are chosen, in which order.

    Args:
        location: A path, an id, a URL or a pattern.
        format: Name of the format. The default is None: recognised by content.
        options: Options of the format. The default is none.
        storage_options: Options of the stores of URLs. The default is none. Work plans store these, so credentials
            belong in the environment or in a profile.
        episodes: Episodes as `A:B` or a number. The default is None: all.
        where: Condition on the metadata of episodes. The default is None.
        numbers: Numbers of these episodes among those, in order. The default is None: all.
        curation: File of a curation. The default is None.
        shuffle: Whether the order is random. The default is False.
        seed: Seed of the random order. The default is 0.

    Example:
        >>> import penstock, tempfile
        >>> data = penstock.from_arrays({"rewards": [1.0, 2.0, 4.0]}, lengths=[2, 1])
        >>> place = penstock.convert(data, tempfile.mkdtemp() + "/data").out
        >>> with ChosenDataset(str(place), episodes="1:").open() as chosen:
        ...     chosen.total_steps
        1
    """

    location: str
    format: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    storage_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    episodes: str | None = None
    where: str | None = None
    curation: str | None = None
    shuffle: bool = False
    seed: int = 0
    numbers: Sequence[int] | None = None

    @classmethod
    def of_episodes(cls, source: Source, episodes: Episodes) -> ChosenDataset:
        """Describe chosen episodes of an open source, so that other processes open them.

        Args:
            source: The source of a dataset that `penstock.open` opened.
            episodes: Table of the chosen episodes.

        Raises:
            DataError: The source was made in another way, or excluded spans cut the episodes.

        Example:
            >>> import penstock, tempfile
            >>> data = penstock.from_arrays({"rewards": [1.0, 2.0, 4.0]}, lengths=[2, 1])
            >>> place = penstock.convert(data, tempfile.mkdtemp() + "/data").out
            >>> last = penstock.open(place)[1:]
            >>> ChosenDataset.of_episodes(last.source, last.episodes).open().total_steps
            1
        """
        if source.opened is None:
            raise DataError(
                "expected a dataset that other processes can open: one of penstock.open, without derived columns, got "
                f"{source!r}; write it without jobs= and runner="
            )
        if not np.array_equal(episodes.length, np.diff(source.offsets)[episodes.index]):
            raise DataError(
                "expected whole episodes, got some that excluded spans cut; write without jobs= and runner=, or use "
                "the command with --curation"
            )
        every = np.array_equal(episodes.index, np.arange(len(source)))
        location = source.opened["location"]
        if Location.of(location.text, location.storage_options).places != location.places:
            raise DataError(
                f"expected one path, URL or pattern to open, got a list: {location}; write a pattern, or write without "
                "jobs= and runner="
            )
        numbers = None if every else episodes.index.tolist()
        options, stores = source.opened["options"], dict(location.storage_options)
        return cls(location.text, source.opened["format"], options, stores, numbers=numbers)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> ChosenDataset:
        """Make one of the entries in `arguments` that have the names of its fields.

        Args:
            arguments: Arguments of an operation.

        Raises:
            DataError: There is no location.
        """
        if "location" not in arguments:
            raise DataError(f"expected arguments with the 'location' of a dataset, got {sorted(arguments)}")
        names = cls.__dataclass_fields__
        return cls(**{name: value for name, value in arguments.items() if name in names})

    def arguments(self) -> dict[str, Any]:
        """Return the fields as arguments of an operation.

        Raises:
            DataError: A storage option looks like a credential, or the location has a user, a password or a query.
        """
        refuse_credentials({"location": self.location, "storage_options": self.storage_options})
        place = Path(self.location)
        absolute = {**asdict(self), "location": str(place.absolute()) if place.exists() else self.location}
        if self.curation is not None:
            absolute["curation"] = str(Path(self.curation).absolute())
        return absolute

    def locate(self) -> LocatedData:
        """Return the datasets at the location."""
        return locate(self.location, format=self.format, storage_options=dict(self.storage_options) or None)

    def open(self) -> EpisodeDataset:
        """Open the dataset, and choose the episodes."""
        return self.choose(self.locate().open(**self.options))

    def choose(self, source: Source) -> EpisodeDataset:
        """Choose the episodes of an open source: by number, by curation, by condition, by `numbers`; then shuffle them.

        Args:
            source: The source.
        """
        data = EpisodeDataset(source)
        if self.episodes is not None:
            data = data[cut(self.episodes, len(data))]
        if self.curation is not None:
            data = data.apply(Curation.read(self.curation))
        if self.where is not None:
            data = data.filter(self.where)
        if self.numbers is not None:
            data = data[self.numbers]
        return data[np.random.default_rng(self.seed).permutation(len(data))] if self.shuffle else data


def refuse_credentials(arguments: Mapping[str, Any]) -> None:
    """Raise `DataError` for arguments of an operation that have credentials: work plans are files."""
    for name, value in arguments.items():
        if name == "storage_options" and is_dict(value) and (secret := _credentials(value)):
            raise DataError(f"expected storage options without credentials, got {secret}; {_ADVICE}")
        if is_dict(value):
            refuse_credentials(value)
        elif isinstance(value, str) and (place := without_credentials(value)) != value:
            raise DataError(f"expected a URL without a user and a query, got more than {place}; {_ADVICE}")


def _credentials(options: Mapping[str, Any]) -> list[str]:
    """The names of options that look like credentials, also inside of other options."""
    names: list[str] = []
    for name, value in options.items():
        if any(part in name.lower() for part in CREDENTIALS):
            names.append(name)
        elif is_dict(value):
            names += [f"{name}.{inner}" for inner in _credentials(value)]
    return sorted(names)


def cut(text: str, count: int) -> list[int]:
    """Parse `A:B` or `N` to a list of episodes below `count`. Raises `DataError`."""
    try:
        numbers = [int(part) if part else None for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) == 1 and numbers[0] is not None and -count <= numbers[0] < count:
        return [numbers[0] % count]
    if len(numbers) not in (2, 3):
        raise DataError(f"expected episodes as A:B or one of 0:{count}, got {text!r}")
    try:
        return list(range(count)[slice(*numbers)])
    except ValueError as error:
        raise DataError(f"expected episodes as A:B, got {text!r}: {error}") from error
