"""`ViewerServer`: the viewer of datasets and of loaders as a server on this machine."""

from __future__ import annotations

import secrets
import socket
import sys
import threading
from collections.abc import Container, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.data.curation import Curation, default_path
from penstock.data.dataset import EpisodeDataset
from penstock.data.located import LocatedData, locate
from penstock.data.map_dataset import MapDataset
from penstock.data.planned_rows import source_name
from penstock.errors import ArgumentError, PenstockError
from penstock.formats.base.source import Source
from penstock.loading.loader import Loader
from penstock.loading.ticket import Ticket
from penstock.locations.location import has_url
from penstock_live.endpoint import look
from penstock_studio.viewer.app import create_app
from penstock_studio.viewer.guard import Access
from penstock_studio.viewer.live_watch import LiveWatch
from penstock_studio.viewer.viewed import ViewedDataset
from penstock_studio.viewer.viewed_loader import SourcePage, ViewedLoader
from penstock_studio.views import check_options

HOST = "127.0.0.1"
SHORTEST = 12  # characters of a password
TURN = 0.0005  # seconds; with Python's 0.005, a request waits ten times as long for the threads of a check


class _ShortTurns:
    """Threads of this process take turns every `TURN` seconds while a server runs, whichever of several ends first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers = 0
        self._before = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._servers:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(TURN)
            self._servers += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._servers -= 1
            if not self._servers:
                sys.setswitchinterval(self._before)


_SHORT_TURNS = _ShortTurns()


class ViewerServer:
    """Server of the pages of datasets and of loaders, on 127.0.0.1.

    It owns the datasets that it opens and its port; `close` releases both. The sources of the loader have pages too.
    """

    def __init__(
        self,
        locations: Sequence[str],
        *,
        format: str | None = None,
        port: int = 0,
        curation: Path | None = None,
        storage_options: Mapping[str, Any] | None = None,
        view: Mapping[str, str] | None = None,
        loader: Loader[Any] | None = None,
        place: str = "loader",
        ticket: Ticket | None = None,
        live: str | None = None,
        read_only: bool = False,
        name: str | None = None,
        password: str | None = None,
        predictions: str | None = None,
        **options: Any,
    ) -> None:
        if not locations and loader is None and live is None:
            raise ArgumentError("expected at least one dataset, a loader or a running loader, got none")
        if curation is not None and len(locations) > 1:
            raise ArgumentError(f"expected one dataset with a file for its marks, got {len(locations)}")
        if (name is not None or password is not None) and not read_only:
            raise ArgumentError("expected read_only with a name or a password for others, got a server that writes")
        if password is not None and len(password) < SHORTEST:
            raise ArgumentError(f"expected a password of at least {SHORTEST} characters, got {len(password)}")
        if predictions is not None and len(locations) != 1:
            raise ArgumentError(f"expected one dataset with its predictions, got {len(locations)}")
        import uvicorn

        self._read_only = read_only
        self._opened = ExitStack()
        try:
            self.datasets = self._open(locations, format, curation, storage_options, view or {}, options)
            if predictions is not None:
                self._add_predictions(predictions, storage_options)
            check_options(view or {}, (dataset.contents.view_name for dataset in self.datasets))
            viewed = None if loader is None else ViewedLoader(place, loader, self._sources_of(loader))
            self._listener = self._opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((HOST, port))
            self._listener.listen(128)  # requests before `run` wait
            token = secrets.token_urlsafe(16)
            self.address = f"http://{HOST}:{self._listener.getsockname()[1]}/?token={token}"
            self.start = self.address + _first_page(locations, ticket, planned=viewed is not None)
            watch = None if live is None else LiveWatch(partial(look, live), f"loader at {live}")
            access = Access(token, password, name, read_only)
            app = create_app(self.datasets, access, loader=viewed, live=watch)
            self._server: Any = uvicorn.Server(
                uvicorn.Config(app, log_config=None, log_level="warning", access_log=False)
            )
            if watch is not None:
                self._opened.callback(watch.close)
                watch.start()
        except BaseException:
            self._opened.close()
            raise

    def _open(
        self,
        locations: Sequence[str],
        format: str | None,
        curation: Path | None,
        stores: Mapping[str, Any] | None,
        view: Mapping[str, str],
        options: dict[str, Any],
    ) -> list[ViewedDataset]:
        """Open datasets with different names, from the last parts of their locations."""
        datasets: dict[str, ViewedDataset] = {}
        for location in locations:
            located = locate(location, format=format, storage_options=stores if has_url(location) else None)
            data = self._opened.enter_context(EpisodeDataset(located.open(**options)))
            name = _another_name(located.name, datasets)
            file, message = (curation, "") if curation is not None else _curation_of(located, data.source)
            datasets[name] = ViewedDataset(
                name,
                str(located),
                located.format,
                data,
                curation=file,
                no_curation=message or self._may_not_write,
                view=view,
            )
        return list(datasets.values())

    def _add_predictions(self, location: str, stores: Mapping[str, Any] | None) -> None:
        """Open what a policy predicts for the one dataset."""
        located = locate(location, storage_options=stores if has_url(location) else None)
        predicted = self._opened.enter_context(EpisodeDataset(located.open()))
        self.datasets[0].add_predictions(predicted, location)

    def _sources_of(self, loader: Loader[Any]) -> list[SourcePage]:
        """Pages of the sources of a loader. A source that a dataset has already is not shown twice."""
        pages: list[SourcePage] = []
        for source in loader.dataset.sources if isinstance(loader.dataset, MapDataset) else ():
            known = next((each for each in self.datasets if each.fingerprint == source.fingerprint), None)
            if known is None:
                place = source_name(source)
                name = _another_name(Path(place).name, [each.name for each in self.datasets])
                local = Path(place) if source.location is not None and not has_url(place) else None
                file, message = _marks_next_to(local, source)
                kind = type(source).__name__.removesuffix("Source").lower()
                data = EpisodeDataset(source)
                known = ViewedDataset(
                    name, place, kind, data, curation=file, no_curation=message or self._may_not_write
                )
                self.datasets.append(known)
            pages.append(SourcePage(known.name, source.offsets, next(iter(known.contents.cameras), "")))
        return pages

    @property
    def _may_not_write(self) -> str:
        return "this server is read-only" if self._read_only else ""

    def run(self) -> None:
        """Answer requests until `stop`, or until the process is interrupted.

        Meanwhile threads of this process take turns every half millisecond, so that answers do not wait for a check.
        """
        with _SHORT_TURNS:
            self._server.run(sockets=[self._listener])

    def stop(self) -> None:
        """Let `run` return, from any thread."""
        self._server.should_exit = True

    def close(self) -> None:
        """Close the port and the datasets, after `run` returned. A check in work is stopped."""
        for dataset in self.datasets:
            dataset.stop_check()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _first_page(locations: Sequence[str], ticket: Ticket | None, *, planned: bool) -> str:
    """The part of the address that names the page to begin with."""
    if ticket is not None:
        return f"#ticket/{ticket}"
    return "" if locations else "#plan" if planned else "#live"


def _another_name(name: str, taken: Container[str]) -> str:
    """A name that is not taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def _curation_of(located: LocatedData, source: Source) -> tuple[Path | None, str]:
    """The file for marks next to a dataset, or None and why there is none."""
    one = len(located.paths) == 1 and located.datasets[0].url is None
    return _marks_next_to(located.paths[0] if one else None, source)


def _marks_next_to(path: Path | None, source: Source) -> tuple[Path | None, str]:
    """The file for marks next to a path, or None and why there is none."""
    if path is None or not path.exists():
        return None, "read-only: --curation FILE is the file for marks of data behind a URL or of several files"
    file = default_path(path)
    try:
        if file.exists():
            Curation.read(file).require(source)
    except PenstockError as error:
        return None, f"read-only: {file}: {error}"
    return file, ""
