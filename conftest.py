"""Settings of all tests, and the code of README.md and docs/, which is run: Python blocks and `$ penstock` lines."""

from __future__ import annotations

import ast
import gc
import importlib
import io
import os
import resource
import shlex
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from sybil import Example, Lexeme, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.files import remote

if TYPE_CHECKING:
    from tests.locations.s3 import Stores

sys.path.append(str(Path(__file__).parent / "docs"))
page_outputs: Any = importlib.import_module("page_outputs")

# A kernel compiles at its first call, and machines are shared: no test looks at the clock. Each run tries the same
# examples, so that a run that passes says that the next one will, and a third of the number that a test states;
# `--hypothesis-profile random` tries others, and all of them.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("penstock", settings.get_profile("random"), derandomize=True, database=None)
settings.load_profile("penstock")

remote.SETTLED = 0  # tests and pages look at what is kept of files that they wrote a moment before

# Tests run in one process a core. More threads of PyTorch and BLAS would wait for each other: a test that trains a
# small transformer takes 4 s of CPU time with one thread, 11 s with two and 67 s with four on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A name such as `runs/day-1` that is no path may be a dataset of Hugging Face, which no test asks for it.
os.environ["HF_HUB_OFFLINE"] = "1"

# One process makes hundreds of caches and servers, with a few descriptors each: more than the usual limit of 1,024.
FILES = 16_384
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
if soft != resource.RLIM_INFINITY and soft < most:
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


# Files whose tests take longest begin first, so that no process is left alone with one at the end. They start Ray, run
# every benchmark, or kill processes while each command works in parts.
RAY = "/ray_runs/"
LONG = (RAY, "tests/test_benchmarks.py", "tests/jobs/test_crashes.py", "tests/jobs/test_contract.py")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """Look for no garbage among what is there until the end: collections in tests then take no half second each."""
    gc.disable()
    yield
    gc.enable()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _no_flush() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Tests kill processes, not the power: they do not wait for the disk, which takes milliseconds a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _not_flushed)
        yield


@pytest.fixture(scope="session", autouse=True)
def _cache() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Indexes that tests keep are not those of the user: thousands would be listed whenever one is kept."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_CACHE", folder)
        yield


