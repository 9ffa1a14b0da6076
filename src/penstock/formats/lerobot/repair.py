"""Repairs of LeRobot datasets: footers, totals, statistics, and the columns that number frames.

Statistics are computed again from the values, as the writer does: figures of each episode, merged. Only the features
whose statistics are wrong change. Columns of numbers are written again in the row groups, the schema and the
compression that their file has.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from penstock.containers.arrow.footer import footer_like, lacks_footer
from penstock.core.arrays import IntArray
from penstock.core.ragged import Ragged
from penstock.errors import FormatError, require
from penstock.formats.base.findings import Finding
from penstock.formats.base.repairs import Repair, json_repair
from penstock.formats.lerobot.check import data_files, index_columns, stated_totals
from penstock.formats.lerobot.info import CAMERAS, INFO, STATS, read_json
from penstock.formats.lerobot.source import LeRobotSource
from penstock.formats.lerobot.stats import Figures, add_figures, column_figures
from penstock.formats.lerobot.written_files import json_bytes, tables_with


def repairs(path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
    """Yield the changes that mend findings."""
    names = {finding.name for finding in findings}
    if "missing-footer" in names:
        yield from _footers(path)
        return  # then more episodes can be read, which the other repairs need
    if not names & {"totals", "numbering", "wrong-statistics"}:
        return
    try:
        source = LeRobotSource(path)
    except FormatError:
        return
    with source:
        if not source.state.is_whole:
            return  # totals and numbers of what cannot be read are unknown
        if "numbering" in names:
            yield from _numbers(source)
        if "totals" in names:
            changed = {name: new for name, (new, old) in stated_totals(source.state).items() if new != old}
            if changed:
                old = dict(source.state.info.entries)
                yield json_repair("totals", path / INFO, changed, old)
        wrong = {finding.column for finding in findings if finding.name == "wrong-statistics"}
        if wrong:
            yield from _statistics(source, path, {column for column in wrong if column is not None})


def _footers(path: Path) -> Iterator[Repair]:
    files = data_files(path)
    lacking = [file for file in files if lacks_footer(file)]
    for file in lacking:
        if (footer := footer_like(file, [other for other in files if other not in lacking])) is not None:
            where = str(file.relative_to(path))
            content = partial(bytes, footer.content)
            yield Repair("missing-footer", file, f"add a footer for {footer.rows} rows", content, footer.keep, where)


def _statistics(source: LeRobotSource, path: Path, columns: set[str]) -> Iterator[Repair]:
    features = {each.path: name for name, each in source.state.info.features.items() if each.dtype not in CAMERAS}
    chosen = [column for column in sorted(columns) if column in features and not source.spec[column].ragged]
    if chosen:
        message = f"compute the statistics of {', '.join(chosen)} again"
        content = partial(_recomputed, path, {column: features[column] for column in chosen})
        yield Repair("wrong-statistics", path / STATS, message, content)


def _recomputed(path: Path, columns: Mapping[str, str]) -> bytes:
    """The content of the file of statistics. The statistics of some columns are computed again."""
    stored = read_json(path / STATS)
    recomputed: dict[str, Figures] = {}
    with LeRobotSource(path, columns=list(columns)) as source:
        for episode in source.episodes():
            for column, name in columns.items():
                rows = episode.columns[column]
                if isinstance(rows, Ragged) or not len(rows):
                    continue
                add_figures(recomputed, {name: column_figures(np.asarray(rows))})
    for name, figures in recomputed.items():
        known = stored.get(name, {})
        stored[name] = {**known, **{key: value.tolist() for key, value in figures.items() if key in known}}
    return json_bytes(stored)


def _numbers(source: LeRobotSource) -> Iterator[Repair]:
    """Repairs of the data files in which a column of numbers is wrong."""
    wanted = index_columns(source, whole=True)
    for number, file in enumerate(source.state.data.files):
        wrong: dict[str, IntArray] = {}
        for name, column in wanted.items():
            stored = _stored_column(file.path, name)
            right = _column_of_file(source, number, stored, column)
            if not np.array_equal(stored, right):
                wrong[name] = right
        if wrong:
            message = f"number the rows again: {', '.join(wrong)}"
            yield Repair("numbering", file.path, message, partial(_renumbered, file.path, wrong))


def _stored_column(path: Path, name: str) -> IntArray:
    table = require("pyarrow.parquet", "arrow").read_table(path, columns=[name], use_threads=False)
    return np.asarray(table.column(name).to_numpy(), np.int64)


def _column_of_file(source: LeRobotSource, number: int, stored: IntArray, wanted: IntArray) -> IntArray:
    """A column as it should be in a file; rows of no episode stay."""
    data = source.state.data
    rows = data.rows
    right = stored.copy()
    sizes = np.concatenate([[0], np.cumsum(data.files[number].rows)])
    for run in np.flatnonzero(data.file[rows.block] == number).tolist():
        first, last = int(rows.first[run]), int(rows.first[run + 1])
        begin = int(sizes[data.group[rows.block[run]]] + rows.skip[run])
        right[begin : begin + last - first] = wanted[first:last]
    return right


def _renumbered(path: Path, columns: Mapping[str, IntArray]) -> bytes:
    parquet = require("pyarrow.parquet", "arrow")
    out = io.BytesIO()
    with parquet.ParquetFile(path) as file:
        codec = (
            str(file.metadata.row_group(0).column(0).compression).lower() if file.metadata.num_row_groups else "none"
        )
        with parquet.ParquetWriter(
            out, file.schema_arrow, compression="none" if codec == "uncompressed" else codec
        ) as to:
            for table in tables_with(file, columns):
                to.write_table(table, row_group_size=max(len(table), 1))
    return out.getvalue()
