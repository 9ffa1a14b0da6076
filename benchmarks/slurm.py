"""Commands in parts as array jobs of Slurm, with tasks that are cancelled and requeued, compared with one process.

    python benchmarks/slurm.py --folder /shared/try [--tasks 5] [--seed 0] [--only stats record]

It needs a running Slurm (`sbatch`, `scancel`, `scontrol`, `squeue`), and a folder that all nodes reach. It writes a
dataset there, and does for each command what `docs/howto/clusters.md` says: `--plan`, an array job of `penstock work`,
and a job with `--finish` that waits for it. Each command is done in four ways:

    array         an array of tasks, and the merge after it (`afterok`)
    requeued      two tasks at a time (`%2`); running tasks are requeued, at moments that a seed chooses
    cancelled     running tasks are cancelled, so that the merge never starts; then the numbers of the failed tasks are
                  submitted again, with `--count`
    few           an array of one task after an array whose numbers begin at 1 was cancelled as a whole

The output of the merge and the files of the target are compared, byte for byte, with those of the command in one
process. For a column store, whose segments are those of the parts, values are compared. The table has the tasks that
were disturbed. At the end, two ranks of `srun` load batches, by the line of `docs/howto/distributed.md`; they are
compared with the batches of one process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import penstock
from penstock.core.ragged import Ragged

PENSTOCK = [sys.executable, "-m", "penstock"]
SECONDS = 600  # after which a wait fails
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}
COMMANDS = {
    "stats": "stats data --by group --range-bytes 1MB --json",
    "check": "check data --deep",
    "convert": "convert data out --to webdataset --option shard_episodes=1 --range-bytes 2MB --json",
    "convert columns": "convert data out --to columns --range-bytes 2MB",
    "certificate": "certificate copy data --verify --range-bytes 2MB",
    "record": "record CartPole-v1 -n 60 -o out --seed 0 --job-episodes 4",
    "index": "index shards --force --range-bytes 1",
    "reshard": "reshard shards out --shard-episodes 3 --range-bytes 1MB",
    "pack": "plan data --pack 512 --pack-option window=16 --pack-option overlong=split --cache out --range-bytes 256",
}
WAYS = ("array", "requeued", "cancelled", "few")
BY_VALUE = ("convert columns", "record")

TRAIN = """
import hashlib, os
import numpy as np
import penstock

