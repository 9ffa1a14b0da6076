"""`check`: all that can be found in a dataset, by its format and in its values."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.columns import Columns
from penstock.data.dataset import EpisodeDataset
from penstock.doctor.examine import LEVELS, Report, examine
from penstock.doctor.thresholds import CheckThresholds
from penstock.errors import FormatError
from penstock.formats.base.findings import Finding
from penstock.formats.base.format import Format, named, recognise
from penstock.formats.base.source import Source


def check(
    data: str | os.PathLike[str] | Source | EpisodeDataset,
    *,
    deep: bool = False,
    format: str | None = None,
    thresholds: CheckThresholds | Mapping[str, Any] | None = None,
    threads: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Report:
    """Look for damage and mistakes in a dataset.

    The check of the format runs first: files, index, checksums and metadata. If it finds no error, the values are
    checked: episode ends, NaN, spaces, timestamps, frozen sensors, actions, duplicates. `penstock.doctor` lists the
    names of all findings.

    Args:
        data: Path or id of a dataset; or an open source or dataset, of which all episodes are checked.
        deep: Whether to read all values. The default is False: at most 256 MiB, without pictures.
        format: Name of the format. The default is None: recognised by content.
        thresholds: What to report: `CheckThresholds`, or values by name. The default is None: `CheckThresholds()`.
        threads: Threads that read and check. 0 works in the caller. The default is None: the number of cores.
        progress: Whether to show a progress bar. The default is None: on a terminal.
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
    if format is None:
        found, path = recognise(data)
    else:
        found = named(format)
        path = Path(data) if os.path.exists(data) else (found.locate(os.fspath(data)) or Path(data))
    return _check_path(found, path, how, options)


def _check_path(found: Format, path: Path, how: dict[str, Any], options: dict[str, Any]) -> Report:
    parameters = inspect.signature(found.check).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    given = {name: value for name, value in options.items() if takes_all or name in parameters}
    findings = [] if found.opening_checks(path, **given) else list(found.check(path, **given))
    report = Report((), Columns({}), np.zeros((0, 16), np.uint8))
    if all(finding.level != "error" for finding in findings):
        try:
            with found.open(path, **options) as source:
                report = examine(source, **how)
        except FormatError as error:
            findings.append(Finding("unreadable", error.where or str(error.path or path), str(error)))
    known = {finding.name for finding in findings}
    merged = [*findings, *(each for each in report.findings if each.name not in known)]
    return replace(report, findings=tuple(sorted(merged, key=lambda finding: LEVELS.index(finding.level))))
