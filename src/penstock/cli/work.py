"""`penstock work`: the jobs of a work plan, as a task of an array job; and the merge of their results."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.jobs import PRESENT, results_of
from penstock.cli.show import Json, print_json
from penstock.core.text import counted
from penstock.errors import DataError
from penstock.jobs.coordinator import ResultFolder, failures_of, finish_work, missing_jobs, run_share
from penstock.jobs.runners import JobResources
from penstock.jobs.work_plan import WorkPlan

SLURM_TASK, SLURM_COUNT = "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"


def work(
    context: typer.Context,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The file that a command with --plan wrote.")],
    index: Annotated[
        int | None,
        typer.Option(
            "--index", min=0, envvar=[SLURM_TASK, "JOB_COMPLETION_INDEX"], help="Number of this task, from 0."
        ),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, envvar=SLURM_COUNT, help="Number of tasks.")] = None,
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
        _finish(planned, folder)
        return
    if index is None and count is None:
        _status(planned, folder, as_json)
        return
    if index is None or count is None:
        raise DataError(f"expected both --index and --count, or --finish, got index={index} and count={count}")
    sources = {source.name for name in ("index", "count") if (source := context.get_parameter_source(name)) is not None}
    if sources == {"ENVIRONMENT"} and SLURM_TASK in os.environ:
        index = place_in_array(os.environ)
    report = run_share(planned, folder, index, count, threads=JobResources(cpus).threads)
    if as_json:
        print_json(report.to_json())
    else:
        typer.echo(f"{counted(report.done, 'job')} done, {report.earlier} done before")
    if report.failures:
        if not as_json:
            typer.echo(failures_of(planned, report.failures), err=True)
        raise typer.Exit(1)


def place_in_array(variables: Mapping[str, str]) -> int:
    """Return the place of this task among the tasks of an array of Slurm, from 0.

    The numbers of an array may begin anywhere and have a step, such as `--array=1-64` or `0-126:2`. For others, such
    as `3,7`, Slurm does not say which place a task has.
    """
    number, count = int(variables[SLURM_TASK]), int(variables[SLURM_COUNT])
    first, last, step = (
        int(variables.get(f"SLURM_ARRAY_TASK_{name}", default))
        for name, default in (("MIN", 0), ("MAX", count - 1), ("STEP", 1))
    )
    if len(range(first, last + 1, step)) != count:
        raise DataError(
            f"expected an array such as --array=0-{max(count - 1, 1)}, got {count} tasks from {first} to {last}; to "
            "repeat some tasks of an array, add the number of all its tasks to the script: --count N"
        )
    return (number - first) // step


def _finish(planned: WorkPlan, folder: Path) -> None:
    """Merge the results and show them. A call after that, of a job that was requeued, does nothing."""
    results = ResultFolder(folder, planned)
    if (code := results.exit_code) is not None:
        typer.echo(f"finished before; to work again, remove {folder} and run all tasks", err=True)
        raise typer.Exit(code)
    result = finish_work(planned, folder)
    try:
        pkgutil.resolve_name(PRESENT[planned.operation])(result, planned.arguments)
    except typer.Exit as shown:  # such as 1 for a dataset with errors
        results.finish(shown.exit_code)
        raise
    results.finish(0)


def _status(planned: WorkPlan, folder: Path, as_json: bool) -> None:
    """Show which jobs have no result."""
    finished = ResultFolder(folder, planned).exit_code is not None
    missing = missing_jobs(planned, folder)
    if as_json:
        print_json({"operation": planned.operation, "jobs": len(planned), "missing": missing, "finished": finished})
        return
    done = f"{len(planned) - len(missing)} of {counted(len(planned), 'job')} done"
    typer.echo(f"{planned.operation}: {'finished' if finished else done}")
    for number in missing[:20]:
        typer.echo(f"missing: {planned.place(number)}")