loader = penstock.open("data").windows(8).shuffle(seed=1).loader(batch_size=64)
batches = [batch["rewards"].copy() for batch in loader]
np.savez(f"rank{loader.rank}.npz", *batches)
print(loader.rank, loader.world, os.environ["LOCAL_RANK"])
"""


def output_of(command: list[str], folder: Path) -> str:
    """Return what a program prints, also if its exit code is 1, as of a check that finds errors."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{shlex.join(command)}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def make_data(folder: Path) -> None:
    """Write a column store, a copy with a certificate, and tar shards."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(20, 900, 60).tolist()
    n = sum(lengths)
    columns = {"observations": rng.standard_normal((n + len(lengths), 100)).astype("f4")}
    columns |= {"rewards": rng.standard_normal(n), "group": rng.integers(0, 3, len(lengths))}
    data = penstock.from_arrays(columns, lengths=lengths)
    penstock.convert(data, folder / "data", certificate=False)
    penstock.convert(folder / "data", folder / "copy")
    options = {"shard_episodes": 5}
    penstock.convert(folder / "data", folder / "shards", format="webdataset", options=options, certificate=False)


def digest(path: Path, *, values: bool) -> str:
    """Return a digest of the files at a path, or of the values of the dataset there."""
    found = hashlib.sha256()
    if not path.exists():
        return ""
    if not values:
        for file in sorted(path.rglob("*")):
            if file.is_file() and file.name != ".lock":
                found.update(f"{file.relative_to(path)} ".encode() + file.read_bytes())
        return found.hexdigest()
    with penstock.open(path) as data:
        found.update(json.dumps(data.source.episode_metadata(range(len(data))), default=str).encode())
        for episode in data:
            for name, column in episode.columns.items():
                whole = column.values if isinstance(column, Ragged) else column
                found.update(name.encode() + np.ascontiguousarray(whole).tobytes())
    return found.hexdigest()


@dataclass(frozen=True)
class Task:
    """A task of an array.

    Args:
        number: Its number, or what Slurm prints for those that wait.
        state: Its state, such as `RUNNING`.
    """

    number: str
    state: str


class SlurmJob:
    """A job of Slurm, with one task or as many as its array has.

    Args:
        folder: Where it is submitted and runs.
        words: Arguments of `sbatch`.
    """

    def __init__(self, folder: Path, words: list[str]) -> None:
        self.folder = folder
        self.id = output_of(["sbatch", "--parsable", *words], folder).strip()

    @classmethod
    def array(cls, folder: Path, numbers: str, words: str = "") -> SlurmJob:
        """Submit the script of the page.

        Args:
            folder: Where it runs.
            numbers: Numbers of the tasks, as `--array` takes them.
            words: More arguments of `penstock work`.
        """
        command = shlex.join([*PENSTOCK, "work", "plan.json", *words.split()])
        (folder / "array.sh").write_text(f"#!/bin/bash\n#SBATCH --cpus-per-task=1 --requeue\n{command}\n")
        return cls(folder, [f"--array={numbers}", "--output=task-%a.log", "array.sh"])

    def tasks(self) -> list[Task]:
        """Return the tasks that Slurm knows."""
        shown = output_of(["scontrol", "show", "job", self.id, "--oneliner"], self.folder)
        fields = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in shown.splitlines()]
        return [Task(each.get("ArrayTaskId", ""), each["JobState"]) for each in fields if each]

    def running(self) -> list[str]:
        """Return the numbers of the tasks that run."""
        return [task.number for task in self.tasks() if task.state == "RUNNING"]

    def wait(self) -> list[str]:
        """Wait until all tasks ended. Return the numbers of those that did not succeed."""

        def ended() -> bool:
            states = [task.state for task in self.tasks()]
            if "PENDING" in states:  # Slurm starts a requeued task after two minutes, unless it is told to
                command = ["scontrol", "update", f"JobId={self.id}", "StartTime=now"]
                subprocess.run(command, capture_output=True, check=False)
            return all(state in ENDED for state in states)

        wait_for(ended, f"job {self.id} to end")
        return [task.number for task in self.tasks() if task.state != "COMPLETED"]

    def disturb(self, command: Iterable[str], count: int, chosen: random.Random) -> int:
        """Apply a command to running tasks, after moments of up to four seconds. Return to how many."""
        disturbed = 0
        while disturbed < count and not all(task.state in ENDED for task in self.tasks()):
            time.sleep(chosen.uniform(0, 4))
            if running := self.running():
                done = subprocess.run([*command, f"{self.id}_{chosen.choice(running)}"], check=False)
                disturbed += done.returncode == 0
        return disturbed


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until a function returns True."""
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"expected {what} within {SECONDS} s")
        time.sleep(0.5)


def finish(folder: Path, job: SlurmJob) -> str:
    """Submit the merge behind an array job, and return what it prints; empty if it cannot start."""
    (log := folder / "finish.log").unlink(missing_ok=True)
    command = shlex.join([*PENSTOCK, "work", "plan.json", "--finish"])
    words = [f"--dependency=afterok:{job.id}", "--kill-on-invalid-dep=yes", "--output=finish.log", "--error=finish.err"]
    SlurmJob(folder, [*words, "--wrap", command]).wait()
    return log.read_text() if log.exists() else ""


def run_way(folder: Path, way: str, tasks: int, seed: int) -> tuple[str, str]:
    """Do the jobs of the plan in a folder in one way. Return the output of the merge, and what was done."""
    chosen = random.Random(seed)
    last = tasks - 1
    if way == "array":
        return finish(folder, SlurmJob.array(folder, f"0-{last}")), f"{tasks} tasks"
    if way == "requeued":
        job = SlurmJob.array(folder, f"0-{last}%2")
        requeued = job.disturb(["scontrol", "requeue"], 2, chosen)
        job.wait()
        return finish(folder, job), f"{tasks} tasks, {requeued} requeued"
    job = SlurmJob.array(folder, f"1-{tasks}" if way == "few" else f"0-{last}")
    if way == "few":
        wait_for(lambda: any(task.state != "PENDING" for task in job.tasks()), "a task to run")
        time.sleep(chosen.uniform(0, 2))
        subprocess.run(["scancel", job.id], check=True)
        job.wait()
        return finish(folder, SlurmJob.array(folder, "0")), "all cancelled, then one task"
    job.disturb(["scancel"], 2, chosen)
    failed = job.wait()
    if not failed:
        return finish(folder, job), "none cancelled in time"
    if shown := finish(folder, job):
        raise RuntimeError(f"expected no merge after cancelled tasks, got {shown}")
    return finish(
        folder, SlurmJob.array(folder, ",".join(failed), f"--count {tasks}")
    ), f"{len(failed)} cancelled, repeated"


