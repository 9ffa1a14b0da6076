"""`convert`: write the episodes of any source to a new dataset in any writable format."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from penstock.conversion.certificate import Certificate, certify, path_of
from penstock.conversion.draft import Note
from penstock.conversion.job import (
    ConversionJob,
    ConversionProgress,
    OnEpisode,
    check_kept,
    check_lossless,
    check_options,
    column_bytes,
    conversion_job,
    write_episodes,
)
from penstock.conversion.mark import check_apart, found_at, locked, remove
from penstock.core.arrays import IntArray
from penstock.data.dataset import EpisodeDataset, selection_of
from penstock.data.open import open
from penstock.errors import ArgumentError, DataError, FormatError
from penstock.files import sweep
from penstock.formats.base.account import UnfinishedWork, remove_mark
from penstock.formats.base.format import Format, format_to_write
from penstock.formats.base.source import Source
from penstock.formats.base.writer import Writer
from penstock.locations.location import LocationLike, Place, Url, has_url, output_place
from penstock.locations.upload import uploading

IN_PARTS = "penstock.jobs.in_parts:convert_in_parts"
"""What converts in parts. It is above this package, because it runs many kinds of work, so it is found by its name."""


@dataclass(frozen=True)
class ConversionReport:
    """Result of a conversion. Totals count the whole target; `revision` is the commit of a repository."""

    out: Path | str
    format: str
    status: Literal["converted", "resumed", "complete"]
    episodes: int
    steps: int
    bytes: int
    resumed_at: int
    notes: tuple[Note, ...]
    certificate: Certificate | None = None
    left_out: tuple[int, ...] = ()
    revision: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain data; of the certificate, whether the conversion was lossless."""
        return {
            "out": str(self.out),
            "format": self.format,
            "status": self.status,
            "episodes": self.episodes,
            "steps": self.steps,
            "bytes": self.bytes,
            "resumed_at": self.resumed_at,
            "notes": [vars(note) for note in self.notes],
            "left_out": list(self.left_out),
            **({} if self.revision is None else {"revision": self.revision}),
            "lossless": None if self.certificate is None else self.certificate.lossless,
        }


