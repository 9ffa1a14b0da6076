"""Arguments of LeRobot: where datasets are, and the ones that are refused."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import ArgumentError, DataError
from penstock.files.remote import is_mirrored
from penstock.formats.lerobot.info import INFO
from penstock.locations.hub import lerobot_home
from penstock.locations.location import Location, has_url, local_path

HOME = "HF_LEROBOT_HOME"
NOT_DOWNLOADED = "nothing is downloaded; fetch the wanted revision into root before"


def only(name: str, value: object, known: object, why: str) -> None:
    """Refuse an argument that has another value than the one that is honoured."""
    if value != known:
        raise ArgumentError(f"expected {name}={known!r}, got {value!r}: {why}")


def root_of(repo_id: str, root: str | Path | None) -> Path:
    """Return the folder of a dataset on this machine."""
    if root is not None:
        return local_path(root)
    return lerobot_home() / repo_id


def existing_root(repo_id: str, root: str | Path | None) -> Path:
    """Return the folder of a dataset that exists. `root` may be a URL, whose files are fetched when they are read."""
    if root is not None and has_url(root):
        return Location.of(root).paths()[0]
    folder = root_of(repo_id, root)
    if not (folder / INFO).is_file():
        by = "root" if root is not None else HOME
        raise FileNotFoundError(
            f"no LeRobot dataset {repo_id!r}: looked for {folder / INFO}, by {by}; nothing is downloaded, so fetch it "
            f"there: hf download {repo_id} --repo-type dataset --local-dir {folder}"
        )
    return folder


def require_local(root: Path) -> None:
    """Refuse to write to a dataset behind a URL."""
    if is_mirrored(root):
        raise DataError("expected a dataset on this machine to write to, got one behind a URL; record to a folder")
