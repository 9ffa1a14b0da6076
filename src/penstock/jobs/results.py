"""`ResultFolder`: results by the number of their job, each a file that appears only when it is whole.

The name of each file has the digest of its work plan, so any number of plans may share a folder, and a folder may have
other files: only the files of the plan are read and deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from penstock.errors import DataError
from penstock.files import read_checked, remove_folder, write_checked
from penstock.jobs.work_plan import WorkPlan

MAGIC = b"penstock result 1\n"
RESULT = ".result"
FINISHED = ".finished"
"""End of the name of the file that is left of the results of an array job when they are merged and shown."""
JOURNAL = "journal.jsonl"
"""Name of the journal of the commands that work in the folder; each line has the plan."""
JOURNAL_HEAD = b'{"penstock_journal": "work", "version": 1}\n'
DIGITS = 16  # of the digest of a work plan, in names


class ResultFolder:
    """Results of the jobs of a work plan. Any number of processes may write to it, also the same job twice.

    A file has the digest of its work plan, in its name too, and a checksum. A damaged or foreign file counts as no
    result.
    """

    def __init__(self, folder: Path, work: WorkPlan) -> None:
        self.folder = folder
        self._work = work
        self._prefix = work.digest[:DIGITS]

    def path(self, number: int) -> Path:
        """Return the path of a result."""
        return self.folder / f"{self._prefix}-{number:08d}{RESULT}"

    def publish(self, number: int, result: bytes) -> None:
        """Write a result, atomically."""
        write_checked(self.path(number), MAGIC, self._key(number), result)

    def get(self, number: int) -> bytes | None:
        """Return a result, or None if there is none."""
        content = read_checked(self.path(number), MAGIC, self._key(number))
        return None if content is None else bytes(content)

    def missing(self, has_part: Callable[[bytes], bool] | None = None) -> list[int]:
        """Return the numbers of jobs without a result. Cost: every file is read, to compare its checksum."""
        present = {path.name for path in self._results()}
        return [
            number
            for number in range(len(self._work))
            if self.path(number).name not in present
            or (result := self.get(number)) is None
            or (has_part is not None and not has_part(result))
        ]

    def in_order(self) -> Iterator[bytes]:
        """Yield all results in the order of the jobs."""
        for number in range(len(self._work)):
            result = self.get(number)
            if result is None:
                raise DataError(f"expected the result of {self._work.place(number)} in {self.folder}, got none")
            yield result

    def remove(self) -> None:
        """Delete the results, and the folder with its journal if nothing else is in it."""
        own = {*self._results(), self._finished}
        if _is_journal(journal := self.folder / JOURNAL):
            own.add(journal)
        if not self.folder.is_dir() or own.issuperset(self.folder.iterdir()):
            remove_folder(self.folder)
        else:
            self._delete(own - {journal})

    @property
    def exit_code(self) -> int | None:
        """Exit code of the command that merged and showed the results, or None if none did."""
        content = read_checked(self._finished, MAGIC, self._key(FINISHED))
        return None if content is None else int(bytes(content))

    def finish(self, exit_code: int) -> None:
        """Delete the results, and leave a file that says so: tasks that start late, or again, have nothing to do."""
        write_checked(self._finished, MAGIC, self._key(FINISHED), str(exit_code).encode())
        self._delete(self._results())

    @property
    def _finished(self) -> Path:
        return self.folder / f"{self._prefix}{FINISHED}"

    def _results(self) -> list[Path]:
        """The files of results, whether they are sound or not."""
        return sorted(self.folder.glob(f"{self._prefix}-*{RESULT}"))

    def _delete(self, files: Iterable[Path]) -> None:
        for path in files:
            path.unlink(missing_ok=True)

    def _key(self, name: int | str) -> str:
        return f"{self._work.digest} {name}"


def _is_journal(path: Path) -> bool:
    """Whether a file is the journal of commands that work in its folder, and not somebody's file of that name."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(JOURNAL_HEAD)) == JOURNAL_HEAD
