"""How long `import penstock` and the first help take, each in a fresh interpreter; the least of several runs."""

from __future__ import annotations

import subprocess
import sys
import time

import figures

RUNS = 7
CODES = {
    "python": "pass",
    "import": "import penstock",
    "columns": "import penstock; penstock.Columns",
    "open": "import penstock; penstock.open",
    "help": "import sys; sys.argv[1:] = ['--help']; from penstock.cli.main import main; main()",
}


def seconds(code: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> None:
    for name, code in CODES.items():
        best = min(seconds(code) for _ in range(RUNS))
        figures.record(name, best, "s")
        print(f"{name:10} {1000 * best:6.0f} ms   {code}")


if __name__ == "__main__":
    main()
