"""Checks and repairs of LeRobot datasets: totals, footers, tasks, indices and timestamps. The doctor checks the values.

The repair of statistics computes them again from the values, as the writer does: figures of each episode, merged. Only
the features whose statistics are wrong change. Columns of numbers are written again in the row groups, the schema and
the compression that their file has.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from penstock.containers.arrow.footer import footer_like, lacks_footer
from penstock.containers.video import VideoFiles
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.ragged import Ragged
from penstock.core.spec import Field
from penstock.core.text import counted
from penstock.errors import FormatError, require
from penstock.formats.base.findings import Finding, Repair
from penstock.formats.lerobot.creation import json_bytes, tables_with
from penstock.formats.lerobot.damage import own_frames
from penstock.formats.lerobot.info import CAMERAS, FOLDER, INFO, STATS, path_of, read_json
from penstock.formats.lerobot.source import LeRobotSource, LeRobotState
from penstock.formats.lerobot.stats import Figures, add_figures, column_figures
from penstock.formats.lerobot.video import ROUNDING

TOLERANCE = 1e-4  # seconds, as in LeRobot
_NAMED = 20  # episodes of one kind that are named


def findings(path: Path, options: Mapping[str, Any], *, deep: bool) -> Iterator[Finding]:
    for file in _files_without_footer(path):
        message = "expected a footer at the end of the file, got none"
        yield Finding("missing-footer", str(file.relative_to(path)), message)
    with LeRobotSource(path, **options) as source:
        if options.get("split") is None:
            yield from _totals(source)
            yield from _tasks(source)
        if deep or source.checks_videos:
            yield from _frame_counts(source, float(options.get("tolerance_s", TOLERANCE)))
        if deep:
            yield from _indices(source, whole=options.get("split") is None)


def _totals(source: LeRobotSource) -> Iterator[Finding]:
    state = source.state
    left_out = state.left_out
    pending = [entry for entry in state.episodes if entry.file.parent.name == FOLDER]
    if pending:
        message = f"{len(pending)} episodes are in files of their own; the next writer joins them"
        yield Finding("torn-tail", FOLDER, message)
    for name, (count, stated) in _stated_totals(state, left_out).items():
        if stated != count and not (left_out and name == "total_frames"):
            yield Finding("totals", f"meta/info.json/{name}", f"expected {count}, as the episodes have, got {stated!r}")
    indices = [entry.index for entry in state.episodes]
    missing = sorted(set(range(max(indices, default=-1) + 1)) - set(indices) - left_out) if indices else []
    if missing:
        message = f"expected every episode up to {max(indices)}, got none with the index {missing[:_NAMED]}"
        yield Finding("numbering", "meta/episodes", message)


def _stated_totals(state: LeRobotState, left_out: Collection[int] = ()) -> dict[str, tuple[int, Any]]:
    """Return the totals of the episodes in data files, and the stored ones."""
    listed = [entry for entry in state.episodes if entry.file.parent.name != FOLDER]
    totals = {
        "total_episodes": len(listed) + len(left_out),
        "total_frames": sum(entry.length for entry in listed),
        **({"total_tasks": len(state.tasks)} if state.tasks and "total_tasks" in state.info.entries else {}),
    }
    return {name: (count, state.info.entries.get(name)) for name, count in totals.items()}


def _tasks(source: LeRobotSource) -> Iterator[Finding]:
    state = source.state
    used = {task for entry in state.episodes for task in entry.tasks}
    unused = [text for text in state.tasks.values() if text not in used]
    if unused and state.is_whole and any(entry.tasks for entry in state.episodes):
        message = f"{len(unused)} of {len(state.tasks)} tasks have no episode, first {unused[0]!r}"
        yield Finding("unused-task", "meta/tasks", message)


def _frame_counts(source: LeRobotSource, tolerance: float) -> Iterator[Finding]:
    """Yield findings for each camera: more or fewer frames than rows, and frames of several episodes."""
    state = source.state
    for name, feature in state.info.features.items():
        if feature.dtype != "video" or feature.path not in source.spec:
            continue
        times: dict[Path, AnyArray] = {}
        counts: dict[int, int] = {}  # frames of episodes that have another number of rows
        parts: dict[Path, list[tuple[float, float, int]]] = {}
        for number, entry in enumerate(state.episodes):
            place = entry.videos[name]
            if place.file not in times:
                times[place.file] = VideoFiles([place.file]).timestamps(0)
            own = own_frames(times[place.file], place, tolerance, state.info.fps)
            if len(own) != entry.length:
                counts[number] = len(own)
            if len(own):
                parts.setdefault(place.file, []).append((float(own[0]), float(own[-1]), number))
        shared = {b[2]: a[2] for each in map(sorted, parts.values()) for a, b in pairwise(each) if b[0] <= a[1]}
        indices = [entry.index for entry in state.episodes]
        for number in list(counts)[:1]:
            message = f"expected a frame for each row, got {counts[number]} frames for "
            message += f"{state.episodes[number].length} rows in episode {indices[number]}"
            yield _of_camera("frame-count", name, feature.path, message, list(counts))
        for number in list(shared)[:1]:
            message = f"expected frames of one episode, got frames of episode {indices[shared[number]]} in episode "
            yield _of_camera("frame-count", name, feature.path, f"{message}{indices[number]}", list(shared))


def _of_camera(kind: str, name: str, column: str, message: str, episodes: list[int]) -> Finding:
    """A finding about episodes of a camera, whose message is about the first of them."""
    more = f", and {counted(len(episodes) - 1, 'other episode')}" if len(episodes) > 1 else ""
    chosen = tuple(episodes[:_NAMED])
    return Finding(kind, name, f"{message}{more}", column, chosen, (0,) * len(chosen))


def _index_columns(source: LeRobotSource, *, whole: bool) -> dict[str, IntArray]:
    """Return what the columns of numbers must be, by name, `[steps]` int64."""
    state = source.state
    step = np.arange(source.steps) - np.repeat(state.offsets[:-1], np.diff(state.offsets))
    numbers = np.array([entry.index for entry in state.episodes], np.int64)
    expected = {"frame_index": step, "episode_index": np.repeat(numbers, np.diff(state.offsets))}
    if whole and state.is_whole:
        expected["index"] = np.arange(source.steps)
    return {name: column for name, column in expected.items() if name in state.info.features}


def _indices(source: LeRobotSource, *, whole: bool) -> Iterator[Finding]:
    """Yield findings about timestamps and numbers of frames, one for each kind and episode."""
    state = source.state
    if not source.steps:
        return
    columns = _index_columns(source, whole=whole)
    step = np.arange(source.steps) - np.repeat(state.offsets[:-1], np.diff(state.offsets))
    episode = np.repeat(np.arange(len(state.offsets) - 1), np.diff(state.offsets))
    expected: dict[str, tuple[Field, AnyArray, float]] = {
        "timestamp": (Field(np.dtype(np.float64)), step / state.info.fps, TOLERANCE),
        **{name: (Field(np.dtype(np.int64)), column, 0.0) for name, column in columns.items()},
    }
    for name, (field, wanted, tolerance) in expected.items():
        if name not in state.info.features:
            continue
        try:
            stored = state.data.column(field, name).rows(source.steps)
        except FormatError as error:
            yield Finding("unreadable", name, str(error), path_of(name))
            continue
        slack = tolerance + np.abs(wanted) * ROUNDING if tolerance else 0
        wrong = np.flatnonzero(~(np.abs(stored - wanted) <= slack))
        for row in wrong[np.unique(episode[wrong], return_index=True)[1]][:_NAMED].tolist():
            place = f"episode {state.episodes[int(episode[row])].index}"
            message = f"expected {name} {wanted[row]} at step {step[row]}, got {stored[row]}"
            kind = "time-rate" if name == "timestamp" else "numbering"
            number = int(episode[row])
            yield Finding(kind, place, message, path_of(name), (number,), (int(step[row]),))


def _files_without_footer(root: Path) -> list[Path]:
    """Return the data files whose writer was killed."""
    return [path for path in _data_files(root) if lacks_footer(path)]


def _data_files(root: Path) -> list[Path]:
    return sorted((root / "data").glob("*/*.parquet"))


def repairs(path: Path, findings: Sequence[Finding]) -> Iterator[Repair]:
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
            changed = {name: new for name, (new, old) in _stated_totals(source.state).items() if new != old}
            if changed:
                yield _totals_repair(path / INFO, changed, source.state.info.entries)
        wrong = {finding.column for finding in findings if finding.name == "wrong-statistics"}
        if wrong:
            yield from _statistics(source, path, {column for column in wrong if column is not None})


def _totals_repair(file: Path, changed: Mapping[str, Any], entries: Mapping[str, Any]) -> Repair:
    shown = ", ".join(f"{name} {entries.get(name)!r} -> {value!r}" for name, value in changed.items())
    content = json.dumps({**entries, **changed}, indent=4).encode()
    return Repair("totals", file, f"set {shown}", partial(bytes, content))


def _footers(path: Path) -> Iterator[Repair]:
    files = _data_files(path)
    lacking = _files_without_footer(path)
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
    wanted = _index_columns(source, whole=True)
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
