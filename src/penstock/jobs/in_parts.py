"""Work in parts from begin to end: run what has no result yet, merge the results, remove them when they were used."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.conversion.convert import ConversionReport
from penstock.data.chosen import ChosenDataset
from penstock.data.dataset import EpisodeDataset
from penstock.data.mapped import mappings_of, stored_source
from penstock.data.progress import progress_bar
from penstock.errors import ArgumentError, DataError, WorkerError
from penstock.files.user_cache import user_cache
from penstock.jobs.coordinator import ResultFolder, failures_of, finish_work, missing_jobs, run_work
from penstock.jobs.operation import OPENED
from penstock.jobs.runners import Runner, runner_of
from penstock.jobs.work_plan import WorkPlan
from penstock.locations.location import Place, Url


def result_folder(work: WorkPlan) -> Path:
    """Return the folder of the results of a work plan in the user's cache."""
    return user_cache("work") / work.digest[:32]


def finished(work: WorkPlan, folder: Path) -> Any:
    """Return the result if all was done before, and its results were removed; otherwise None."""
    return work.opened().finished() if missing_jobs(work, folder) else None


@contextmanager
def in_parts(
    work: WorkPlan, folder: Path, runner: Runner, *, max_failures: int = 0, quiet: bool = False
) -> Generator[Any]:
    """Run the jobs of a work plan, and give the result.

    Called again after an interruption, it goes on with the parts that are missing. The results of the parts are removed
    when the block has ended without an error, so that what is killed before it has used the result can do it again.
    """
    done = finished(work, folder)
    if done is None:
        with progress_bar(work.operation, quiet=quiet) as advance:
            report = run_work(work, folder, runner, max_failures=max_failures, on_job=advance)
        if report.failures:
            raise WorkerError(f"{failures_of(work, report.failures)}; the same command runs these again")
        done = finish_work(work, folder)
    yield done
    ResultFolder(folder, work).remove()


def convert_in_parts(
    data: EpisodeDataset,
    place: Place,
    rules: Mapping[str, Any],
    storage_options: Mapping[str, Any],
    jobs: int | None,
    runner: object,
) -> ConversionReport:
    """`penstock.convert` with `jobs` or `runner`."""
    if not isinstance(runner, Runner):
        if runner is not None and not isinstance(runner, str):
            raise ArgumentError(f"expected runner='processes', 'threads', 'ray' or a Runner, got {runner!r}")
        runner = runner_of(runner or "processes", jobs)
    elif jobs is not None:
        raise ArgumentError("expected jobs= or a Runner, which knows how many, got both")
    out = str(place.absolute()) if isinstance(place, Path) else place.full
    target = {"out": out, "target": {"storage_options": dict(storage_options) if isinstance(place, Url) else {}}}
    work = WorkPlan.make("convert", {**_arguments(data), **rules, **target})
    try:
        with in_parts(work, result_folder(work), runner) as report:
            return report
    finally:
        OPENED.close()  # the source, and the model that a function has loaded


def _arguments(data: EpisodeDataset) -> dict[str, Any]:
    """A dataset, and the function that changes its episodes, as plain values."""
    mappings = mappings_of(data.source)
    if len(mappings) > 1:
        raise DataError(
            f"expected one function for parts, got {len(mappings)}; call them in one, or write without jobs= and "
            "runner="
        )
    arguments = ChosenDataset.of_episodes(stored_source(data.source), data.episodes).arguments()
    if mappings:
        arguments["map"] = mappings[0].entries()
    return arguments
