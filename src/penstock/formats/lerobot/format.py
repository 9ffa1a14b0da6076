"""The LeRobot format."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.core.spec import Spec
from penstock.errors import ArgumentError, PenstockError
from penstock.files import locked
from penstock.formats.base.findings import Repair
from penstock.formats.base.format import Finding, Format, HubDataset
from penstock.formats.base.writer import Target
from penstock.formats.lerobot.check import findings, repairs
from penstock.formats.lerobot.creation import ENCODER, WriteOptions
from penstock.formats.lerobot.info import LOCK, has_info
from penstock.formats.lerobot.joining import join_datasets
from penstock.formats.lerobot.source import LeRobotSource
from penstock.formats.lerobot.writer import LeRobotWriter, create
from penstock.locations.hub import DATASETS, is_repository, lerobot_home

TARGET = Target(
    "lerobot",
    aligns=("step",),
    ragged="text",
    options=(
        *("fps", "robot_type", "cameras", "depth", *ENCODER),
        *("data_files_size_in_mb", "video_files_size_in_mb", "chunks_size"),
    ),
    files=("meta", "data", "videos", ".penstock"),
)


class LeRobotFormat(Format):
    """LeRobot datasets of versions 2.0, 2.1 and 3.0. See docs/formats/lerobot.md."""

    name: ClassVar[str] = "lerobot"
    description: ClassVar[str] = "LeRobot datasets 2.0, 2.1 and 3.0, with images or video"
    extras: ClassVar[tuple[str, ...]] = ("arrow", "images", "video")

    def recognises(self, path: Path) -> bool:
        """Return whether there is a `meta/info.json` with a version. Cost: one small file."""
        try:
            return has_info(path)
        except (PenstockError, OSError):
            return False

    @override
    def locate(self, name: str) -> Path | None:
        """The dataset `OWNER/NAME` in LeRobot's folder, or None."""
        folder = lerobot_home() / name
        return folder if is_repository(name) and has_info(folder) else None

    @override
    def on_hub(self, name: str) -> HubDataset | None:
        """The dataset `OWNER/NAME` of Hugging Face."""
        if not is_repository(name):
            return None
        folder = lerobot_home() / name
        command = f"hf download {name} --repo-type dataset --local-dir {folder}"
        return HubDataset(f"{DATASETS}{name}", folder, "HF_LEROBOT_HOME", command)

    def open(self, path: Path, **options: Any) -> LeRobotSource:
        return LeRobotSource(path, **options)

    @override
    def target(self, options: Mapping[str, Any]) -> Target:
        """What `create` can store."""
        return TARGET

    def create(
        self, path: Path, spec: Spec, metadata: Mapping[str, Any] | None = None, **options: Any
    ) -> LeRobotWriter:
        """Create a dataset of version 3.0. Options are the fields of `WriteOptions`."""
        return create(Path(path), spec, metadata or {}, WriteOptions(**options))

    def append(self, path: Path, **options: Any) -> LeRobotWriter:
        """Open a dataset of version 3.0 for appending. There are no options."""
        if options:
            raise ArgumentError(f"expected no options to append, got {options}")
        with LeRobotSource(path) as source:
            spec = source.written_spec
        return LeRobotWriter(path, spec)

    @override
    def join_parts(self, parts: Sequence[Path], out: Path, place: Path) -> None:
        """Data files and videos are moved. Numbers of tasks follow from all parts, and are written again."""
        join_datasets(parts, out)

    def check(self, path: Path, *, deep: bool = True, **options: Any) -> Iterator[Finding]:
        """Compare totals and footers, and with `deep` indices and timestamps."""
        return findings(path, options, deep=deep)

    @override
    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        return repairs(path, findings)

    @override
    def writing_lock(self, path: Path) -> AbstractContextManager[object]:
        (path / LOCK).parent.mkdir(exist_ok=True)
        return locked(path / LOCK, os.O_RDWR | os.O_CREAT)
