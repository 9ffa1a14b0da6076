"""`ViewerServer`: the viewer of datasets as a server on this machine."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.data.curation import Curation, default_path
from penstock.data.dataset import EpisodeDataset
from penstock.data.located import LocatedData, locate
from penstock.domains.driving.map import MapAPI
from penstock.errors import ArgumentError, PenstockError, require
from penstock.formats.base.source import Source
from penstock.locations.location import has_url
from penstock.viewer.app import create_app
from penstock.viewer.viewed import ViewedDataset

HOST = "127.0.0.1"


class ViewerServer:
    """Server of the pages of datasets, on 127.0.0.1. It owns the datasets and its port; `close` releases both.

    Args:
        locations: Paths, ids or URLs of datasets.
        format: Name of the format of all of them. The default is None: recognised by content.
        port: Port. The default is 0: a free one.
        curation: File for the marks of the one dataset. The default is None: next to each local dataset.
        storage_options: Options of the stores of URLs, as fsspec calls them. The default is none.
        road: Map of driving logs. The default is None: no map.
        options: Options of the format.

    Attributes:
        address: Address of the pages. It contains the secret token.

    Raises:
        ArgumentError: There are no locations, or several with one `curation`.
        FormatError: `curation` is no curation, or data is damaged.
        StateError: `curation` is for another dataset.
        MissingExtraError: Starlette or uvicorn is not installed.
        OSError: The port is in use.

    Example:
        >>> import penstock, tempfile
        >>> recorded = penstock.from_arrays({"rewards": [0.0, 1.0]}, lengths=[2])
        >>> report = penstock.convert(recorded, f"{tempfile.mkdtemp()}/demo")
        >>> with ViewerServer([str(report.out)]) as server:
        ...     print(server.address.split("?")[0].rsplit(":", 1)[0])
        http://127.0.0.1
    """

    def __init__(
        self,
        locations: Sequence[str],
        *,
        format: str | None = None,
        port: int = 0,
        curation: Path | None = None,
        storage_options: Mapping[str, Any] | None = None,
        road: MapAPI | None = None,
        **options: Any,
    ) -> None:
        if not locations:
            raise ArgumentError("expected at least one dataset, got none")
        if curation is not None and len(locations) > 1:
            raise ArgumentError(f"expected one dataset with a file for its marks, got {len(locations)}")
        uvicorn: Any = require("uvicorn", "serve")
        self._opened = ExitStack()
        try:
            self.datasets = self._open(locations, format, curation, storage_options, road, options)
            self._listener = self._opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((HOST, port))
            self._listener.listen(128)  # requests before `run` wait
            token = secrets.token_urlsafe(16)
            self.address = f"http://{HOST}:{self._listener.getsockname()[1]}/?token={token}"
            app = create_app(self.datasets, token)
            self._server: Any = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        except BaseException:
            self._opened.close()
            raise

    def _open(
        self,
        locations: Sequence[str],
        format: str | None,
        curation: Path | None,
        stores: Mapping[str, Any] | None,
        road: MapAPI | None,
        options: dict[str, Any],
    ) -> list[ViewedDataset]:
        """Open datasets with different names, from the last parts of their locations."""
        datasets: dict[str, ViewedDataset] = {}
        for location in locations:
            located = locate(location, format=format, storage_options=stores if has_url(location) else None)
            data = self._opened.enter_context(EpisodeDataset(located.open(**options)))
            number, name = 1, located.name
            while name in datasets:
                number += 1
                name = f"{located.name}-{number}"
            file, message = (curation, "") if curation is not None else _curation_of(located, data.source)
            datasets[name] = ViewedDataset(
                name, str(located), located.format, data, curation=file, no_curation=message, road=road
            )
        return list(datasets.values())

    def run(self) -> None:
        """Answer requests until `stop`, or until the process is interrupted."""
        self._server.run(sockets=[self._listener])

    def stop(self) -> None:
        """Let `run` return, from any thread."""
        self._server.should_exit = True

    def close(self) -> None:
        """Close the port and the datasets, after `run` returned. A check in work ends first."""
        for dataset in self.datasets:
            dataset.wait_for_check()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _curation_of(located: LocatedData, source: Source) -> tuple[Path | None, str]:
    """The file for marks next to a dataset, or None and why there is none."""
    if len(located.paths) != 1 or located.datasets[0].url is not None:
        return None, "read-only: --curation FILE is the file for marks of data behind a URL or of several files"
    file = default_path(located.paths[0])
    try:
        if file.exists():
            Curation.read(file).require(source)
    except PenstockError as error:
        return None, f"read-only: {file}: {error}"
    return file, ""
