"""`penstock work`: the jobs of a work plan, as a task of an array job; and the merge of their results."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.jobs import PRESENT, removed_afterwards, results_of
from penstock.cli.show import Json, print_json
from penstock.core.text import counted
from penstock.errors import DataError
from penstock.jobs.coordinator import failures_of, finish_work, missing_jobs, run_share
from penstock.jobs.results import ResultFolder
from penstock.jobs.runners import JobResources
from penstock.jobs.work_plan import WorkPlan


def work(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The file that a command with --plan wrote.")],
    index: Annotated[
        int | None,
        typer.Option(
            "--index", min=0, envvar=["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"], help="Number of this task."
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", min=1, envvar="SLURM_ARRAY_TASK_COUNT", help="Number of tasks.")
    ] = None,
    finish: Annotated[bool, typer.Option("--finish", help="Merge the results, and show them.")] = False,
    results: Annotated[
        Path | None,
        typer.Option("--results", help="Folder of the results, which all tasks reach. Default: next to PLAN."),
    ] = None,
    cpus: Annotated[
        int, typer.Option("--cpus", min=1, envvar="SLURM_CPUS_PER_TASK", help="Threads of a job.")
    ] = JobResources.cpus,
    as_json: Json = False,
) -> None:
    """Run one task of an array job, or merge the results of all tasks.

    Task I of N runs the jobs I, I + N and so on that have no result yet. Exit code 1 if one fails; the task can be
    repeated. --index and --count are read from the variables of Slurm and Kubernetes too. Without any of them, the
    command shows what is missing.

    Example: penstock work stats.json --index 3 --count 16
    """
    planned = WorkPlan.read(plan)
    folder = results or results_of(plan)
    if finish:
        with removed_afterwards(ResultFolder(folder, planned)):
            result = finish_work(planned, folder)
            pkgutil.resolve_name(PRESENT[planned.operation])(result, planned.arguments)
        return
    if index is None and count is None:
        _status(planned, folder, as_json)
        return
    if index is None or count is None:
        raise DataError(f"expected both --index and --count, or --finish, got index={index} and count={count}")
    report = run_share(planned, folder, index, count, threads=JobResources(cpus).threads)
    if as_json:
        print_json(report.to_json())
    else:
        typer.echo(f"{counted(report.done, 'job')} done, {report.earlier} done before")
    if report.failures:
        if not as_json:
            typer.echo(failures_of(planned, report.failures), err=True)
        raise typer.Exit(1)


def _status(planned: WorkPlan, folder: Path, as_json: bool) -> None:
    """Show which jobs have no result."""
    missing = missing_jobs(planned, folder)
    summary: dict[str, Any] = {"operation": planned.operation, "jobs": len(planned), "missing": missing}
    if as_json:
        print_json(summary)
        return
    typer.echo(f"{planned.operation}: {len(planned) - len(missing)} of {counted(len(planned), 'job')} done")
    for number in missing[:20]:
        typer.echo(f"missing: {planned.place(number)}")
