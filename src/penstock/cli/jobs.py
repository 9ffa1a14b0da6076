"""Options of commands that work in numbered parts, and how such a command runs them."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import typer

from penstock.cli.options import nbytes, pairs
from penstock.cli.show import print_json
from penstock.core.text import counted
from penstock.errors import DataError
from penstock.jobs.coordinator import ResultFolder
from penstock.jobs.in_parts import finished, in_parts, result_folder
from penstock.jobs.runners import JobResources, Runner, runner_of
from penstock.jobs.work_plan import WorkPlan

RESOURCES = ("cpus", "memory", "gpus")
RESULTS = ".results"
"""Suffix of the folder of results, next to the file of a work plan."""
PRESENT = {
    "stats": "penstock.cli.stats:present",
    "check": "penstock.cli.check:present",
    "convert": "penstock.cli.convert:present",
    "verify": "penstock.cli.certificate:present",
    "reshard": "penstock.cli.reshard:present",
    "index": "penstock.cli.index:present",
    "cache": "penstock.cli.cache:present",
    "pack": "penstock.cli.plan:present",
    "record": "penstock.cli.record:present",
}
"""By operation, the function that shows its result, with the arguments of the work plan."""

Command = TypeVar("Command", bound=Callable[..., Any])

Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=0, help="Work in parts: how many at a time. Default: one run.")
]
RunnerName = Annotated[
    Literal["threads", "processes", "ray"] | None,
    typer.Option("--runner", help="Where the parts run; by default on processes of this machine."),
]
Address = Annotated[
    str | None, typer.Option("--address", help="The Ray cluster, such as auto; by default a new local one.")
]
PlanFile = Annotated[
    Path | None,
    typer.Option("--plan", metavar="FILE", help="Only write a work plan, for `penstock work` in an array job."),
]
Resources = Annotated[
    list[str] | None,
    typer.Option("--resource", metavar="KEY=VALUE", help="Of one part: cpus=2, memory=4GB or gpus=1; repeatable."),
]
MaxFailures = Annotated[
    int, typer.Option("--max-failures", min=0, help="Go on with other parts until more than so many failed.")
]
RangeBytes = Annotated[
    str | None, typer.Option("--range-bytes", help="Bytes of a part, such as 256MB; by default a 256th of the data.")
]


@dataclass(frozen=True)
class WorkOptions:
    """How a command works in parts. `wanted` says whether it does."""

    runner: RunnerName = None
    jobs: Jobs = None
    address: Address = None
    plan: PlanFile = None
    resource: Resources = None
    max_failures: MaxFailures = 0
    range_bytes: RangeBytes = None

    @property
    def wanted(self) -> bool:
        """Whether the command works in parts."""
        asked = (self.runner, self.jobs, self.address, self.plan, self.resource, self.range_bytes)
        return any(each is not None for each in asked)

    def resources(self) -> JobResources:
        """Return the resources of one part. Raises `DataError` for an unknown one."""
        given = pairs(self.resource, "--resource")
        if unknown := sorted(given.keys() - set(RESOURCES)):
            raise DataError(f"expected --resource among {list(RESOURCES)}, got {unknown}")
        if "memory" in given:
            given["memory"] = nbytes(str(given["memory"]))
        return JobResources(**given)

    def make_runner(self) -> Runner:
        """Return the runner."""
        name = self.runner or ("ray" if self.address is not None else "processes")
        if name != "ray" and self.address is not None:
            raise DataError(f"expected --address with --runner ray, got --runner {name}")
        options = {} if self.address is None else {"address": self.address}
        return runner_of(name, self.jobs, self.resources(), **options)

    def make_plan(self, operation: str, arguments: Mapping[str, Any]) -> WorkPlan:
        """Return the work plan of an operation."""
        size = None if self.range_bytes is None else nbytes(self.range_bytes)
        return WorkPlan.make(operation, arguments, range_bytes=size)


def works_in_parts(command: Command) -> Command:
    """Give a command the fields of `WorkOptions` as options. It gets them as its argument `work`."""
    signature = inspect.signature(command, eval_str=True)
    types = get_type_hints(WorkOptions, include_extras=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "work"]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=getattr(WorkOptions, name), annotation=kind)
        for name, kind in types.items()
    ]

    @wraps(command)
    def call(*args: Any, **given: Any) -> Any:
        options = WorkOptions(**{name: given.pop(name) for name in types if name in given})
        return command(*args, **given, work=options)

    parameters = [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own), *added]
    call.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call  # pyright: ignore[reportReturnType]


def results_of(plan: Path) -> Path:
    """Return the folder of the results of a work plan, next to its file."""
    return plan.with_name(plan.name + RESULTS)


def show_in_parts(operation: str, arguments: Mapping[str, Any], options: WorkOptions, *, quiet: bool) -> None:
    """Run an operation in parts, and show its result as its command does. Arguments are as of `run_in_parts`."""
    with run_in_parts(operation, arguments, options, quiet=quiet) as result:
        pkgutil.resolve_name(PRESENT[operation])(result, arguments)


@contextmanager
def run_in_parts(
    operation: str, arguments: Mapping[str, Any], options: WorkOptions, *, quiet: bool, folder: Path | None = None
) -> Generator[Any]:
    """Run an operation in parts, and give its result. With `--plan`, write the work plan and end the command.

    Called again after an interruption, it goes on with the parts that are missing. The results of the parts are removed
    when the block has ended, so that a command that is killed before it has shown the result can show it again.
    """
    work = options.make_plan(operation, arguments)
    place = folder or result_folder(work)
    if options.plan is not None and finished(work, place) is None:
        options.plan.parent.mkdir(parents=True, exist_ok=True)
        work.write(options.plan)
        if (results := ResultFolder(results_of(options.plan), work)).exit_code is not None:
            results.remove()  # the plan was carried out before, and is again
        if quiet:
            print_json({"plan": str(options.plan), "jobs": len(work)})
        else:
            typer.echo(
                f"{options.plan}: {counted(len(work), 'job')}. Run: penstock work {options.plan} --index I --count N "
                f"for each I below N, then: penstock work {options.plan} --finish"
            )
        raise typer.Exit
    with in_parts(work, place, options.make_runner(), max_failures=options.max_failures, quiet=quiet) as result:
        try:
            yield result
        except typer.Exit:  # the result was shown
            ResultFolder(place, work).remove()
            raise