def convert(
    source: EpisodeDataset | Source | LocationLike,
    out: str | os.PathLike[str],
    *,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    drop: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    fill_missing: bool = False,
    overwrite: bool = False,
    allow_empty: bool = False,
    certificate: bool = True,
    require: Literal["lossless"] | None = None,
    on_episode: OnEpisode | None = None,
    on_verified: Callable[[int], object] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    jobs: int | None = None,
    runner: object = None,
) -> ConversionReport:
    """Convert a dataset to another format. The report lists every difference.

    Data that the target cannot store is stored in another form or left out, with a note in the report. Data that the
    target needs and the source lacks is an error, unless `fill_missing` is set.

    An interrupted conversion continues when it is called again: the target stores its source, episodes and options.
    Memory: some episodes.

    Args:
        source: What `penstock.open` opens, a `Source`, or an `EpisodeDataset`, whose chosen episodes are written in
            their order.
        out: Path or URL of the new dataset. For a URL, the dataset is written to the user's cache and then uploaded; to
            `hf://datasets/OWNER/NAME`, in one commit of a repository, which is private if it is new.
        format: Format of the new dataset. The default is chosen by the ending of its name:
            `webdataset` for `.tar`, `.tgz`, `.tar.gz`, `.tar.zst` and `.tzst`, `zarr` for `.zarr`, otherwise `columns`.
        options: Options of the format's writer. The default is none.
        drop: Columns to leave out. The default is none.
        rename: New names of columns, such as `{"obs": "observations"}`. The default is none.
        fill_missing: Whether to fill in missing data: zero rewards, no terminations, a truncation at each last step,
            and the last observation twice. The default is False.
        overwrite: Whether to start over. This deletes only files that a conversion wrote, and at a URL only objects of
            an unfinished upload. The default is False.
        allow_empty: Whether the source may have no episodes. The default is False.
        certificate: Whether to read both datasets again at the end, compare them, and write a certificate next to
            `out`. This takes about the time of the conversion once more. The default is True.
        require: `"lossless"` refuses a conversion that does not keep every column bit for bit, if possible before
            anything is written. The default is None.
        on_episode: Called as `on_episode(episodes, steps, bytes)` with the totals after each episode. The default is
            None.
        on_verified: Called with the number of compared episodes after each. The default is None.
        storage_options: Options of the stores of URLs, as fsspec calls them. `private=False` makes a new repository of
            Hugging Face public. The default is none.
        jobs: How many parts at a time, on processes of this machine, as for `penstock convert --jobs`; each opens the
            source itself. The default is None: one run in this process, or with `runner` its own default.
        runner: Where the parts run: `"processes"`, `"threads"`, `"ray"`, or a `Runner` of `penstock.jobs`, which has
            the resources of a part. The default is None: with `jobs`, processes.

    Returns:
        Status, totals, notes and the certificate.

    Raises:
        ArgumentError: There are `storage_options`, and neither `source` nor `out` is a URL. Or an argument does not go
            with parts.
        FileExistsError: Other data exists at `out`.
        StateError: `out` is the target of another conversion.
        DataError: The source has no episodes, or the target cannot store a value or lacks needed data, or does not have
            the values that were written, or not all with `require="lossless"`.
        SpecError: The target cannot store a column.
        LockedError: Another conversion to `out` is running.
        RemoteError: The store at a URL does not answer or refuses access.
        WorkerError: Parts failed. The message has their episodes and errors; called again, they run again.

    Example:
        >>> import numpy as np, penstock, tempfile
        >>> from pathlib import Path
        >>> data = penstock.from_arrays({"observations": np.zeros((7, 2)), "rewards": np.zeros(5)}, lengths=[2, 3])
        >>> report = convert(data, Path(tempfile.mkdtemp()) / "out", format="webdataset")
        >>> report.status, report.episodes, report.steps, report.notes
        ('converted', 2, 5, ())
    """
    place = output_place(out)
    commits: list[str] = []
    target_options = dict(options or {})
    entry = format_to_write(out, format)
    target = entry.target(target_options)
    check_options(target, target_options)
    with ExitStack() as opened:
        data = _episodes(source, place, opened, storage_options)
        if jobs is not None or runner is not None:
            if overwrite or allow_empty or on_episode is not None or on_verified is not None:
                wrong = "overwrite, allow_empty, on_episode or on_verified"
                raise ArgumentError(f"expected parts without {wrong}, got one of them; leave out jobs= and runner=")
            rules = {"drop": list(drop), "rename": dict(rename or {}), "fill_missing": fill_missing}
            rules |= {"certificate": certificate, "require": require, "to": format, "writer": target_options}
            in_parts = pkgutil.resolve_name(IN_PARTS)
            return in_parts(data, place, rules, dict(storage_options or {}), jobs, runner)
        if not len(data) and not allow_empty:
            raise DataError(
                f"expected episodes to convert, got none: {data.episodes.reason}; allow_empty=True allows that"
            )
        job = conversion_job(data, target, target_options, drop, dict(rename or {}), fill=fill_missing)
        if require is not None:
            check_lossless(job, require, certificate=certificate)
        path = place
        if isinstance(path, Url):  # in the user's cache, whose dataset is uploaded at the end
            path = opened.enter_context(uploading(path, storage_options, overwrite=overwrite, on_commit=commits.append))
        check_apart(source, data.source, path)
        if overwrite:
            remove(path, entry, target)
        writer, tally = _begin(job, path, entry, target_options)
        if tally.position < len(data):
            path_of(path).unlink(missing_ok=True)  # of an earlier, shorter or other state
        with writer, locked(path):
            report = _run(job, path, entry, writer, tally, on_episode)
        remove_mark(path)
        if certificate:
            report = replace(report, certificate=_written(job, report.notes, path, entry, require, on_verified))
    if not isinstance(place, Url):
        return report
    return replace(report, out=str(place), revision=commits[0] if commits else None)


