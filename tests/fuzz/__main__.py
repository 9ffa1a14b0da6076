"""Structure-aware edits of valid files of every format, read under limits of memory and time, for as long as asked.

    make fuzz MINUTES=20 FORMAT=lc0             every target of a format in turn
    python -m tests.fuzz --replay lc0/tar:17    one case, with its traceback

Claim: whatever the files are, reading them gives values, an error of penstock, or a documented error of the system; no
crash, no hang, no allocation beyond what files of this size can hold, and no other values without a word where
checksums cover the bytes. What breaks it is a finding: its files and its traceback lie in `--out` under its name, and
the name replays it. Cases run in a process of their own, which is started again where one kills it.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
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

    root, expected = Path(tempfile.mkdtemp()), dict[str, str]()
    for key in keys[:1]:  # what all need is loaded before memory is limited
        cases.judged(targets.targets()[key], 0, root / "unedited")
    cases.limit_memory()
    for place in count(number):
        key, seed = case_of(keys, first, place)
        target = targets.targets()[key]
        os.environ["PENSTOCK_CACHE"] = f"{root}/cache {key}"
        if key not in expected:
            expected[key] = cases.judged(target, 0, root / "unedited").message
        print(json.dumps({"key": key, "seed": seed}), flush=True)
        found = cases.judged(target, seed, root / f"{seed}", expected[key])
        print(json.dumps({"kind": found.kind, "place": found.place, "message": found.message}), flush=True)


class Run:
    """Counts of a run, and its findings, each kept once for each place where it arises."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.kinds: Counter[str] = Counter()
        self.places: set[str] = set()
        self.caught: dict[str, str] = {}
        self.findings: dict[str, list[str]] = {}

    def take(self, case: dict[str, object], kind: str, place: str, message: str) -> None:
        """Count a case."""
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


def fuzz(keys: list[str], minutes: float, seed: int, out: Path) -> Run:
    """Targets in turn, until the time is over."""
    run, end, number = Run(out), time.monotonic() + 60 * minutes, 0
    while time.monotonic() < end:
        number = _one_worker(run, keys, seed * 1_000_000_007 + 1, number, end)
    return run


def _one_worker(run: Run, keys: list[str], first: int, number: int, end: float) -> int:
    """One process from a case on, until it or the time ends; the first case that it has not read."""
    command = [sys.executable, "-m", "tests.fuzz", "--worker", *map(str, (first, number)), *keys]
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, "TMPDIR": scratch}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment)
        assert process.stdout is not None
        case: dict[str, object] = {}
        words = f"nothing was heard for {WALL_SECONDS} s"
        while time.monotonic() < end and select.select([process.stdout], [], [], WALL_SECONDS)[0]:
            line = process.stdout.readline()
            if not line:
                words = f"the process ended with {process.wait()}"
                break
            told = json.loads(line)
            if "key" in told:
                case, number = told, number + 1
            else:
                run.take(case, told["kind"], told["place"], told["message"])
                case = {}
        if time.monotonic() < end:
            errors.seek(0)
            case = case or {"key": keys[0], "seed": 0}  # it ended before the first
            run.take(case, "finding", f"{words} {case['key']}", errors.read().decode("utf-8", "replace"))
        process.kill()
        process.wait()
        process.stdout.close()
    return number


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", default="", help="one format, or a target as format/name; all, mixed, by default")
    parser.add_argument("--all", action="store_true", help="all formats, each for as long")
    parser.add_argument("--minutes", type=float, default=5)
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
            found = cases.judged(known[key], int(seed), Path(folder) / "files")
        print(found.kind, found.place, found.message, sep="\n")
        return found.kind == "finding"
    keys = [key for key in known if not args.format or key == args.format or key.startswith(args.format + "/")]
    if args.list or not keys:
        print("\n".join(known))
        return not keys
    formats = dict.fromkeys(known[key].format for key in keys) if args.all else [args.format or "all formats"]
    findings = 0
    for format in formats:
        mine = [key for key in keys if not args.all or known[key].format == format]
        run = fuzz(mine, args.minutes, args.seed, args.out)
        print(f"{format}: {run.report()}", flush=True)
        findings += len(run.findings)
    return bool(findings)


if __name__ == "__main__":
    raise SystemExit(main())
