"""Journals and states of live data that are fuzzed, and how they are read."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from live.files import Opener, names
from penstock_live.chunk_sources import ChunkSourceLoader
from penstock_live.directory import FilePathProvider
from penstock_live.journal import Arrival, Journal, Move
from penstock_live.pipeline import LiveOptions, LivePipeline
from tests.fuzz.edits import odd_tree
from tests.fuzz.targets import Random, Target


def read_journal(folder: Path, rng: Random) -> tuple[str, bool]:
    """The moves of a journal, as a replay reads them."""
    return repr(Journal(folder / "journal").moves()), False


def write_journal(folder: Path) -> None:
    """A journal of two moves."""
    journal = Journal(folder / "journal")
    journal.write([Move(0, 0, Arrival("a.gz", "a.gz", 1)), Move(5, 1, Arrival("b.gz", "b.gz", 1, 7, 8), ("a.gz",))])


GAMES = [list(range(10 * f, 10 * f + 1 + f % 4)) for f in range(6)]


@cache
def live_games() -> Path:
    """A folder of games, which stays as long as the process."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-fuzz-games-"))
    atexit.register(shutil.rmtree, folder)
    names(folder, GAMES)
    return folder


def live(weighted: bool) -> Target:
    """The state of a live pipeline."""

    def build() -> LivePipeline:
        source = ChunkSourceLoader(FilePathProvider(live_games(), watch="off"), Opener(), threads=1)
        options: dict[str, Any] = {"count": 2, "passes": 3} if weighted else {}
        return LivePipeline(source, LiveOptions(reservoir=8, batch_size=7, follow=False, draws=3, **options))

    def make(folder: Path) -> None:
        with build() as pipeline:
            for _ in range(3):
                next(pipeline)
            (folder / "state.json").write_text(json.dumps(pipeline.state_dict(), default=lambda array: array.tolist()))

    def read(folder: Path, rng: Random) -> tuple[str, bool]:
        with build() as pipeline:
            pipeline.load_state_dict(json.loads((folder / "state.json").read_bytes()))
            return repr([next(pipeline, None) for _ in range(2)]), False

    def edit(data: bytes, rng: Random) -> bytes:
        return json.dumps(odd_tree(json.loads(data), rng)).encode("utf-8", "surrogatepass")

    return Target("states", "live weighted" if weighted else "live", make, read, edit)


def targets() -> Iterator[Target]:
    """A journal, and states of pipelines."""
    yield Target("journal", "journal", write_journal, read_journal)
    yield live(weighted=False)
    yield live(weighted=True)