def _episodes(
    source: EpisodeDataset | Source | LocationLike,
    out: Place,
    opened: ExitStack,
    storage_options: Mapping[str, Any] | None,
) -> EpisodeDataset:
    """The episodes of a source, which is closed at the end if it is opened here."""
    given = isinstance(source, (EpisodeDataset, Source))
    reads_url = not given and has_url(source)
    if storage_options and not reads_url and not isinstance(out, Url):
        raise ArgumentError(f"expected storage_options with a URL, got {sorted(storage_options)} without")
    if given:
        return source if isinstance(source, EpisodeDataset) else EpisodeDataset(source)
    return opened.enter_context(open(source, storage_options=storage_options if reads_url else None))


def _written(
    job: ConversionJob,
    notes: tuple[Note, ...],
    out: Path,
    entry: Format,
    require: str | None,
    on_verified: Callable[[int], object] | None,
) -> Certificate:
    """Compare the target with the source, and write the certificate next to the target."""
    with entry.open(out) as target:
        proof = certify(job.data, target, job.draft, notes=notes, on_episode=on_verified)
    check_kept(proof, out, lossless=require is not None)
    proof.write(out)
    return proof


def _begin(
    job: ConversionJob, out: Path, entry: Format, options: Mapping[str, Any]
) -> tuple[Writer, ConversionProgress]:
    """The writer of the target, and the progress of earlier calls. Raises `StateError` for another conversion."""
    sweep(out.parent)  # of conversions that were killed
    unfinished = found_at(out, entry)
    if unfinished is not None and _lengths(out, entry).size == 0:
        with locked(out):
            remove(out, entry, job.target)  # of no use, and not every format appends to what has no episodes
        unfinished = None
    if unfinished is None:
        out.parent.mkdir(parents=True, exist_ok=True)
        return entry.create(out, job.spec, job.metadata, **options), ConversionProgress(0, 0, 0, 0)
    job.mark.check(unfinished, out)
    for folder, _, _ in os.walk(out):
        sweep(folder)  # also where nothing is left to be written
    lengths = _lengths(out, entry)
    tally = _progress(job, out, lengths)
    expected = np.delete(job.data.episodes.length[: tally.position], tally.left_out)
    if not np.array_equal(lengths, expected):
        raise FormatError(
            f"expected the first {len(lengths)} episodes of the source, got others; start again with overwrite=True",
            path=out,
        )
    return entry.append(out, **{name: options[name] for name in job.target.kept if name in options}), tally


def _progress(job: ConversionJob, out: Path, lengths: IntArray) -> ConversionProgress:
    """The progress of earlier calls, given the lengths of the episodes in the target.

    Functions are called again if they left out episodes: the target does not say which.
    """
    done, steps = len(lengths), int(lengths.sum())
    tally = ConversionProgress(done, steps, column_bytes(job.spec, done, steps), done)
    mark = UnfinishedWork.at(out)
    complete = mark is None and done < len(job.data)
    if not job.mappings or not (complete or (mark is not None and mark.has_left_out)):
        return tally
    kept, every = 0, range(len(job.data))
    for position, episode in zip(every, selection_of(job.data).read_mapped(every), strict=True):
        if kept == done and not complete:
            break
        kept += episode is not None
        tally.position = position + 1
        if episode is None:
            tally.left_out.append(position)
    return tally


def _lengths(out: Path, entry: Format) -> IntArray:
    with entry.open(out) as source:
        return np.diff(source.offsets)


def _run(
    job: ConversionJob,
    out: Path,
    entry: Format,
    writer: Writer,
    tally: ConversionProgress,
    on_episode: OnEpisode | None,
) -> ConversionReport:
    data = job.data
    done, begun = tally.episodes, tally.position
    mark = UnfinishedWork("conversion", len(data), bool(tally.left_out))
    if begun < len(data):
        mark.begin(out)

    def leave_out(position: int) -> None:
        if tally.left_out == [position]:  # the first one
            replace(mark, has_left_out=True).begin(out)

    write_episodes(job, writer, tally, len(data), on_episode, leave_out)
    status: Literal["converted", "resumed", "complete"] = "converted"
    if done:
        status = "complete" if begun == len(data) else "resumed"
    notes = (*job.notes, *job.note_left_out(tally.left_out))
    totals = (tally.episodes, tally.steps, tally.bytes, done)
    return ConversionReport(out, entry.name, status, *totals, notes, left_out=job.numbers(tally.left_out))
