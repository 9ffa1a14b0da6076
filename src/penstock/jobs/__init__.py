"""Work on a dataset in numbered parts: by processes, by Ray, or as an array job, with equal results.

A *work plan* is a JSON file: an operation with its arguments, the fingerprint of the dataset, and a list of ranges. A
*job* is a pure function of the work plan and an integer. Its result is named after the integer, and appears only when
it is whole. So a job that is repeated, doubled or late does no harm.
"""

from penstock.jobs.coordinator import WorkReport, finish_work, missing_jobs, run_share, run_work
from penstock.jobs.operation import Operation
from penstock.jobs.runners import JobResources, JobResult, Runner
from penstock.jobs.work_plan import WorkPlan, WorkRange

__all__ = [
    "JobResources",
    "JobResult",
    "Operation",
    "Runner",
    "WorkPlan",
    "WorkRange",
    "WorkReport",
    "finish_work",
    "missing_jobs",
    "run_share",
    "run_work",
]
