"""LeRobot's own tests of its datasets, with LeRobot and with the mirror: `--peer PYTHON` has LeRobot and pytest.

    python benchmarks/tests_of_lerobot.py --peer .build/lerobot/bin/python --tests lerobot

`--tests` is a checkout of LeRobot at the version of the peer. Each file runs twice, in processes of the peer: as it is,
and with the classes of `penstock_mirrors.lerobot` under their names in LeRobot. Counted are the tests that make objects
of these classes. Tests whose stand-in for the Hub would be asked for files get them before the dataset is opened,
because the mirror downloads nothing.

This file is also the plugin of these processes, where PyAV and what penstock needs come from this environment.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import json
import os
import site
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

FILES = (
    *("lerobot_dataset", "datasets", "dataset_reader", "dataset_writer", "dataset_metadata", "delta_timestamps"),
    *("depth", "language", "streaming", "video_encoding", "quantiles_dataset_integration"),
)
PLACES = {
    "LeRobotDataset": "lerobot_dataset",
    "LeRobotDatasetMetadata": "dataset_metadata",
    "MultiLeRobotDataset": "multi_dataset",
    "StreamingLeRobotDataset": "streaming_dataset",
}
ENCODERS = ("RGBEncoderConfig", "DepthEncoderConfig")
used: set[str] = set()  # tests that made an object of the classes
outcomes: dict[str, str] = {}


def noted(cls: Any, *, fetches: bool) -> Any:
    """A class whose objects note the test that made them."""

    def note() -> None:
        used.add(os.environ["PYTEST_CURRENT_TEST"].rsplit(" ", 1)[0])

    class Noted(cls):
        def __init__(self, *args: Any, **options: Any) -> None:
            note()
            try:
                super().__init__(*args, **options)
            except FileNotFoundError:
                root = options.get("root", args[1] if len(args) > 1 else None)
                if not fetches or root is None:
                    raise
                fetch(options.get("repo_id", args[0] if args else ""), root)
                super().__init__(*args, **options)

    for name in ("create", "resume"):
        if hasattr(cls, name):

            def made(own: Any, *args: Any, name: str = name, **options: Any) -> Any:
                note()
                return getattr(super(Noted, own), name)(*args, **options)

            setattr(Noted, name, classmethod(made))
    return functools.update_wrapper(Noted, cls, updated=())


def fetch(repo_id: str, root: Any) -> None:
    """Let the stand-in for the Hub of a test write the files of a dataset."""
    from lerobot.datasets import dataset_metadata  # pyright: ignore[reportMissingImports]

    dataset_metadata.snapshot_download(repo_id, repo_type="dataset", revision="v3.0", local_dir=root)


def prepare() -> None:
    """Put the classes that note their tests into LeRobot, before its tests import them."""
    import torch

    torch.library.register_fake = lambda *_, **__: lambda fn: fn  # its torchvision may be of another torch
    import importlib

    import av

    if not hasattr(av, "option"):  # LeRobot has it in a signature alone
        setattr(av, "option", types.SimpleNamespace(Option=object))  # noqa: B010
    import lerobot.configs  # pyright: ignore[reportMissingImports]
    import lerobot.datasets  # pyright: ignore[reportMissingImports]

    mirrored = os.environ["TESTED"] == "mirror"
    if mirrored:
        site.addsitedir(os.environ["PENSTOCK_SITE"])
        import penstock_mirrors.lerobot as mirror
    for name, place in PLACES.items():
        module = importlib.import_module(f"lerobot.datasets.{place}")
        cls = noted(getattr(mirror, name) if mirrored else getattr(module, name), fetches=mirrored)
        for each in (module, lerobot.datasets):
            setattr(each, name, cls)
    for name in ENCODERS if mirrored else ():
        for each in (lerobot.configs, lerobot.configs.video):
            setattr(each, name, getattr(mirror, name))


def pytest_runtest_logreport(report: Any) -> None:
    if report.when == "call" or report.outcome != "passed":
        outcomes[report.nodeid] = report.outcome if report.when == "call" else "error"
        if report.outcome == "failed":
            lines = str(report.longrepr).strip().splitlines()
            outcomes[report.nodeid] = next((line[4:] for line in reversed(lines) if line.startswith("E   ")), lines[-1])


def pytest_sessionfinish() -> None:
    found = {test: outcome for test, outcome in outcomes.items() if test in used}
    Path(os.environ["FOUND"]).write_text(json.dumps(found))


def run(peer: str, checkout: Path, name: str, tested: str, folder: Path) -> dict[str, str]:
    """The outcome of each test of a file that uses the classes."""
    found = folder / f"{tested}-{name}.json"
    own = Path(site.getsitepackages()[0])
    front = folder / tested  # the mirror needs a newer PyAV than LeRobot
    front.mkdir(exist_ok=True)
    for package in ("av", "av.libs") if tested == "mirror" else ():
        with contextlib.suppress(FileExistsError):
            (front / package).symlink_to(own / package)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(front), str(Path(__file__).parent), str(checkout)]),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "home"),
        "TESTED": tested,
        "PENSTOCK_SITE": str(own),
        "FOUND": str(found),
    }
    words = ["-m", "pytest", "-q", "-p", "tests_of_lerobot", "-p", "no:cacheprovider", "-o", "addopts="]
    done = subprocess.run(
        [peer, *words, f"tests/datasets/test_{name}.py"],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if not found.exists():
        raise SystemExit(f"{name} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return json.loads(found.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="interpreter with lerobot and pytest")
    parser.add_argument("--tests", required=True, type=Path, help="checkout of LeRobot")
    parser.add_argument("--files", nargs="*", default=FILES)
    given = parser.parse_args()
    totals: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for name in given.files:
            theirs, ours = (
                run(given.peer, given.tests.absolute(), name, tested, Path(scratch)) for tested in ("lerobot", "mirror")
            )
            right = [test for test, outcome in theirs.items() if outcome == "passed"]
            same = [test for test in right if ours.get(test) == "passed"]
            totals.update(tests=len(theirs), lerobot=len(right), mirror=len(same))
            print(f"| `{name}` | {len(theirs)} | {len(right)} | {len(same)} |", flush=True)
            for test in right:
                if test not in same:
                    print(f"    {test.split('::')[-1]}: {ours.get(test, 'made no object')[:150]}", file=sys.stderr)
    print(f"| all | {totals['tests']} | {totals['lerobot']} | {totals['mirror']} |")
    return 0


if "TESTED" in os.environ:
    prepare()
elif __name__ == "__main__":
    sys.exit(main())
