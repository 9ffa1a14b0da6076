"""Names of public datasets, as users of Hugging Face, LeRobot and Minari type them: `lerobot/pusht`,
`D4RL/door/human-v2`. What is on this machine is opened first (`Format.locate`), then the dataset of the hub."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.errors import MissingExtraError, RemoteError
from penstock.formats.base.format import Format, HubDataset, available
from penstock.locations.hub import DATASETS, NotAskedError, download_cache, downloaded, is_repository
from penstock.locations.location import Location

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)*", re.ASCII)


def hub_datasets(name: str, formats: Iterable[Format]) -> list[HubDataset]:
    """The datasets of hubs that a name may stand for, the most likely first.

    A name in a folder that is here, or with the ending of a file of some format, is a path with nothing behind it: no
    hub is asked for it.
    """
    first, *others = name.split("/")
    endings = tuple(ending for each in available().values() for ending in (*each.suffixes, *each.file_suffixes))
    if _NAME.fullmatch(name) is None or name.endswith(endings) or (others and Path(first).exists()):
        return []
    datasets = [place for each in formats if (place := each.on_hub(name)) is not None]
    if is_repository(name):
        command = f"hf download {name} --repo-type dataset"
        datasets.append(HubDataset(f"{DATASETS}{name}", download_cache(), "HF_HUB_CACHE", command))
    return list({place.url: place for place in reversed(datasets)}.values())[::-1]


def open_on_hub(name: str, places: Sequence[HubDataset]) -> tuple[str, Path]:
    """The URL or path, and the path to read from, of the first dataset that exists: downloaded, else in place."""
    for place in places:
        if (copy := downloaded(place.url)) is not None:
            return str(copy), copy
    said: list[str] = []
    refused = False
    for place in places:
        try:
            return Location.of(place.url).resolve()[0]
        except (FileNotFoundError, MissingExtraError, NotAskedError) as error:
            said.append(str(error))
        except RemoteError as error:
            said.append(str(error))
            refused = True
    message = (
        f"{name} is not on this machine: nothing at {Path(name).absolute()}"
        f"{''.join(f', nor at {place.folder} ({place.setting})' for place in places)}"
        f", nor in {download_cache()} (HF_HUB_CACHE). On its hub: {'; '.join(said)}. "
        f"To have it here: {' or '.join(place.command for place in places)}"
    )
    raise RemoteError(message) if refused else FileNotFoundError(message)
