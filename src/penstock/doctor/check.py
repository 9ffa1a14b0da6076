"""`check`: all that can be found in a dataset, by its format and in its values."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.core.columns import Columns
from penstock.data.dataset import EpisodeDataset
from penstock.data.located import LocatedData, locate
from penstock.doctor.examine import LEVELS, Report, examine
from penstock.doctor.thresholds import CheckThresholds
from penstock.errors import DamageWarning, FormatError
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
    findings = [finding for dataset in located.datasets for finding in dataset.check(**options)]
    report = Report((), Columns({}), np.zeros((0, 16), np.uint8))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DamageWarning)  # the check of the format has named the damage
            opened = located.open(**options)
        with opened as source:
            report = examine(source, **how)
    except FormatError as error:
        if not any(finding.level == "error" for finding in findings):
            findings.append(Finding("unreadable", error.where or str(error.path or located), str(error)))
    known = {(finding.name, finding.where) for finding in findings}
    merged = [*findings, *(each for each in report.findings if (each.name, each.where) not in known)]
    return replace(report, findings=tuple(sorted(merged, key=lambda finding: LEVELS.index(finding.level))))
