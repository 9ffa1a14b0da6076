"""Options that several commands share: `key=value`, sizes such as `64MB`, ranges of episodes, opening a dataset."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import typer

from penstock.data.located import LocatedData, locate
from penstock.errors import DataError, PenstockError
from penstock.formats.base.format import available
from penstock.formats.base.source import Source
from penstock.locations.location import Url, has_url, output_place

UNITS = {
    **{"": 1, "b": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9},
    **{"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30},
}

IN_HELP = "A path, a URL, an id that a format knows, or a pattern such as 'shard-{000..009}.tar' or 'runs/*'."
In = Annotated[str, typer.Argument(metavar="LOCATION", help=IN_HELP)]
Storage = Annotated[
    list[str] | None,
    typer.Option("--storage", metavar="KEY=VALUE", help="An option of the stores of URLs, such as anon=true."),
]
Opening = Annotated[
    list[str] | None, typer.Option("--open", metavar="KEY=VALUE", help="An option of the reader; can be repeated.")
]


def format_names() -> list[str]:
    """Names of the formats, for shell completion."""
    return list(available())


From = Annotated[
    str | None,
    typer.Option(
        "--from", help="The format of the source; by default recognised by content.", autocompletion=format_names
    ),
]
NewFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="The format of the new dataset; by default webdataset for *.tar, zarr for *.zarr, else columns.",
        autocompletion=format_names,
    ),
]
Where = Annotated[
    str | None,
    typer.Option("--where", help="Only episodes whose metadata meet a condition, such as 'total_steps > 100'."),
]
Episodes = Annotated[
    str | None, typer.Option("--episodes", metavar="A:B", help="Only these episodes, such as 0:100, :100, -10: or 7.")
]


def pairs(given: list[str] | None, name: str) -> dict[str, Any]:
    """Parse `key=value` texts to a dict; values are parsed as JSON if possible, else text."""
    parsed: dict[str, Any] = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise DataError(f"expected {name} key=value, got {text!r}")
        parsed[key] = value_of(value)
    return parsed


def value_of(text: str) -> Any:
    """Parse a value as JSON; other text is returned as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def nbytes(text: str) -> int:
    """Parse a size, in bytes."""
    digits = text.strip().rstrip("".join(set("".join(UNITS)) | set("".join(UNITS).upper())))
    unit = text.strip()[len(digits) :].lower()
    try:
        return int(float(digits) * UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        raise DataError(f"expected a size as 500MB, 1GiB or a number of bytes, got {text!r}") from None


def opened(
    location: str,
    options: list[str] | None = None,
    format: str | None = None,
    storage: Mapping[str, Any] | None = None,
    *,
    allow_unfinished: bool = False,
) -> tuple[LocatedData, Source]:
    """Open the datasets at a location: the datasets, and their source. An unknown option is a `DataError`."""
    located = locate(location, format=format, storage_options=storage)
    reader_options = pairs(options, "--open")
    try:
        return located, located.open(**{"allow_unfinished": allow_unfinished, **reader_options})
    except TypeError as error:
        refuse(located, reader_options, error)


def stores(given: list[str] | None, *locations: str) -> list[dict[str, Any]]:
    """Return the options of the store of each location that is read; none for paths."""
    options = pairs(given, "--storage")
    remote = [has_url(location) for location in locations]
    if options and not any(remote):
        raise DataError(f"expected --storage with a URL, got {sorted(options)} with local paths")
    return [options if each else {} for each in remote]


def storage_options(given: list[str] | None, location: str, out: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the store to read from, and of the store to write to."""
    options = pairs(given, "--storage")
    read, written = has_url(location), isinstance(output_place(out), Url)
    if options and not read and not written:
        raise DataError(f"expected --storage with a URL, got {sorted(options)} with local paths")
    return options if read else {}, options if written else {}


def refuse(located: LocatedData, reader_options: dict[str, Any], error: TypeError) -> NoReturn:
    """Raise a `DataError` for unknown options, or the `TypeError` itself if it has another cause."""
    if not reader_options or isinstance(error, PenstockError):
        raise error
    raise DataError(
        f"expected options that the format {located.format!r} knows, got {reader_options}: {error}"
    ) from error