def compare(name: str, way: str, data: Path, chosen: argparse.Namespace, number: int) -> str:
    """Run a command in parts, and compare it with one process. Return a row of the table."""
    begin = time.monotonic()
    folder = chosen.folder / f"{name} {way}".replace(" ", "-")
    folder.mkdir()
    for each in data.iterdir():
        (folder / each.name).symlink_to(each)
    words = COMMANDS[name].split()
    plain = output_of([*PENSTOCK, *_without_parts(words)], folder)
    out = folder / "out"
    expected = digest(out, values=name in BY_VALUE)
    for path in (out, folder / "out.certificate.json"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    output_of([*PENSTOCK, *words, "--plan", "plan.json"], folder)
    jobs = json.loads(output_of([*PENSTOCK, "work", "plan.json", "--json"], folder))["jobs"]
    shown, done = run_way(folder, way, chosen.tasks, chosen.seed + number)
    same = shown == plain and digest(out, values=name in BY_VALUE) == expected
    if not same:
        raise RuntimeError(f"{name}, {way}: expected the output and files of one process, got others in {folder}")
    shutil.rmtree(folder)
    return f"{name:16} {way:10} {jobs:4} jobs  {done:32} equal  {time.monotonic() - begin:5.0f} s"


def _without_parts(words: list[str]) -> list[str]:
    """The command in one process: without the size of parts, and a plan of packs without `--plan` as its own part."""
    if words[0] == "plan":
        return [*words, "--runner", "threads", "--jobs", "0"]
    left = list(words)
    for option in ("--range-bytes", "--job-episodes"):
        if option in left:
            place = left.index(option)
            del left[place : place + 2]
    return left


def train(data: Path, folder: Path) -> str:
    """Load an epoch by two ranks of `srun`, and compare it with one process."""
    folder.mkdir()
    for each in data.iterdir():
        (folder / each.name).symlink_to(each)
    (folder / "train.py").write_text(TRAIN)
    rank = "RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID"
    script = (
        "#!/bin/bash\n#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=1\n"
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n"
        f"srun bash -c '{rank} exec {shlex.quote(sys.executable)} train.py'\n"
    )
    (folder / "train.sh").write_text(script)
    if SlurmJob(folder, ["--output=train.log", "train.sh"]).wait():
        raise RuntimeError(f"expected both ranks to train, got {(folder / 'train.log').read_text()}")
    loader = penstock.open(data / "data").windows(8).shuffle(seed=1).loader(batch_size=64, rank=0, world=1)
    whole = [batch["rewards"].copy() for batch in loader]
    parts = [list(np.load(folder / f"rank{rank}.npz").values()) for rank in range(2)]
    joined = [np.concatenate(batch) for batch in zip(*parts, strict=True)]
    if not all(np.array_equal(*pair) for pair in zip(whole, joined, strict=True)):
        raise RuntimeError(f"expected the batches of one process, got others in {folder}")
    shutil.rmtree(folder)
    return f"srun: {len(whole)} batches of 2 ranks on 2 nodes, equal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="A new folder that all nodes reach.")
    parser.add_argument("--tasks", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=list(COMMANDS), default=list(COMMANDS))
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    chosen = parser.parse_args()
    chosen.folder = chosen.folder.absolute()
    chosen.folder.mkdir(parents=True)
    os.environ["PENSTOCK_CACHE"] = str(chosen.folder / "cache")
    (data := chosen.folder / "data").mkdir()
    make_data(data)
    for number, name in enumerate(chosen.only):
        for k, way in enumerate(chosen.ways):
            print(compare(name, way, data, chosen, 10 * number + k), flush=True)
    print(train(data, chosen.folder / "train"))
    shutil.rmtree(chosen.folder)


if __name__ == "__main__":
    main()
