"""Arguments of LeRobot: where datasets are, and what is refused. Errors name the command of the Hub's own tools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NoReturn, get_args

from penstock.errors import ArgumentError, DataError
from penstock.files.remote import is_mirrored
from penstock.formats.lerobot.depth import UNITS, Unit
from penstock.formats.lerobot.info import INFO
from penstock.locations.hub import lerobot_home
from penstock.locations.location import Location, has_url, local_path

RepoType = Literal["dataset", "bucket"]
Patterns = Sequence[str] | str | None

HOME = "HF_LEROBOT_HOME"
NOT_DOWNLOADED = "nothing is downloaded; fetch the wanted revision into root before"
NO_TOKEN = "nothing is downloaded; a URL as root is read with the token that the Hub's own tools have stored"


def only(name: str, value: object, known: object, why: str) -> None:
    """Refuse an argument that has another value than the one that is honoured."""
    if value != known:
        raise ArgumentError(f"expected {name}={known!r}, got {value!r}: {why}")


def refuse_downloads(revision: str | None, force_cache_sync: bool, token: str | bool | None) -> None:
    """Refuse the arguments that choose what is downloaded."""
    only("revision", revision, None, NOT_DOWNLOADED)
    only("force_cache_sync", force_cache_sync, False, NOT_DOWNLOADED)
    only("token", token, None, NO_TOKEN)


def depth_unit(value: str) -> Unit:
    """Check `depth_output_unit`."""
    if value not in UNITS:
        raise ArgumentError(f"expected depth_output_unit among {list(UNITS)}, got {value!r}")
    return value


def video_backend_of(value: str | None) -> str | None:
    """Check `video_backend`."""
    if value not in (None, "pyav"):
        raise ArgumentError(f"expected video_backend None or 'pyav', got {value!r}")
    return value


def root_of(repo_id: str, root: str | Path | None) -> Path:
    """Return the folder of a dataset on this machine."""
    if root is not None:
        return local_path(root)
    return lerobot_home() / repo_id


def existing_root(repo_id: str, root: str | Path | None, repo_type: RepoType = "dataset") -> Path:
    """Return the folder of a dataset that exists. `root` may be a URL, whose files are fetched when they are read."""
    if repo_type not in get_args(RepoType):
        raise ArgumentError(f"expected repo_type among {list(get_args(RepoType))}, got {repo_type!r}")
    if repo_type == "bucket":
        only("root", root, None, "files of a bucket are read where they are, and kept in the cache of penstock")
        root = url_of(repo_id, repo_type)
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


def url_of(repo_id: str, repo_type: RepoType) -> str:
    """Return the URL of a dataset on the Hub."""
    return f"hf://{repo_type}s/{repo_id}"


def require_local(root: Path) -> None:
    if is_mirrored(root):
        raise DataError("expected a dataset on this machine to write to, got one behind a URL; record to a folder")


def refuse_to_push(repo_id: str, root: Path) -> NoReturn:
    """Raise an error that says how to upload a dataset."""
    raise ArgumentError(
        f"penstock does not upload: call finalize, then run `hf upload {repo_id} {root} --repo-type dataset`"
    )
