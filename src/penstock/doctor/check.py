"""`check`: all that can be found in a dataset, by its format and in its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.core.columns import Columns
from penstock.core.damage import collected_damage
from penstock.data.dataset import EpisodeDataset
from penstock.data.located import DatasetFiles, LocatedData, locate
from penstock.doctor.examine import LEVELS, Report, examine
from penstock.doctor.thresholds import CheckThresholds
from penstock.errors import FormatError
from penstock.formats.base.findings import Finding
from penstock.formats.base.source import Source
from penstock.locations.location import LocationLike


def check(
    data: LocationLike | Source | EpisodeDataset,
    *,
    deep: bool = False,
    format: str | None = None,
    thresholds: CheckThresholds | Mapping[str, Any] | None = None,
    threads: int | None = None,
    progress: bool | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Report:
    """Look for damage and mistakes in a dataset.

    The check of the format runs first: files, index, checksums and metadata. Then the values of all episodes that can
    be read are checked: episode ends, NaN, spaces, timestamps, frozen sensors, actions, duplicates. The page "Findings"
    lists the names of all findings.

    Args:
        data: What `penstock.open` opens; or an open source or dataset, of which all episodes are checked.
        deep: Whether to read all values. The default is False: at most 256 MiB, without pictures.
        format: Name of the format. The default is None: recognised by content.
        thresholds: What to report: `CheckThresholds`, or values by name. The default is None: `CheckThresholds()`.
        threads: Threads that read and check. 0 works in the caller. The default is None: the number of cores.
        progress: Whether to show a progress bar. The default is None: on a terminal.
        storage_options: Options of the stores of URLs, as fsspec calls them. The default is none.
        options: Options of the format, as for `penstock.open`.

    Returns:
        Findings, errors first, and measures of the episodes.

    Raises:
        FileNotFoundError: Nothing exists there.
        UnknownFormatError: No format recognises the data.
        ArgumentError: A threshold or an option is unknown.

    Example:
        >>> import numpy as np, penstock
        >>> columns = {"rewards": np.ones(3), "terminations": np.array([True, False, True])}
        >>> for finding in penstock.check(penstock.from_arrays(columns, lengths=[3])).findings:
        ...     print(finding.level, finding.name, finding.message)
        warning early-end terminations set before the last step, 1 time in 1 episode
    """
    chosen = thresholds if isinstance(thresholds, CheckThresholds) else CheckThresholds.of(thresholds or {})
    how: dict[str, Any] = {"deep": deep, "thresholds": chosen, "threads": threads, "progress": progress}
    if isinstance(data, EpisodeDataset):
        return examine(data.source, **how)
    if isinstance(data, Source):
        return examine(data, **how)
    return _check_located(locate(data, format=format, storage_options=storage_options), how, options)


def _check_located(located: LocatedData, how: dict[str, Any], options: dict[str, Any]) -> Report:
    findings = [each for dataset in located.datasets for each in format_findings(dataset, how["deep"], options)]
    try:
        with open_damaged(located, options) as source:
            report = examine(source, **how)
    except FormatError as error:
        return merged_report(located, findings, error)
    return merged_report(located, findings, report)


def open_damaged(located: LocatedData, options: Mapping[str, Any]) -> Source:
    """Open a dataset without a warning about damage, which the check of the format names."""
    with collected_damage():
        return located.open(**{**options, "allow_unfinished": True})  # the mark is a finding


def format_findings(dataset: DatasetFiles, deep: bool, options: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield the findings of a format, also of data that cannot be opened."""
    try:
        yield from dataset.check(deep=deep, **options)
    except FormatError as error:
        yield Finding("unreadable", error.where or str(error.path or dataset), str(error))


def merged_report(located: LocatedData, findings: list[Finding], report: Report | FormatError) -> Report:
    """Return the report of a dataset, from the findings of its formats and of its values."""
    if isinstance(report, FormatError):
        if not any(finding.level == "error" for finding in findings):
            findings = [*findings, Finding("unreadable", report.where or str(report.path or located), str(report))]
        report = Report((), Columns({}), np.zeros((0, 16), np.uint8))
    known = {(finding.name, finding.where) for finding in findings}
    merged = [*findings, *(each for each in report.findings if (each.name, each.where) not in known)]
    ordered = sorted(_with_repairs(located, merged), key=lambda finding: LEVELS.index(finding.level))
    return replace(report, findings=tuple(ordered))


def _with_repairs(located: LocatedData, findings: list[Finding]) -> list[Finding]:
    """The findings, with what `repair` would change. A dataset behind a URL, or of several files, is not repaired."""
    dataset = located.datasets[0]
    path, *more = dataset.paths
    if len(located.datasets) > 1 or more or dataset.url is not None:
        return findings
    known = [(each.finding, each.where, each.message) for each in dataset.format.repairs(path, findings)]

    def mended(finding: Finding) -> Finding:
        texts = [text for name, where, text in known if name == finding.name and where in (None, finding.where)]
        return replace(finding, repair=texts[0]) if texts else finding

    return [mended(finding) for finding in findings]
