"""Run the test suite of Minari against our compatible API: `python benchmarks/minari_suite.py --suite CHECKOUT`.

The suite is copied out of its checkout and run there, with every import of `minari` answered by
`penstock_mirrors.minari`; the original must not be installed. Tests that talk to the Farama Foundation's hub run
against a stand-in, a local directory with small datasets under the same names, unless `--deselect-network`.
Needs what the suite needs: pytest, scikit-image, huggingface_hub, mktestdocs (jax is not).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.util
import os
import shutil
import sys
import tempfile
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import gymnasium
import numpy as np
import pytest

COMPATIBLE = "penstock_mirrors.minari"
ORIGINAL = "minari"

# Tests that need the hub. The first two files ask it while they are imported.
NEEDS_HUB = (
    "tests/test_cli.py",
    "tests/dataset/test_dataset_download.py",
    "test_download_namespace_dataset",
    "test_download_namespace_metadata",
)
# They test other libraries' readers, which have to be installed and download from the hub themselves; and the code
# blocks of the documentation, which install packages and download.
ELSEWHERE = ("tests/integrations", "tests/test_docs.py")


class CompatibleFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import our modules for `minari` and all its submodules: the same module objects under another name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.split(".", maxsplit=1)[0] != ORIGINAL:
            return None
        return importlib.util.spec_from_loader(fullname, self)

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return importlib.import_module(COMPATIBLE + spec.name.removeprefix(ORIGINAL))

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: the module was executed under its name in penstock."""


class Count:
    """Plugin of pytest that deselects tests and counts outcomes, one for each test."""

    def __init__(self, deselect: tuple[str, ...]) -> None:
        self.deselect = deselect
        self.outcomes: dict[str, str] = {}
        self.deselected = 0

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        out = [item for item in items if any(name in item.nodeid for name in self.deselect)]
        self.deselected = len(out)
        items[:] = [item for item in items if item not in out]
        config.hook.pytest_deselected(items=out)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome


def stand_in(hub: Path, root: Path) -> None:
    """Upload small datasets under the names that the suite asks for to a hub that is a directory."""
    minari = importlib.import_module(COMPATIBLE)
    os.environ["MINARI_DATASETS_PATH"], os.environ["MINARI_REMOTE"] = str(root), hub.as_uri()
    names = [f"D4RL/{env}/human-v{v}" for env in ("pen", "door", "hammer", "relocate") for v in (1, 2)]
    others = ["D4RL/kitchen/complete-v2", "D4RL/kitchen/mixed-v2", "D4RL/kitchen/partial-v2", "D4RL/maze/large-v2"]
    for dataset_id in [*names, *others]:
        env = minari.DataCollector(gymnasium.make("CartPole-v1"))
        for seed in range(3):
            env.reset(seed=seed)
            while not any(env.step(env.action_space.sample())[2:4]):
                pass
        env.create_dataset(dataset_id, description="a stand-in", author="penstock")
    for namespace in minari.namespace.list_local_namespaces():
        minari.namespace.update_namespace_metadata(namespace, description=f"stand-in for {namespace}")
    for dataset_id in minari.list_local_datasets():
        minari.upload_dataset(dataset_id)


def run(suite: Path, arguments: list[str], network: bool, elsewhere: bool) -> tuple[int, Count]:
    """Copy the suite, run it, and count."""
    deselect = (() if network else NEEDS_HUB) + (() if elsewhere else ELSEWHERE)
    count = Count(deselect)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "suite")
        shutil.copytree(suite / "tests", work / "tests")
        for name in ("docs", "README.md"):
            if elsewhere:
                copy = shutil.copytree if (suite / name).is_dir() else shutil.copy
                copy(suite / name, work / name)
        if network:
            stand_in(Path(folder, "hub"), Path(folder, "root"))
        os.chdir(work)
        sys.path.insert(0, str(work))
        ignored = [f"--ignore={name}" for name in deselect if name.startswith("tests/")]
        np.random.seed(0)
        code = pytest.main(
            ["tests", "-p", "no:cacheprovider", "-q", "--tb=short", *ignored, *arguments], plugins=[count]
        )
        os.chdir("/")
    return int(code), count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, required=True, help="a checkout of github.com/Farama-Foundation/Minari")
    parser.add_argument("--deselect-network", action="store_true", help="leave out tests that need the hub")
    parser.add_argument("--elsewhere", action="store_true", help="run the integrations and documentation, too")
    options, arguments = parser.parse_known_args()
    sys.path.remove(str(Path(__file__).resolve().parent))  # another benchmark there is called minari
    if importlib.util.find_spec(ORIGINAL) is not None:
        parser.error("Minari itself is installed here; the suite would not test penstock")
    sys.meta_path.insert(0, CompatibleFinder())
    code, count = run(options.suite.resolve(), arguments, not options.deselect_network, options.elsewhere)
    tally = {kind: list(count.outcomes.values()).count(kind) for kind in ("passed", "failed", "skipped")}
    left_out = NEEDS_HUB * options.deselect_network + ELSEWHERE * (not options.elsewhere)
    print(
        f"passed {tally['passed']}, failed {tally['failed']}, skipped {tally['skipped']}, "
        f"left out: {', '.join(left_out) or 'nothing'}"
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
