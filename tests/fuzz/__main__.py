"""Structure-aware edits of valid files of every format, read under limits of memory and time, for as long as asked.

    make fuzz MINUTES=20 FORMAT=lc0                          every target of a format in turn
    python -m tests.fuzz --all --minutes 9 --jobs 16         all formats, as many processes at a time
    python -m tests.fuzz --replay lc0/tar:17                 one case, with its traceback

Claim: whatever the files are, reading them gives values, an error of penstock, or a documented error of the system; no
crash, no hang, no allocation beyond what files of this size can hold, and no other values without a word where
checksums cover the bytes. A case that breaks the claim is a finding. Its files and its traceback are written to `--out`
under its name, and the name replays it. Cases run in a process of their own, which is started again if a case kills it.
Targets that need a library that is not installed are left out, and a line says so.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

WALL_SECONDS = 240  # a case in a process that is not heard of for so long hangs outside of the interpreter
CASES = 50  # of one target before the next one's turn


def case_of(keys: list[str], first: int, number: int) -> tuple[str, int]:
    """Target and seed of a case of a run: some of one target, as many of the next, and again from the first on."""
    turn, place = divmod(number, CASES)
    return keys[turn % len(keys)], first + turn // len(keys) * CASES + place


def worker(keys: list[str], first: int, number: int) -> None:
    """Cases from `number` on, until somebody ends this process; a line before, and one after each."""
    from tests.fuzz import cases, targets

    root, expected, missing = Path(tempfile.mkdtemp()), dict[str, str](), set[str]()
    for key in keys[:1]:  # what all need is loaded before memory is limited
        cases.judged(targets.targets()[key], 0, root / "unedited")
    cases.limit_memory()
    for place in count(number):
        key, seed = case_of(keys, first, place)
        if key in missing:
            if len(missing) == len(keys):
                return
            continue
        target = targets.targets()[key]
        os.environ["PENSTOCK_CACHE"] = f"{root}/cache {key}"
        if key not in expected:
            say(key=key, seed=0, number=place)
            unedited = cases.judged(target, 0, root / "unedited")
            say(kind=unedited.kind, place=unedited.place, message=unedited.message)
            if unedited.kind in cases.MISSING:
                missing.add(key)
                continue
            expected[key] = unedited.message
        say(key=key, seed=seed, number=place)
        found = cases.judged(target, seed, root / f"{seed}", expected[key])
        say(kind=found.kind, place=found.place, message=found.message)


def say(**fields: object) -> None:
    """A line of JSON for the process that counts."""
    print(json.dumps(fields), flush=True)


class Run:
    """Counts of a run, and its findings, each kept once for each place where it arises."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.kinds: Counter[str] = Counter()
        self.places: set[str] = set()
        self.caught: dict[str, str] = {}
        self.findings: dict[str, list[str]] = {}
        self.missing: dict[str, str] = {}
        self._lock = threading.Lock()

    def take(self, case: dict[str, object], kind: str, place: str, message: str) -> None:
        """Count a case. Several threads may call this method."""
        from tests.fuzz import cases

        if case["seed"] == 0:  # unedited files: only that they cannot be read is news
            if kind in cases.MISSING:
                with self._lock:
                    self._leave_out(str(case["key"]), message)
                return
            if kind == "other values":
                return
            kind, place = "finding", f"unedited files of {case['key']} are not read: {place}"
        with self._lock:
            self._count(case, kind, place, message)

    def _leave_out(self, key: str, message: str) -> None:
        if key not in self.missing:
            self.missing[key] = message
            print(f"left out: {key}, {message}", flush=True)

    def _count(self, case: dict[str, object], kind: str, place: str, message: str) -> None:
        self.kinds[kind] += 1
        self.places.add(place)
        if kind == "caught at the boundary":
            self.caught.setdefault(place, f"{case['key']}:{case['seed']}: {message}")
        if kind == "finding":
            name = f"{case['key']}:{case['seed']}"
            known = self.findings.setdefault(place, [])
            known.append(name)
            if len(known) == 1:
                print(f"finding: {place}, replay with --replay '{name}'", flush=True)
                self._keep(name, message)

    def _keep(self, name: str, message: str) -> None:
        from tests.fuzz import cases, targets

        key, _, seed = name.rpartition(":")
        folder = self.out / name.replace("/", "-").replace(" ", "_").replace(":", "-")
        cases.write(cases.edited_files(targets.targets()[key], int(seed)), folder / "files")
        (folder / "traceback.txt").write_text(message)

    def report(self) -> str:
        """All of it in words."""
        lines = [f"{self.kinds.total()} cases: {dict(self.kinds.most_common())}; refused at {len(self.places)} places"]
        lines += [f"  {place}: {len(names)} cases, first {names[0]}" for place, names in self.findings.items()]
        lines += [f"  caught at the boundary: {place}, first {message[:200]}" for place, message in self.caught.items()]
        return "\n".join(lines)


