"""Figures of the README and the docs: who measured them, and where a page quotes them.

A benchmark calls `record` for each figure that a page quotes. `measure.py` runs benchmarks and stores their figures in
`figures.json`, with the command, the machine and two yardsticks of the same run: how fast zlib unpacks, and how fast
memory is copied. A page quotes a figure between two comments:

    <!--figure minari.cheetah.iterate.store-->42 x<!--/-->

The text between the comments is `shown(figure)`. A test compares all pages with `figures.json`.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_name("figures.json")
RECORDS = "PENSTOCK_FIGURES"  # names the file to which benchmarks append what they measure
TOLERANCE = 1 / 3
QUOTATION = re.compile(r"<!--figure (?P<name>[\w.-]+)-->(?P<text>.*?)<!--/-->")

Value = float | str


@dataclass(frozen=True)
class Figure:
    """A measured value.

    `unit` is `x` (a ratio), `/s`, `s`, `B`, `%`, `count` or `text`; `run` is a name in COMMANDS of `measure.py`.
    """

    value: Value
    unit: str
    run: str


@dataclass(frozen=True)
class Run:
    """The command that measured some figures, the machine, and the yardsticks: zlib in MB/s, copies in GB/s."""

    command: str
    machine: str
    zlib: float
    memcpy: float


@dataclass(frozen=True)
class Quotation:
    """A figure as a page shows it."""

    page: Path
    name: str
    text: str


def record(name: str, value: Value, unit: str) -> None:
    """Append a figure to the file that `measure.py` names; do nothing in a benchmark that is run alone."""
    if path := os.environ.get(RECORDS):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"name": name, "value": value, "unit": unit}) + "\n")


def recorded(path: Path, run: str) -> dict[str, Figure]:
    """Return the figures that the benchmark of `run` appended to `path`. Each name begins with the run's."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {f"{run}.{row['name']}": Figure(row["value"], row["unit"], run) for row in rows}


def machine() -> str:
    """Describe processor, cores and versions."""
    names = re.findall(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    cores = len(os.sched_getaffinity(0))
    packages = ", ".join(f"{title} {version(name)}" for title, name in (("NumPy", "numpy"), ("numba", "numba")))
    return (
        f"{cores} cores of {names[0] if names else platform.machine()}, Python {platform.python_version()}, {packages}"
    )


def yardsticks() -> tuple[float, float]:
    """Return how many MB/s zlib unpacks and how many GB/s one thread copies, the best of seven rounds."""
    text = b"".join(b"%d %d\n" % (i, i * i % 7919) for i in range(400_000))
    packed = zlib.compress(text, 6)
    source, target = bytes(64 << 20), memoryview(bytearray(64 << 20))
    unpacking = copying = math.inf
    for _ in range(7):
        begin = time.perf_counter()
        zlib.decompress(packed)
        middle = time.perf_counter()
        target[:] = source  # a memory view copies without a temporary
        unpacking, copying = min(unpacking, middle - begin), min(copying, time.perf_counter() - middle)
    return len(text) / unpacking / 1e6, len(source) / copying / 1e9


def shown(figure: Figure) -> str:
    """Format a figure for a page, with two or three digits that say something and its unit."""
    value, unit = figure.value, figure.unit
    if isinstance(value, str):
        return value
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "%":
        return f"{rounded(value)} %"
    if unit == "x":
        return f"{rounded(value)} x"
    steps = (
        ((1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
        if unit == "s"
        else ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
    )
    size, prefix = next((step for step in steps if abs(value) >= step[0]), steps[-1])
    return f"{rounded(value / size)} {prefix}{unit}"


def rounded(value: float) -> str:
    """Two significant digits, and all digits before the point of numbers below 1,000: 0.0093, 4.7, 42, 377, 7,800."""
    if value == 0:
        return "0"
    digits = 1 - math.floor(math.log10(abs(value)))
    if 100 <= abs(value) < 1000:
        digits = 0
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def is_off(quoted: Value, measured: Value) -> bool:
    """Whether a measured value differs from the quoted one by more than a third of it. Texts may differ."""
    if isinstance(quoted, str) or isinstance(measured, str):
        return False
    return abs(measured - quoted) > TOLERANCE * abs(quoted)


def load(path: Path = FILE) -> tuple[dict[str, Figure], dict[str, Run]]:
    """Return all figures and all runs by name. A page quotes the run `NAME` as the figure `NAME.run`."""
    stored = json.loads(path.read_text("utf-8")) if path.exists() else {"runs": {}, "figures": {}}
    runs = {name: Run(**fields) for name, fields in stored["runs"].items()}
    figures = {name: Figure(**fields) for name, fields in stored["figures"].items()}
    return figures, runs


def of_runs(runs: Mapping[str, Run]) -> dict[str, Figure]:
    """Return a figure of each run: the command, the processor and the yardsticks in a line."""
    lines = {
        name: f"`{run.command}` on {run.machine.partition(', Python')[0]} (zlib {rounded(run.zlib)} MB/s, "
        f"copies {rounded(run.memcpy)} GB/s)"
        for name, run in runs.items()
    }
    return {f"{name}.run": Figure(line, "text", name) for name, line in lines.items()}


def save(figures: Mapping[str, Figure], runs: Mapping[str, Run], path: Path = FILE) -> None:
    """Write all figures and runs, sorted by name."""
    stored = {
        "runs": {name: vars(runs[name]) for name in sorted(runs)},
        "figures": {name: vars(figures[name]) for name in sorted(figures)},
    }
    path.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", "utf-8")


def pages(root: Path = ROOT) -> list[Path]:
    """The README and all pages of the docs."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def quotations(page: Path) -> Iterator[Quotation]:
    """Yield the figures that a page quotes."""
    for match in QUOTATION.finditer(page.read_text("utf-8")):
        yield Quotation(page, match["name"], match["text"])


def requote(page: Path, figures: Mapping[str, Figure]) -> None:
    """Write the quotations of a page again from `figures`. Names that are not there stay as they are."""

    def text(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!--figure {name}-->{shown(figures[name])}<!--/-->" if name in figures else match[0]

    old = page.read_text("utf-8")
    new = QUOTATION.sub(text, old)
    if new != old:
        page.write_text(new, "utf-8")