def _not_flushed(_: int) -> None:
    """In the place of `os.fsync`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put those of the longest files first, and let Hypothesis try a third of the examples."""
    if settings.get_current_profile_name() == "penstock":
        for test in {getattr(each, "__func__", each) for item in items if (each := getattr(item, "obj", None))}:
            if (chosen := getattr(test, "_hypothesis_internal_use_settings", None)) is not None:
                fewer = settings(chosen, max_examples=max(chosen.max_examples // 3, min(chosen.max_examples, 10)))
                test._hypothesis_internal_use_settings = fewer
    items.sort(key=lambda item: not any(part in item.nodeid for part in LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, all tests of Ray go to one process, which starts one cluster for them."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return RAY if RAY in nodeid else super()._split_scope(nodeid)

    return Files(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--outputs` keeps the outputs of pages instead of comparing them; `make outputs` gives it."""
    parser.addoption("--outputs", action="store_true", help="keep the outputs of pages in docs/outputs")


def pytest_configure(config: pytest.Config) -> None:
    """Blocks of pages have no fixtures: they read the option here."""
    Outputs.kept_again = config.getoption("--outputs", default=False)


class Outputs:
    """Outputs of the blocks of one page: compared with the kept ones, or kept."""

    kept_again = False

    def __init__(self, page: Path, folder: str) -> None:
        self.page, self.folder = page, folder
        self.text = page.read_text("utf-8")
        self.blocks = {block.start: block for block in page_outputs.blocks(self.text)}
        self.kept = page_outputs.load(page)
        self.found: dict[str, list[str]] = {}

    def compare(self, start: int, texts: list[str]) -> None:
        """Compare the outputs of the block that begins there: one a command, or of Python the text and the HTML."""
        block = self.blocks[start]
        texts = [page_outputs.cleaned(text, self.folder) for text in texts]
        kept = self.kept.get(block.key, [])
        if not any(texts):
            texts = []
        elif block.shown:
            kept, texts = [block.shown["text"]], ["\n".join(text for text in texts if text)]
        equal = len(kept) == len(texts) and (block.varies or all(map(page_outputs.same, kept, texts)))
        if texts:
            self.found[block.key] = kept if equal else texts
        if not equal and not self.kept_again:
            shown = "\n\n".join(texts)
            raise AssertionError(f"expected the output that is kept, got another; `make outputs` keeps it:\n{shown}")

    def keep(self) -> None:
        """Write the outputs: into the page where a block of text follows, else to the file of the page."""
        text, kept = self.text, dict(self.found)
        for block in reversed(self.blocks.values()):
            if block.shown and block.key in kept:
                (lines,) = kept.pop(block.key)
                text = text[: block.shown.start("text")] + lines.rstrip("\n") + "\n" + text[block.shown.end("text") :]
        if text != self.text:
            self.page.write_text(text, "utf-8")
        page_outputs.save(self.page, kept)


TERMINAL = {"COLUMNS": page_outputs.COLUMNS, "FORCE_COLOR": None, "TTY_COMPATIBLE": None}


def run_console(example: Example) -> None:
    """Every line `$ penstock ...` of a block has to end with exit code 0, and to print the kept output."""
    texts: list[str] = []
    for line in example.parsed.splitlines():
        command = shlex.split(line.removeprefix("$ "))
        if line.startswith("$ ") and command[:1] == ["penstock"]:
            result = CliRunner(env=TERMINAL).invoke(app, command[1:], catch_exceptions=False)
            if result.exit_code != 0:
                raise AssertionError(f"expected exit code 0 from {line!r}, got {result.exit_code}: {result.output}")
            texts.append(result.output)
    compare(example, texts)


def run_python(example: Example) -> None:
    """Run a block as a notebook does: an object with a picture or table on its last line is shown."""
    lexeme = example.parsed
    last = body[-1] if (body := ast.parse(lexeme).body) else None
    if isinstance(last, ast.Expr):
        lines = lexeme.splitlines()
        lines[last.lineno - 1] = f"_last = {lines[last.lineno - 1]}"
        example.parsed = Lexeme("\n".join(lines), lexeme.offset, lexeme.line_offset)
    texts = [io.StringIO()]
    with redirect_stdout(texts[0]):
        PythonEvaluator()(example)
        last = example.namespace.pop("_last", None)
        if hasattr(last, "_repr_html_"):
            print(last)
            texts.append(io.StringIO(last._repr_html_()))
    compare(example, [text.getvalue() for text in texts])


def compare(example: Example, texts: list[str]) -> None:
    """Compare the outputs of a block with the kept ones of its page."""
    if "_outputs" not in example.namespace:
        example.namespace["_outputs"] = Outputs(Path(example.path), os.getcwd())
    example.namespace["_outputs"].compare(example.region.start, texts)


def enter(namespace: dict[str, Any]) -> None:
    """Each document runs in an empty folder of its own, so that its blocks may write files."""
    namespace["_home"] = Path.cwd()
    namespace["_folder"] = folder = tempfile.TemporaryDirectory()
    os.chdir(folder.name)


def leave(namespace: dict[str, Any]) -> None:
    """Back from that folder, which is removed."""
    os.chdir(namespace["_home"])
    namespace["_folder"].cleanup()
    if Outputs.kept_again and "_outputs" in namespace:
        namespace["_outputs"].keep()


# Modules for frameworks that `make trainers` has, and whose examples its tests run.
MIRRORS = "packages/penstock-mirrors/src/penstock_mirrors"
NEEDS = {"grain": "src/penstock/loading/grain.py", "torchrl": f"{MIRRORS}/torchrl.py"}
collect_ignore = [file for framework, file in NEEDS.items() if find_spec(framework) is None]

pytest_collect_file = Sybil(
    parsers=[SkipParser(), CodeBlockParser("python", run_python), CodeBlockParser("console", run_console)],
    excludes=["packages/*/docs/*.md"],  # the same pages as `docs/*/*.md`, where the site has them
    patterns=["README.md", "CONTRIBUTING.md", "docs/*.md", "docs/**/*.md", "packages/*/README.md"],
    setup=enter,
    teardown=leave,
).pytest()


@pytest.fixture(scope="session")
def stores() -> Iterator[Stores]:
    """One server for all tests: its buckets belong to the process, and clients remember its address."""
    from tests.locations.s3 import serving_s3

    with serving_s3() as stores:
        yield stores