def table(runs: dict[str, Run]) -> str:
    """A line for each format: cases, findings (places where they arise), and the kinds of outcomes."""
    lines = [f"{'format':<12} {'cases':>9} {'findings':>8}  kinds"]
    for name, run in runs.items():
        kinds = ", ".join(f"{kind} {n:,}" for kind, n in run.kinds.most_common())
        lines.append(f"{name:<12} {run.kinds.total():>9,} {len(run.findings):>8,}  {kinds}")
    total = sum(run.kinds.total() for run in runs.values())
    return "\n".join([*lines, f"{'all':<12} {total:>9,} {sum(len(run.findings) for run in runs.values()):>8,}"])


def processes(sizes: dict[str, int], jobs: int) -> dict[str, int]:
    """How many processes read each format: one, and more where `jobs` allows, first where they have most targets."""
    shares = dict.fromkeys(sizes, 1)
    while sum(shares.values()) < jobs:
        shares[max(shares, key=lambda name: sizes[name] / shares[name])] += 1
    return shares


def fuzz(formats: dict[str, list[str]], minutes: float, seed: int, out: Path, jobs: int = 1) -> dict[str, Run]:
    """Read the targets of each format in turn for some minutes, in `jobs` processes. Ctrl-C ends the run early.

    Several processes of one format read the same targets with other seeds, and each begins with another target.
    """
    runs, stopped = {name: Run(out) for name in formats}, threading.Event()
    shares = processes({name: len(keys) for name, keys in formats.items()}, jobs)
    parts = [(name, i, n) for name, n in shares.items() for i in range(n)]

    def read(part: tuple[str, int, int]) -> None:
        name, i, n = part
        keys, turn = formats[name], len(formats[name]) * i // n
        first = seed * 1_000_000_007 + 1 + i * 10_000_000
        end, number = time.monotonic() + 60 * minutes, 0
        while time.monotonic() < end and not stopped.is_set() and len(runs[name].missing) < len(keys):
            number = _one_worker(runs[name], [*keys[turn:], *keys[:turn]], first, number, end, stopped)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(read, parts))
        except KeyboardInterrupt:
            stopped.set()
    return runs


def _one_worker(run: Run, keys: list[str], first: int, number: int, end: float, stopped: threading.Event) -> int:
    """One process from a case on, until it or the time ends; the first case that it has not read."""
    command = [sys.executable, "-m", "tests.fuzz", "--worker", *map(str, (first, number)), *keys]
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        environment = {**os.environ, "TMPDIR": scratch}
        process = subprocess.Popen(  # without a buffer, for `select` does not see what one holds
            command, bufsize=0, stdout=subprocess.PIPE, stderr=errors, env=environment, start_new_session=True
        )
        assert process.stdout is not None
        case: dict[str, object] = {}
        message, heard = "", time.monotonic()
        while not message and time.monotonic() < end and not stopped.is_set():
            if not select.select([process.stdout], [], [], 1)[0]:
                if time.monotonic() - heard > WALL_SECONDS:
                    message = f"nothing was heard for {WALL_SECONDS} s"
                continue
            line, heard = process.stdout.readline(), time.monotonic()
            if not line:
                message = f"the process ended with {process.wait()}"
                break
            told = json.loads(line)
            if "key" in told:
                case, number = told, told["number"] + 1
            else:
                run.take(case, told["kind"], told["place"], told["message"])
        if message and len(run.missing) < len(keys):
            errors.seek(0)
            number += not case
            case = case or {"key": keys[0], "seed": 0}  # it ended before the first
            run.take(case, "finding", f"{message} {case['key']}", errors.read().decode("utf-8", "replace"))
        process.kill()
        process.wait()
        process.stdout.close()
    return number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", default="", help="one format, or a target as format/name; all, mixed, by default")
    parser.add_argument("--all", action="store_true", help="all formats, each for as long")
    parser.add_argument("--minutes", type=float, default=5, help="for each format")
    parser.add_argument("--jobs", type=int, default=1, help="processes that read at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/fuzz"))
    parser.add_argument("--replay", metavar="TARGET:SEED")
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="the targets")
    args = parser.parse_args()
    if args.worker:
        first, number, *keys = args.worker
        worker(keys, int(first), int(number))
    from tests.fuzz import cases, targets

    known = targets.targets()
    if args.replay:
        key, _, seed = args.replay.rpartition(":")
        with tempfile.TemporaryDirectory() as folder:
            os.environ["PENSTOCK_CACHE"] = f"{folder}/cache"
            cases.limit_memory()
            unedited = cases.judged(known[key], 0, Path(folder) / "unedited")
            found = cases.judged(known[key], int(seed), Path(folder) / "files", unedited.message)
        print(found.kind, found.place, found.message, sep="\n")
        return found.kind == "finding"
    keys = [key for key in known if not args.format or key == args.format or key.startswith(args.format + "/")]
    if args.list or not keys:
        print("\n".join(known))
        return not keys
    names = dict.fromkeys(known[key].format for key in keys) if args.all else [args.format or "all formats"]
    formats = {name: [key for key in keys if not args.all or known[key].format == name] for name in names}
    runs = fuzz(formats, args.minutes, args.seed, args.out, args.jobs)
    for name, run in runs.items():
        print(f"{name}: {run.report()}")
    print(table(runs), flush=True)
    return any(run.findings for run in runs.values())


if __name__ == "__main__":
    raise SystemExit(main())
