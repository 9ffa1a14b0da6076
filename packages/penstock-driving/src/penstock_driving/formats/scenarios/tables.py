"""L5Kit's four arrays over files of scenarios: a scene is read when a row of it is asked for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.containers.zarr.rows import ZarrRows
from penstock.core.arrays import AnyArray, IntArray
from penstock.core.boundary import parsing
from penstock.core.cache import Cache
from penstock.core.text import counted
from penstock.errors import FormatError
from penstock.files.listing import digest_of_files
from penstock.files.remote import whole_for_block
from penstock.formats.base.account import LeftOut
from penstock.formats.base.file_facts import FileFacts, FileSurvey, FileTable
from penstock_driving.formats.l5kit.dtypes import AGENT_DTYPE, FRAME_DTYPE, SCENE_DTYPE, TL_FACE_DTYPE
from penstock_driving.formats.l5kit.tables import MemoryRows, Tables
from penstock_driving.formats.scenarios.scenario import Scenario, ScenarioKind

COUNTS = ("key", "frames", "agents", "faces", "start", "end", "text")
"""What is known of each scene before it is read; `text` is the number of bytes of its entries as JSON."""
OF_FRAMES = ("agent_index_interval", "traffic_light_faces_index_interval")


def survey_of(kind: ScenarioKind, files: Sequence[Path]) -> FileSurvey:
    """What opening needs to know of each file. Reading it reads the file once; it is kept in the user's cache."""
    companions = [other for file in files for other in kind.companions(file)]
    state = digest_of_files(companions) if companions else ""
    return FileSurvey(f"scenarios 1 {kind.name} {state}", files, partial(_facts, kind))


def _facts(kind: ScenarioKind, file: Path) -> FileFacts:
    rows: list[list[int]] = []
    texts = b""
    lost: Counter[str] = Counter()
    unread: dict[LeftOut, None] = {}
    error: str | None = None
    try:
        with _reading(kind, file):
            for key, scenario in kind.scenarios(file):
                text = json.dumps([scenario.host, dict(scenario.metadata)], sort_keys=True).encode()
                sizes = (len(scenario.frames), len(scenario.agents), len(scenario.tl_faces))
                rows.append([key, *sizes, *scenario.span, len(text)])
                texts += text
                lost.update(scenario.lost)
                unread.update(dict.fromkeys(scenario.unread))
    except FormatError as caught:
        error = f"{counted(len(rows), 'scene')} read, then: " * bool(rows) + str(caught).rpartition(" - ")[0]
    values = {"lost": dict(lost), "unread": [entry.to_json() for entry in unread]}
    counts = np.array(rows, np.int64).reshape(-1)
    return FileFacts(values, {"scenes": counts, "text": np.frombuffer(texts, np.uint8)}, error)


@contextmanager
def _reading(kind: ScenarioKind, file: Path) -> Generator[None]:
    """Have all bytes of a file and its companions on this machine for the block, and its errors with its name."""
    with ExitStack() as stack:
        for place in (file, *kind.companions(file)):
            stack.enter_context(whole_for_block(place))
        stack.enter_context(parsing(file))
        stack.enter_context(np.errstate(over="ignore", invalid="ignore"))  # numbers that float32 has no room for
        yield


@dataclass(frozen=True, eq=False)
class SceneIndex:
    """All scenes of a data set: `counts` `[S, 7]` as `COUNTS` and their sums `ends` `[S + 1, 7]`, the `file` `[S]` of
    each, and their entries as JSON."""

    kind: ScenarioKind
    files: Sequence[Path]
    counts: IntArray
    file: IntArray
    texts: AnyArray
    ends: IntArray

    @classmethod
    def of(cls, kind: ScenarioKind, files: Sequence[Path], table: FileTable) -> SceneIndex:
        counts = table.arrays["scenes"].reshape(-1, len(COUNTS))
        numbers = np.asarray(table.counts["scenes"]) // len(COUNTS)
        texts = table.arrays.get("text", np.zeros(0, np.uint8))
        ends = np.concatenate([np.zeros((1, len(COUNTS)), np.int64), np.cumsum(counts, axis=0)])
        return cls(kind, files, counts, np.repeat(np.arange(len(files)), numbers), texts, ends)

    def __len__(self) -> int:
        return len(self.counts)

    def offsets(self, name: str) -> IntArray:
        """`[S + 1]` where the rows of each scene begin, and the end."""
        return np.ascontiguousarray(self.ends[:, COUNTS.index(name)])

    def entries(self, scene: int) -> tuple[str, dict[str, Any]]:
        """Host and metadata of a scene."""
        low, high = self.ends[scene : scene + 2, -1].tolist()
        host, entries = json.loads(bytes(self.texts[low:high]))
        return host, entries

    def read(self, scene: int) -> Scenario:
        """A scene, whose frames count agents and faces in the whole data set."""
        file, key = self.files[int(self.file[scene])], int(self.counts[scene, 0])
        with _reading(self.kind, file):
            read = self.kind.read(file, key)
        sizes = [len(read.frames), len(read.agents), len(read.tl_faces)]
        if sizes != self.counts[scene, 1:4].tolist():
            known = self.counts[scene, 1:4].tolist()
            message = f"expected {known} frames, agents and faces in scene {scene}, got {sizes}; the file has changed, "
            raise FormatError(message + "open the data set again", path=file)
        frames = read.frames.copy()
        for field, name in zip(OF_FRAMES, ("agents", "faces"), strict=True):
            frames[field] += self.ends[scene, COUNTS.index(name)]
        return replace(read, frames=frames)


