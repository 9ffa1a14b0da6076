"""`ResultFolder`: results by the number of their job, each a file that appears only when it is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.errors import DataError
from penstock.files import read_checked, remove_folder, write_checked
from penstock.jobs.work_plan import WorkPlan

MAGIC = b"penstock result 1\n"
FINISHED = "finished"
"""Name of the file that is left of the results of an array job when they are merged and shown."""


class ResultFolder:
    """Results of the jobs of a work plan. Any number of processes may write to it, also the same job twice.

    A file has the digest of its work plan and a checksum. A damaged or foreign file counts as no result.

    Args:
        folder: The folder, which need not exist.
        work: The work plan.
    """

    def __init__(self, folder: Path, work: WorkPlan) -> None:
        self.folder = folder
        self._work = work

    def path(self, number: int) -> Path:
        """Return the path of a result.

        Args:
            number: Number of the job.
        """
        return self.folder / f"{number:08d}.result"

    def publish(self, number: int, result: bytes) -> None:
        """Write a result, atomically.

        Args:
            number: Number of the job.
            result: The result.
        """
        write_checked(self.path(number), MAGIC, self._key(number), result)

    def get(self, number: int) -> bytes | None:
        """Return a result, or None if there is none.

        Args:
            number: Number of the job.
        """
        content = read_checked(self.path(number), MAGIC, self._key(number))
        return None if content is None else bytes(content)

    def missing(self, has_part: Callable[[bytes], bool] | None = None) -> list[int]:
        """Return the numbers of jobs without a result. Cost: every file is read, to compare its checksum.

        Args:
            has_part: `Operation.has_part`. Results for which it returns False count as missing. The default is None.
        """
        present = {path.name for path in self.folder.glob("*.result")} if self.folder.is_dir() else set[str]()
        return [
            number
            for number in range(len(self._work))
            if self.path(number).name not in present
            or (result := self.get(number)) is None
            or (has_part is not None and not has_part(result))
        ]

    def in_order(self) -> Iterator[bytes]:
        """Yield all results in the order of the jobs.

        Raises:
            DataError: One is missing.
        """
        for number in range(len(self._work)):
            result = self.get(number)
            if result is None:
                raise DataError(f"expected the result of {self._work.place(number)} in {self.folder}, got none")
            yield result

    def remove(self) -> None:
        """Delete the folder."""
        remove_folder(self.folder)

    @property
    def exit_code(self) -> int | None:
        """Exit code of the command that merged and showed the results, or None if none did."""
        content = read_checked(self.folder / FINISHED, MAGIC, self._key(FINISHED))
        return None if content is None else int(bytes(content))

    def finish(self, exit_code: int) -> None:
        """Delete the results, and leave a file that says so: tasks that start late, or again, have nothing to do.

        Args:
            exit_code: Exit code of the command that merged and showed the results.
        """
        write_checked(self.folder / FINISHED, MAGIC, self._key(FINISHED), str(exit_code).encode())
        for path in self.folder.iterdir():
            if path.is_file() and path.name != FINISHED:
                path.unlink(missing_ok=True)

    def _key(self, name: int | str) -> str:
        return f"{self._work.digest} {name}"
