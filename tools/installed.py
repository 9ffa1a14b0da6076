"""Try the distributions that an environment has: import all of them, read a dataset of Minari, and load packs.

    python tools/installed.py [--compiled]

`make dist` runs this where nothing but wheels or sdists and their requirements is installed. `--compiled` asks that no
kernel needed numba.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from importlib import import_module
from pathlib import Path

import numpy as np

import penstock

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden" / "minari" / "0.4.2" / "cartpole-old-v1"


def main() -> None:
    """Try what is installed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiled", action="store_true")
    options = parser.parse_args()
    if Path(str(penstock.__file__)).is_relative_to(ROOT / "src"):
        sys.exit(f"expected an installed penstock, got the checkout {penstock.__file__}")
    installed = {each.name for each in importlib.metadata.distributions()}
    names = sorted(name.replace("-", "_") for name in installed if name.startswith("penstock"))
    for name in names:
        import_module(name)
    with penstock.open(GOLDEN) as data:
        assert sum(len(batch["actions"]) for batch in data.steps().shuffle(seed=0).loader(16)) == len(data.steps())
    data = penstock.from_arrays({"x": np.arange(40.0)}, [10] * 4)
    (rows,) = data.sequences().shuffle(seed=0).pack(16).loader(4)
    assert sorted(rows["x"][rows["segment_ids"] > 0].tolist()) == list(range(40))
    if options.compiled and "numba" in sys.modules:
        sys.exit("expected compiled kernels, got kernels of numba")
    print(f"Python {'.'.join(map(str, sys.version_info[:3]))}: {', '.join(names)}")


if __name__ == "__main__":
    main()
