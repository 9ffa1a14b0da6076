"""Names of datasets on Hugging Face, and the folders on this machine that its libraries download them to."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from penstock.core.boundary import json_object
from penstock.errors import PenstockError, RemoteError

DATASETS = "hf://datasets/"
MAIN = "main"
COMMIT = re.compile(r"[0-9a-f]{40}")
LOGIN = "log in with `hf auth login`, or set HF_TOKEN"

_PATH = re.compile(r"datasets/([^/@]+/[^/@]+)(?:@(refs/(?:convert/[^/]+|pr/\d+)|[^/]+))?(?:/(.*))?")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def parsed(path: str) -> tuple[str, str, str] | None:
    """Repository, revision and path in it, of `datasets/OWNER/NAME[@REVISION][/PATH]`; None for another text."""
    match = _PATH.fullmatch(path)
    return None if match is None else (match[1], unquote(match[2] or MAIN), (match[3] or "").rstrip("/"))


class NotAskedError(RemoteError):
    """The Hub was not asked: there is no network, or none is to be used."""


def beside(url: str, ending: str) -> str:
    """The URL of a file next to a dataset; of a whole repository, of a hidden file in it."""
    before, mark, query = url.partition("?")
    parts = parsed(before.removeprefix("hf://")) if before.startswith(DATASETS) else None
    slash = "/" if parts is not None and not parts[2] else ""
    return f"{before.rstrip('/')}{slash}{ending}{mark}{query}"


def is_repository(name: str) -> bool:
    """Whether a text has the form `OWNER/NAME`."""
    return _REPOSITORY.fullmatch(name) is not None


def cache_home() -> Path:
    """The folder of Hugging Face's libraries: `HF_HOME`, or `~/.cache/huggingface`."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(os.environ.get("HF_HOME", f"{cache}/huggingface")).expanduser()


def lerobot_home() -> Path:
    """The folder of LeRobot's datasets: `HF_LEROBOT_HOME`, or `lerobot` in the folder of Hugging Face."""
    given = os.environ.get("HF_LEROBOT_HOME")
    return Path(given).expanduser() if given else cache_home() / "lerobot"


def download_cache() -> Path:
    """The folder of what the Hub's client downloaded: `HF_HUB_CACHE`, or `hub` in the folder of Hugging Face."""
    given = os.environ.get("HF_HUB_CACHE")
    return Path(given).expanduser() if given else cache_home() / "hub"


def downloaded(url: str, *, whole: bool = True) -> Path | None:
    """The folder or file on this machine that the Hub's client downloaded for a URL, or None.

    A revision is the commit that it had at the last download. With `whole`, the client's list of the files of that
    commit must be here, and all files with their sizes: a cache often has a part of a dataset.
    """
    if (parts := parsed(url.removeprefix("hf://"))) is None:
        return None
    repository, revision, inside = parts
    if ".." in inside.split("/"):
        return None
    for cache in (download_cache(), lerobot_home() / "hub"):
        folder = cache / f"datasets--{repository.replace('/', '--')}"
        try:
            commit = revision if COMMIT.fullmatch(revision) else (folder / "refs" / revision).read_text().strip()
        except (OSError, ValueError):
            continue
        snapshot = folder / "snapshots" / commit
        if not (COMMIT.fullmatch(commit) and (snapshot / inside).exists()):
            continue
        if not whole or _has_all(snapshot, inside, folder / "trees" / f"{commit}.json"):
            return snapshot / inside
    return None


def _has_all(snapshot: Path, inside: str, tree: Path) -> bool:
    """Whether all files of a commit, below a path in it, are in a folder with the sizes that its list has."""
    try:
        files = json_object(tree.read_bytes(), str(tree))["files"]
        wanted = {name: int(entry["size"]) for name, entry in files.items() if _is_below(name, inside)}
        return bool(wanted) and all(os.path.getsize(snapshot / name) == size for name, size in wanted.items())
    except (OSError, PenstockError, LookupError, TypeError, ValueError, AttributeError):
        return False  # another version of the client wrote another list


def _is_below(name: str, folder: str) -> bool:
    return not folder or name == folder or name.startswith(f"{folder}/")
