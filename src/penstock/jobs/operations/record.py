"""Recording in parts: a job makes the episodes of a range of numbers, and writes them to a part of a column store.

An episode follows from its number (see `RolloutWorker`), so the jobs may run anywhere, in any order, and twice. A part
is a folder `<out>.parts/<digest>/<first>-<last>`, which appears when it is complete. A second copy of a job finds it.
`finish` moves the parts together in the order of their numbers, so the bytes of the dataset do not depend on who made
them.

With `grow`, each part is moved to the dataset when it is complete, for a `Replay` that follows. Its number in the
dataset is the number of its block. So nothing appears twice, and only the order of the parts depends on the runner.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.spec import Spec
from penstock.errors import DataError, PenstockError, StateError
from penstock.files import move
from penstock.formats.base.account import UnfinishedWork, remove_mark
from penstock.formats.base.format import recognise
from penstock.formats.columns.table import join_stores, publish_segment, segments_of
from penstock.formats.columns.writer import ColumnsWriter, create_store
from penstock.jobs.operation import Operation, pack, unpack
from penstock.jobs.staging import StagingFolder, local_target
from penstock.jobs.work_plan import MOST_BYTES
from penstock.recording.rollout import Rollout
from penstock.recording.rollout_spec import RolloutSpec
from penstock.recording.rollout_worker import RolloutWorker

JOBS = 64
LEAST_EPISODES, MOST_EPISODES = 8, 1000
DATA = "data"


class RecordOperation(Operation):
    """Episodes of an environment, recorded to a column store. A block is a job, with a number of episodes."""

    def __init__(self, arguments: Mapping[str, Any], survey: bytes = b"") -> None:
        super().__init__(arguments, survey)
        self._spec = RolloutSpec.of(arguments)
        self._columns = Spec.from_json(json.loads(arguments["columns"]))
        self._out = Path(arguments["out"])
        self._writer = dict(arguments["writer"])
        self._numbers = range(arguments["first"], arguments["first"] + arguments["episodes"])
        self._block = int(arguments["job_episodes"])
        worker = RolloutWorker(self._spec, self._columns)
        self._idle = [worker]  # threads take and return them; a list does that atomically
        try:
            self._metadata, self._fingerprint = worker.metadata, worker.fingerprint
            self._staging = StagingFolder(arguments["out"], arguments, self._fingerprint)
            self.finished()  # refuses other episodes, before any work
        except BaseException:
            self.close()
            raise

    @property
    @override
    def runs_user_code(self) -> bool:
        return True

    @property
    @override
    def fingerprint(self) -> str:
        return self._fingerprint

    @override
    def weights(self) -> IntArray:
        """Return numbers so large that each block is a job: jobs are cut by time, not by bytes."""
        return np.full(-(-len(self._numbers) // self._block), MOST_BYTES, np.int64)

    @override
    def run(self, first: int, last: int, *, threads: int) -> bytes:
        summaries = [self._run_block(block) for block in range(first, last)]
        return pack(summaries)

    def _run_block(self, block: int) -> dict[str, Any]:
        """Record a block, unless that was done before, and return its summary."""
        numbers = self._numbers[block * self._block : (block + 1) * self._block]
        name = f"{numbers.start:012d}-{numbers.stop:012d}"

        def write(folder: Path) -> bytes:
            done = self._record(numbers, folder / DATA)
            return pack({"part": name, "lengths": np.array(done.lengths), "returns": np.array(done.returns)})

        summary = self._staging.write_part(name, write)
        if self.arguments["grow"]:
            unfinished = UnfinishedWork("recording", len(self._numbers))
            with suppress(FileExistsError):
                create_store(self._out, self._columns, self._metadata, unfinished=unfinished, **self._writer)
            publish_segment(self._staging.path / name / DATA, self._out, block)
        return unpack(summary)

    def _record(self, numbers: range, path: Path) -> Rollout:
        with self._worker() as worker:
            return worker.record(numbers, lambda spec: ColumnsWriter.create(path, spec, self._metadata, **self._writer))

    @contextmanager
    def _worker(self) -> Generator[RolloutWorker]:
        """A worker that no other thread has. After an error it is closed, for its environments may be in any state."""
        worker = self._idle.pop() if self._idle else RolloutWorker(self._spec, self._columns)
        try:
            yield worker
        except BaseException:
            worker.close()
            raise
        self._idle.append(worker)

    @override
    def has_part(self, result: bytes) -> bool:
        return all(self._staging.has_part(summary["part"]) for summary in unpack(result))

    @override
    def finish(self, results: Iterable[bytes]) -> Rollout:
        summaries: list[dict[str, Any]] = [summary for result in results for summary in unpack(result)]
        with self._staging.merging():
            self._publish(summaries)
        lengths = [int(length) for summary in summaries for length in summary["lengths"]]
        returns = [float(total) for summary in summaries for total in summary["returns"]]
        return Rollout(returns, lengths, sum(lengths))

    def _publish(self, summaries: list[dict[str, Any]]) -> None:
        """Move the parts to the dataset. With `grow`, jobs have moved them, and their numbers are compared."""
        if self.arguments["grow"]:
            if missing := set(range(len(self.weights()))) - segments_of(self._out):
                raise StateError(
                    f"expected all jobs in {self._out}, got {len(missing)} less: it was replaced meanwhile"
                )
            remove_mark(self._out)
        else:
            self._join([self._staging.path / summary["part"] / DATA for summary in summaries])

    def _join(self, parts: list[Path]) -> None:
        """Move the parts together; nothing if an earlier call, which was killed, did so."""
        if self._staging.has_target:
            self._recorded()
            return
        staged = self._staging.path / "joined"
        join_stores(parts, staged)
        move(staged, self._out, overwrite=False)

    @override
    def finished(self) -> Rollout | None:
        if not self._staging.is_closed:
            return None
        done = self._recorded()
        self._staging.remove()  # leftovers of a killed process
        return done

    def _recorded(self) -> Rollout:
        """Read what was recorded. Raises `FileExistsError` if the target has other episodes."""
        try:
            entry, path = recognise(self._out)
        except PenstockError as error:
            raise FileExistsError(f"expected nothing at {self._out}, got something else: {error}") from error
        with entry.open(path) as source:
            numbers = [each.get("number") for each in source.episode_metadata(range(len(source)))]
            same = source.metadata.get("rollout") == self._metadata["rollout"]
            if not same or sorted(map(str, numbers)) != sorted(map(str, self._numbers)):
                raise FileExistsError(f"expected nothing at {self._out}, got another dataset")
            order = np.argsort(np.array(numbers, np.int64)).tolist()
            rewards: list[Any] = [source.episode(e).columns["rewards"] for e in order]
            return Rollout([float(each.sum()) for each in rewards], [len(each) for each in rewards], source.steps)

    @override
    def describe(self, first: int, last: int) -> str:
        numbers = self._numbers[first * self._block : last * self._block]
        return f"episodes {numbers.start} to {numbers.stop - 1} of seed {self._spec.seed}"

    @override
    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def record_arguments(
    spec: RolloutSpec,
    out: str | Path,
    episodes: int,
    *,
    first: int = 0,
    job_episodes: int | None = None,
    writer: Mapping[str, Any] | None = None,
    grow: bool = False,
) -> dict[str, Any]:
    """Return the arguments of the operation `record`.

    Args:
        spec: Environment, policy and seed.
        out: Folder of the new column store, which all workers reach.
        episodes: Number of episodes.
        first: Number of the first episode. The default is 0.
        job_episodes: Episodes of a job. The default is None: a 64th of all, from 8 to 1000.
        writer: Options of the column store. The default is none.
        grow: Whether episodes appear in the dataset when their job ends, for a `Replay` that follows. The order of the
            jobs then depends on the workers. The default is False: the dataset appears at the end.

    Returns:
        Plain values for a work plan.

    Raises:
        DataError: There is no such environment or policy, or a number is out of range.
        TypeError: An option of the column store is unknown.

    Example:
        >>> import penstock, tempfile
        >>> from penstock.jobs import WorkPlan, finish_work, run_work
        >>> folder = Path(tempfile.mkdtemp())
        >>> arguments = record_arguments(RolloutSpec("CartPole-v1"), folder / "data", 6, job_episodes=2)
        >>> work = WorkPlan.make("record", arguments)
        >>> report = run_work(work, folder / "results")
        >>> report.done, finish_work(work, folder / "results").episodes, len(penstock.open(folder / "data"))
        (3, 6, 6)
    """
    place = local_target(str(out))
    size = min(max(-(-episodes // JOBS), LEAST_EPISODES), MOST_EPISODES) if job_episodes is None else job_episodes
    if episodes < 1 or first < 0 or size < 1:
        raise DataError(
            f"expected episodes and job_episodes of at least 1 and first of at least 0, got {episodes}, {size}, {first}"
        )
    with closing(RolloutWorker(spec)) as worker:
        worker.check_repeats()
        columns = worker.first_columns()
    return {
        **spec.to_json(),
        "columns": json.dumps(columns.to_json()),  # as text, which keeps their order
        "out": str(place.absolute()),
        "episodes": episodes,
        "first": first,
        "job_episodes": size,
        "writer": dict(writer or {}),
        "grow": grow,
    }
