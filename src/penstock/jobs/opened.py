"""`OpenedOperation`: jobs of one work plan share the opened data of their process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from penstock.errors import FormatError, StateError
from penstock.jobs.operation import Operation
from penstock.jobs.survey import open_with


class OpenedOperation:
    """The operation that this process opened last. Jobs of one work plan share it, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._digest = ""
        self._operation: Operation | None = None

    def get(
        self, digest: str, name: str, arguments: Mapping[str, Any], fingerprint: str, blocks: int, survey: bytes = b""
    ) -> Operation:
        """Return the operation of a work plan, opened at its first job."""
        with self._lock:
            if self._operation is not None and self._digest == digest:
                return self._operation
            opened = open_with(survey, name, arguments)
            try:
                if opened.fingerprint != fingerprint:
                    raise StateError("expected the data of the work plan, got data that changed since; make a new plan")
                if (count := len(opened.weights())) != blocks:
                    raise FormatError(f"expected ranges over {count} blocks, got {blocks}; make a new plan")
            except BaseException:
                opened.close()
                raise
            if self._operation is not None:
                self._operation.close()
            self._digest, self._operation = digest, opened
            return opened

    def close(self) -> None:
        """Close the operation, if there is one."""
        with self._lock:
            if self._operation is not None:
                self._operation.close()
            self._digest, self._operation = "", None


OPENED = OpenedOperation()