class SceneRows(ZarrRows):
    """One of the arrays: rows of scenes that are read, and kept, when they are asked for."""

    def __init__(self, offsets: IntArray, dtype: np.dtype[Any], of_scene: Callable[[int], AnyArray]) -> None:
        self.dtype, self.shape = dtype, (int(offsets[-1]),)
        self.offsets = offsets
        self._of_scene = of_scene

    @override
    def read_into(self, start: int, stop: int, out: AnyArray) -> None:
        scene, place = int(np.searchsorted(self.offsets, start, side="right")) - 1, start
        while place < stop:
            first, last = self.offsets[scene : scene + 2].tolist()
            end = min(last, stop)
            if end > place:
                out[place - start : end - start] = self._of_scene(scene)[place - first : end - first]
                place = end
            scene += 1

    @override
    def row(self, i: int) -> Any:
        return self.read(i, i + 1)[0]

    @override
    def take(self, numbers: IntArray) -> AnyArray:
        out = np.empty(len(numbers), self.dtype)
        scenes = np.searchsorted(self.offsets, numbers, side="right") - 1
        for scene in np.unique(scenes).tolist():
            places = np.flatnonzero(scenes == scene)
            out[places] = self._of_scene(scene)[numbers[places] - self.offsets[scene]]
        return out


@dataclass(frozen=True, eq=False)
class ScenarioTables(Tables):
    """The four arrays of a data set of scenarios."""

    index: SceneIndex
    others: tuple[LeftOut, ...]
    cache: Cache

    @classmethod
    def open(cls, kind: ScenarioKind, path: Path, cache: Cache) -> ScenarioTables:
        """Open the data set at a path. Cost: reads each file once; later openings take that from the user's cache."""
        files = kind.files(path)
        if not files:
            raise FormatError(f"expected {kind.description}, got none", path=path)
        table = survey_of(kind, files).table()
        index = SceneIndex.of(kind, files, table)
        if not len(index) and table.errors:
            raise FormatError(table.errors[min(table.errors)], path=files[min(table.errors)])

        def scene(number: int) -> Scenario:
            def made() -> tuple[Scenario, int]:
                read = index.read(number)
                return read, read.nbytes

            return cache.get(number, made)

        return cls(
            path,
            MemoryRows(_scenes(index)),
            SceneRows(index.offsets("frames"), FRAME_DTYPE, lambda number: scene(number).frames),
            SceneRows(index.offsets("agents"), AGENT_DTYPE, lambda number: scene(number).agents),
            SceneRows(index.offsets("faces"), TL_FACE_DTYPE, lambda number: scene(number).tl_faces),
            {"dataset": kind.title},
            None,
            index,
            (*_left_out(path, files, table), *kind.left_out(path, files)),
            cache,
        )

    @override
    def states(self) -> Iterator[object]:
        kind, files = self.index.kind, self.index.files
        yield kind.name
        yield digest_of_files([*files, *(other for file in files for other in kind.companions(file))])

    @override
    def left_out(self) -> list[LeftOut]:
        return list(self.others)


def _scenes(index: SceneIndex) -> AnyArray:
    scenes = np.zeros(len(index), SCENE_DTYPE)
    offsets = index.offsets("frames")
    scenes["frame_index_interval"] = np.stack([offsets[:-1], offsets[1:]], axis=1)
    scenes["start_time"], scenes["end_time"] = index.counts[:, 4], index.counts[:, 5]
    scenes["host"] = [index.entries(scene)[0] for scene in range(len(index))]
    return scenes


def _left_out(path: Path, files: Sequence[Path], table: FileTable) -> list[LeftOut]:
    """Files that cannot be read, rows that are lost, and members of files that are not looked at."""
    entries: list[LeftOut] = []
    unread: Counter[LeftOut] = Counter()
    for i, facts in enumerate(table):
        name = _name(path, files[i])
        if facts.error is not None:
            entries.append(LeftOut("file", name, "damaged-part", facts.error))
        lost = facts.values["lost"].items()
        entries += [LeftOut("rows", name, "unused-rows", what, count) for what, count in lost]
        unread.update(map(LeftOut.from_json, facts.values["unread"]))
    return [*entries, *(replace(entry, count=count) for entry, count in unread.items())]


def _name(path: Path, file: Path) -> str:
    """A file's name within the data set."""
    return file.relative_to(path).as_posix() if file != path and file.is_relative_to(path) else file.name
