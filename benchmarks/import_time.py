"""How long `import penstock` and the first help take, each in a fresh interpreter; the least of several runs."""

from __future__ import annotations

import subprocess
import sys
import time

RUNS = 7
CODES = {
    "python alone": "pass",
    "import penstock": "import penstock",
    "penstock.Columns": "import penstock; penstock.Columns",
    "penstock.open": "import penstock; penstock.open",
    "penstock --help": "import sys; sys.argv[1:] = ['--help']; from penstock.cli.main import main; main()",
}


def seconds(code: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> None:
    for name, code in CODES.items():
        print(f"{name:20} {1000 * min(seconds(code) for _ in range(RUNS)):6.0f} ms")


if __name__ == "__main__":
    main()
