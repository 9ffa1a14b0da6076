"""`HomeProcess`: the process that an object with threads belongs to."""

from __future__ import annotations

import os

from penstock.errors import WorkerError


class HomeProcess:
    """The process that made an object with threads. A forked child has a copy of the object without the threads.

    The child would wait for the threads, and for their locks, for ever. So it gets an error.

    Args:
        what: Name of the object, for the message.

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
