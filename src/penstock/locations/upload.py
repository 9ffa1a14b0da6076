"""`uploading`: write a dataset to a URL so that it becomes visible only when it is complete.

The dataset is written whole to a folder in the user's cache, then uploaded in this order:

1. `MARKER`, with names, sizes and checksums of all files. `open` refuses a folder that has it.
2. The files, several at a time. The files by which formats recognise a dataset (`LAST`) follow one by one.
3. `MARKER` is deleted.

A killed upload leaves the marker. The next call with the same data uploads what is missing; files of the size in the
marker are complete, because stores replace whole objects. A single file is one object, and needs no marker.
Repositories of Hugging Face have commits instead (`hub_upload`).
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.core.narrowing import is_dict
from penstock.errors import FormatError, StateError
from penstock.files import locked, write_atomic
from penstock.files.user_cache import user_cache
from penstock.flow import map_on_threads
from penstock.locations.hub import DATASETS, beside
from penstock.locations.hub_upload import HubUpload, files_below
from penstock.locations.location import MARKER, Url
from penstock.locations.stores import object_store

LAST = ("metadata.json", "dataset_info.json", "info.json", ".zmetadata", ".zgroup", "zarr.json", "spec.json")
AT_ONCE = 8  # files that are uploaded at a time


@contextmanager
def uploading(
    url: Url,
    options: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
    on_commit: Callable[[str], object] | None = None,
) -> Generator[Path]:
    """Give a local path to write a dataset to, and upload it to a URL when the block ends without an error.

    `on_commit` is called with the commit that has the dataset, if the store has commits.

    Files next to it whose names begin with its name are uploaded next to the URL, before the dataset. The path exists
    if an earlier call was interrupted. It stays after an error, so that the next call can go on.
    """
    path = upload_path(url)
    upload = (HubUpload if url.full.startswith(DATASETS) else _Upload)(url, options)
    upload.check(path)
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, holder=f"another upload to {url}"):
        yield path
        for beside in sorted(folder.glob(f"{glob.escape(path.name)}.*")):
            upload.put_beside(beside, beside.name.removeprefix(path.name))
        commit = upload.run(path, overwrite=overwrite)
        if on_commit is not None and commit is not None:
            on_commit(commit)
        shutil.rmtree(folder)


def upload_path(url: Url) -> Path:
    """Return the path that `uploading` gives, in a folder of its own in the user's cache."""
    folder = user_cache("uploads") / hashlib.sha256(url.full.encode()).hexdigest()[:32]
    return folder / (str(url).rstrip("/").rpartition("/")[2] or "data")


class _Upload:
    """One upload to the objects below a URL."""

    def __init__(self, url: Url, options: Mapping[str, Any] | None) -> None:
        self.url = url
        self._store = object_store(url.full, options)
        self._options = options

    def _sizes(self) -> dict[str, int]:
        """Size of each object at the URL, by name."""
        try:
            return {info.name: info.size for info in self._store.list()}
        except FileNotFoundError:
            return {}

    def check(self, path: Path) -> None:
        """Raise `FileExistsError` if there is anything but an unfinished upload, wherever its files are here."""
        sizes = self._sizes()
        if sizes and MARKER not in sizes:
            first = min(sizes) or "an object"
            raise FileExistsError(
                f"expected nothing at {self.url}, got {len(sizes)} objects, first {first}; write to another place, or "
                "delete them"
            )

    def run(self, path: Path, *, overwrite: bool) -> None:
        """Upload a file, or what is missing of a folder."""
        if path.is_file():
            self._store.put("", path)
            return
        files = files_below(path)
        manifest = {name: [place.stat().st_size, _checksum(place)] for name, place in files.items()}
        sizes = self._sizes()
        begun = self._begun(sizes[MARKER]) if MARKER in sizes else None
        if begun is not None and begun != manifest:
            if not overwrite:
                raise StateError(
                    f"expected at {self.url} nothing, or an unfinished upload of these files, got one of other files; "
                    "delete its objects, or start again with overwrite=True (--overwrite)"
                )
            for name in begun.keys() & sizes.keys():
                self._store.delete(name)
            begun = None
        if begun is None:
            marker = path.parent / MARKER
            write_atomic(marker, json.dumps(manifest).encode())
            self._store.put(MARKER, marker)
        missing = [name for name in files if begun is None or sizes.get(name) != manifest[name][0]]
        self._put([name for name in missing if os.path.basename(name) not in LAST], files)
        for last in LAST:
            for name in (name for name in missing if os.path.basename(name) == last):
                self._put([name], files)
        self._store.delete(MARKER)

    def put_beside(self, path: Path, ending: str) -> None:
        """Upload a file that is next to the dataset, such as the certificate of a conversion."""
        object_store(beside(self.url.full, ending), self._options).put("", path)

    def _put(self, names: Sequence[str], files: Mapping[str, Path]) -> None:
        def put(name: str) -> None:
            self._store.put(name, files[name])

        map_on_threads(put, names, AT_ONCE, name="penstock-upload")

    def _begun(self, size: int) -> dict[str, list[Any]]:
        """The files of the unfinished upload."""
        (raw,) = self._store.read(MARKER, [(0, size)])
        try:
            state: object = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"expected the files of an upload: {error}", path=self.url, where=MARKER) from error
        if not is_dict(state):
            raise FormatError("expected the files of an upload, got another JSON value", path=self.url, where=MARKER)
        return state


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
