"""The Minari format: recognises, opens, creates, appends to and checks datasets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from penstock.containers.hdf5 import has_signature
from penstock.core.damage import warn_damage
from penstock.core.spec import Spec
from penstock.errors import ArgumentError, DataError, FormatError, PenstockError, SpecError, suggestion
from penstock.files import locked
from penstock.formats.base.file_facts import ReadFacts
from penstock.formats.base.findings import Finding, Repair
from penstock.formats.base.format import Format, HubDataset, index_entries
from penstock.formats.base.writer import Target
from penstock.formats.minari import arrow_writer, hdf5_writer, ids, index_cache, metadata, writing
from penstock.formats.minari.arrow_source import ArrowSource, episode_directories
from penstock.formats.minari.columns import MODES, Infos, check_columns
from penstock.formats.minari.hdf5_index import MAIN
from penstock.formats.minari.hdf5_source import Hdf5Source, Layout
from penstock.formats.minari.hdf5_writer import join_files
from penstock.formats.minari.index_cache import WHERE, Where
from penstock.formats.minari.recover import MinariSource, metadata_findings, metadata_repairs, place

LOOK = 8  # episodes that tell the columns of a dataset that is continued
DATA_FORMATS = ("hdf5", "arrow", "parquet")
MARKS = frozenset(("total_episodes", "data_format", "observation_space", "dataset_id"))


ARROW = Target(
    "minari, arrow",
    ("observations", "actions", "rewards", "terminations", "truncations"),
    flat=True,
    spaces=True,
    options=("data_format", "layout", "images", "sync"),  # not `statistics`, which an append would not know
    kept=("sync",),
    files=("data",),
)
HDF5 = replace(ARROW, name="minari, hdf5", ragged="bytes", flat=False)


class MinariFormat(Format):
    """Datasets of the Minari standard: HDF5 of 0.4 and 0.5, Arrow and Parquet of 0.5."""

    name: ClassVar[str] = "minari"
    description: ClassVar[str] = "Minari datasets (HDF5, Arrow, Parquet), 0.4 and 0.5"
    extras: ClassVar[tuple[str, ...]] = ("minari",)
    file_suffixes: ClassVar[tuple[str, ...]] = (".hdf5", ".h5")

    def recognises(self, path: Path) -> bool:
        """Whether there is a Minari `metadata.json`, or an HDF5 file whose root has episodes or Minari's attributes."""
        try:
            folder, main = place(path)
            if main is not None:
                return _holds_episodes(folder / main)
            entries = metadata.read_json(folder / metadata.FILE)
            if entries is None:  # an empty file, as a killed writer leaves it
                return (folder / metadata.FILE).is_file() and bool(episode_directories(folder))
            return bool(MARKS & entries.keys())
        except (PenstockError, OSError):
            return False

    def open(self, path: Path, *, infos: Infos = "strict", cache: Where = "user", **unknown: Any) -> MinariSource:
        """Open for reading; docs/formats/minari.md describes the options."""
        if unknown or infos not in MODES or cache not in WHERE:
            given = {"infos": infos, "cache": cache, **unknown}
            hint = "".join(suggestion(name, ("infos", "cache")) for name in unknown)
            raise ArgumentError(f"expected infos in {MODES} and cache in {WHERE}, got {given}{hint}")
        folder, main = place(path)
        if main is not None:
            return Hdf5Source(folder, main, infos, cache)
        return ArrowSource(folder, infos, cache)

    @override
    def target(self, options: Mapping[str, Any]) -> Target:
        """What `create` can store in this data format."""
        return HDF5 if options.get("data_format", "hdf5") == "hdf5" else ARROW

    def create(
        self,
        path: Path,
        spec: Spec,
        metadata: Mapping[str, Any] | None = None,
        *,
        data_format: str = "hdf5",
        layout: Layout = "0.5",
        images: writing.Images = "raw",
        statistics: bool = True,
        sync: writing.Sync = "close",
        checksums: bool = False,
        **unknown: Any,
    ) -> hdf5_writer.Hdf5Writer | arrow_writer.ArrowWriter:
        """Create an empty dataset in the directory `path` (which appears only when whole) and open it for writing."""
        if unknown or data_format not in DATA_FORMATS or layout not in ("0.5", "0.4") or images not in ("raw", "jpeg"):
            raise TypeError(
                f"expected data_format in {DATA_FORMATS}, layout '0.5' or '0.4', images 'raw' or 'jpeg', "
                f"got {data_format} {layout} {images} {unknown}"
            )
        if layout == "0.4" and (data_format != "hdf5" or images != "raw"):
            raise TypeError("expected data_format='hdf5' and images='raw' with layout='0.4', which knows nothing else")
        if checksums and data_format != "hdf5":
            raise TypeError(f"expected checksums=False for data_format={data_format!r}; only HDF5 has them")
        writing.each(sync)  # refused before anything is made
        whole = check_columns(spec)
        plan = writing.WritePlan.of(whole, images, statistics=statistics)
        entries = _entries(Path(path), whole, metadata or {}, data_format, layout, images)
        _ensure_parents(Path(path))
        if data_format == "hdf5":
            return hdf5_writer.create(Path(path), plan, entries, layout, sync, checksums=checksums)
        return arrow_writer.create(Path(path), plan, entries, sync)

    @override
    def join_parts(self, parts: Sequence[Path], out: Path, place: Path) -> None:
        """Episodes are folders, which are moved; of HDF5, they are groups, which are copied to one file."""
        if (parts[0] / ids.DATA / MAIN).exists():
            join_files(parts, out, place)
        else:
            arrow_writer.join_datasets(parts, out, place)

    def append(
        self, path: Path, *, sync: writing.Sync = "close", **unknown: Any
    ) -> hdf5_writer.Hdf5Writer | arrow_writer.ArrowWriter:
        """Open an existing dataset for writing more episodes, in its own layout."""
        if unknown:
            raise TypeError(f"expected no option but sync, got {unknown}; a dataset is continued as it was begun")
        folder, main = place(path)
        source = _look(folder, main)
        with source:
            if (left_out := source.account.warning()) is not None:
                warn_damage(f"{path}: {left_out}", stacklevel=2)
            spec, stored = source.spec, source.metadata
            layout = source.layout if isinstance(source, Hdf5Source) else "0.5"
            encoded = stored.get("jpeg_encoding", bool(source.frames))
            checksums = isinstance(source, Hdf5Source) and source.checksums
        if spec.observation_space is None or spec.action_space is None:
            raise FormatError(
                "expected spaces in the metadata, got none; write them with "
                "penstock.formats.minari.recover.rebuild_metadata, then append",
                path=folder,
            )
        images: writing.Images = "jpeg" if encoded is True else "raw"
        plan = writing.WritePlan.of(spec, images)
        if main is not None:
            return hdf5_writer.Hdf5Writer(folder, plan, layout, main, sync=sync, checksums=checksums)
        return arrow_writer.ArrowWriter(folder, plan, str(stored.get("data_format")), sync)

    def locate(self, name: str) -> Path | None:
        """The directory of the dataset with that id below the datasets root, or None."""
        try:
            path = ids.directory(name)
        except (DataError, FormatError):
            return None
        return path if (path / ids.DATA).is_dir() else None

    @override
    def on_hub(self, name: str) -> HubDataset | None:
        """The dataset with that id on the hub of Minari, which `MINARI_REMOTE` names."""
        try:
            path = ids.directory(name)
        except (DataError, FormatError):
            return None
        return HubDataset(f"{ids.hub()}/{name}", path, ids.ENVIRONMENT_VARIABLE, f"minari download {name}")

    def check(self, path: Path, *, deep: bool = True, infos: Infos = "strict") -> Iterator[Finding]:
        """Look for damage in the structure, the totals and the metadata of episodes. `infos` is an option of `open`."""
        return metadata_findings(path, self.open, infos)

    @override
    def build_index(
        self, paths: Sequence[Path], *, force: bool = False, facts: ReadFacts | None = None
    ) -> dict[str, Any]:
        """Open the dataset, which saves the index of a large dataset. It has no survey, so there are no `facts`."""
        folder, main = place(paths[0])
        file = index_cache.index_file((folder / main if main is not None else folder).absolute(), "user")
        if force and file is not None:
            file.path.unlink(missing_ok=True)
        before = None if file is None else file.inode
        with Hdf5Source(folder, main) if main is not None else ArrowSource(folder) as source:
            counts = {"episodes": len(source), "steps": source.steps}
        return {**counts, **index_entries(file, is_new=file is not None and file.inode != before)}

    @override
    def repairs(self, path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
        mended = ("totals", "missing-part")
        if any(finding.name in mended and finding.where.endswith(metadata.FILE) for finding in findings):
            yield from metadata_repairs(path, findings)

    @override
    def writing_lock(self, path: Path) -> AbstractContextManager[object]:
        folder, main = place(path)
        if main is None:
            return locked(folder)
        return locked(folder / f".{main}.lock", os.O_RDWR | os.O_CREAT)


def _look(folder: Path, main: str | None) -> MinariSource:
    """A few episodes, whose columns the next ones must have."""
    if main is None:
        return ArrowSource(folder, "skip")
    return Hdf5Source(folder, main, "skip", "off", LOOK)


def _holds_episodes(path: Path) -> bool:
    if not has_signature(path):
        return False
    file = hdf5_writer.File(path)
    names = file.root.links
    return any(n.startswith("episode_") for n in names) or bool(MARKS & file.root.attrs.keys()) or _beside(path)


def _beside(path: Path) -> bool:
    entries = metadata.read_json(path.with_name(metadata.FILE)) if path.name == MAIN else None
    return entries is not None and bool(MARKS & entries.keys())


def _entries(
    path: Path, spec: Spec, given: Mapping[str, Any], data_format: str, layout: Layout, images: str
) -> dict[str, Any]:
    if spec.observation_space is None or spec.action_space is None:
        raise SpecError("expected both spaces")
    entries = metadata.prepare(given, spec.observation_space, spec.action_space)
    entries.setdefault("dataset_id", ids.id_of(path))
    if layout == "0.4":
        kept = {k: v for k, v in entries.items() if k not in ("data_format", "jpeg_encoding", "minari_version")}
        return {**kept, "minari_version": metadata.LEGACY_VERSION}
    described = {"data_format": data_format, "jpeg_encoding": images == "jpeg"}
    return {"minari_version": metadata.VERSION, **entries, **described}


def _ensure_parents(path: Path) -> None:
    dataset_id = ids.id_of(path)
    if path.resolve().is_relative_to(ids.root().resolve()) and ids.DATASET_ID.fullmatch(dataset_id):
        ids.ensure_namespace(ids.parse(dataset_id).namespace)
