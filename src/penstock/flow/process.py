"""`HomeProcess`: which process something with threads belongs to."""

from __future__ import annotations

import os

from penstock.errors import WorkerError


class HomeProcess:
    """The process that made something with threads, which a forked child has a copy of without the threads.

    To wait for these threads would take for ever, and their locks may be held by nobody: the child is told instead.

    Args:
        what: What was made, for the message.

    Example:
        >>> home = HomeProcess("pipeline")
        >>> home.check()
        >>> home.is_here
        True
    """

    def __init__(self, what: str) -> None:
        self._what, self._pid = what, os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is the process."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise `WorkerError` in another process."""
        if not self.is_here:
            raise WorkerError(
                f"expected the process {self._pid}, which made this {self._what}, got {os.getpid()}, forked from it: "
                f"threads do not survive a fork; make the {self._what} in the process that reads it"
            )
