"""`GrainTaskBuilder`: builds or changes a task step by step."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import PlanError
from penstock_mirrors.airio.data_sources import DataSource
from penstock_mirrors.airio.dataset_providers import Task
from penstock_mirrors.airio.flow import Preprocessor


class TaskBuilder:
    """Builder that sets the name, source and preprocessors of a task one by one."""

    def __init__(
        self, task_name: str, source: DataSource | None = None, preprocessors: Sequence[Preprocessor] | None = None
    ) -> None:
        self._task_name, self._source = task_name, source
        self._preprocessors = None if preprocessors is None else list(preprocessors)

    @classmethod
    def from_task(cls, task: Task) -> TaskBuilder:
        return cls(task.name, task.source, task.get_preprocessors())

    def set_task_name(self, task_name: str) -> TaskBuilder:
        self._task_name = task_name
        return self

    def set_data_source(self, source: DataSource) -> TaskBuilder:
        """Set the source of the examples and return the builder."""
        self._source = source
        return self

    def set_preprocessors(self, preprocessors: Sequence[Preprocessor]) -> TaskBuilder:
        self._preprocessors = list(preprocessors)
        return self

    def build(self) -> Task:
        """Return a task. It shares nothing with the builder, which can be changed and built again."""
        if self._source is None:
            raise PlanError(f"expected a source of {self._task_name!r} to build it, got none; call set_data_source")
        if self._preprocessors is None:
            raise PlanError(
                f"expected preprocessors of {self._task_name!r} to build it, got none; call set_preprocessors"
            )
        return Task(self._task_name, self._source, self._preprocessors)

    def __repr__(self) -> str:
        parts = f"task_name={self._task_name!r}, source={self._source!r}, preprocessors={self._preprocessors!r}"
        return f"{type(self).__name__}({parts})"
