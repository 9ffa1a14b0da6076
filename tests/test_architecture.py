"""The package layout: which package imports which, the cost of an import, sizes of files, and public names."""

# pyright: basic

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import penstock
from penstock.core.other_names import PENSTOCK, SUBMODULES
from tests.formats.test_registry import LINES_FORMAT

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "penstock"
# Each distribution beside the core, and the others that it may import. The core imports none of them.
DISTRIBUTIONS: dict[str, tuple[str, ...]] = {
    "penstock_live": ("penstock",),
    "penstock_chess": ("penstock", "penstock_live"),
    "penstock_driving": ("penstock", "penstock_studio"),  # colours of its command `view`, an extra
    "penstock_imitation": ("penstock",),
    "penstock_logs": ("penstock",),
    "penstock_mirrors": ("penstock",),
    "penstock_studio": ("penstock", "penstock_live"),
    "penstock_cluster": ("penstock",),
}
ROOTS = [ROOT / "src", *sorted(ROOT.glob("packages/*/src"))]
FILES = sorted(file for root in ROOTS for file in root.rglob("*.py"))

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

GROUND = ("errors", "core", "files")
# package -> the packages that it may import. `formats` alone is the empty package around the formats.
SEES: dict[str, tuple[str, ...]] = {
    "errors": (),
    "core": ("errors",),
    "files": ("errors", "core"),
    "kernels": GROUND,
    "flow": GROUND,
    "locations": (*GROUND, "flow"),
    "containers": (*GROUND, "kernels", "flow", "locations"),
    "lazy_names": (),
    "formats": ("lazy_names",),
    "formats.base": (*GROUND, "flow", "kernels", "formats", "locations"),
    "formats.memory": (*GROUND, "kernels", "formats.base"),
    "formats.records": (*GROUND, "kernels", "containers", "formats.base"),
    "formats.joined": (*GROUND, "formats.base"),
    "envs": GROUND,
    "plan": (*GROUND, "flow", "kernels", "formats.base"),
    "recording": (*GROUND, "lazy_names", "kernels", "envs", "locations", "formats.base"),
    "data": (
        *GROUND,
        "locations",
        "flow",
        "kernels",
        "plan",
        "formats.base",
        "formats.memory",
        "formats.records",
        "formats.joined",
        "formats.columns",
    ),
    "loading": (*GROUND, "flow", "kernels", "plan", "formats.base", "data"),
    "replay": (*GROUND, "lazy_names", "flow", "kernels", "plan", "formats.base", "formats.columns", "data", "loading"),
    "conversion": (*GROUND, "flow", "locations", "formats.base", "formats.joined", "data"),
    "doctor": (*GROUND, "flow", "kernels", "plan", "formats.base", "locations", "data", "conversion"),
    "jobs": (
        *GROUND,
        "flow",
        "kernels",
        "containers",
        "locations",
        "formats.base",
        "formats.columns",
        "formats.webdataset",
        "envs",
        "recording",
        "plan",
        "data",
        "conversion",
        "doctor",
    ),
    "columns": ("core", "data"),
    "transforms": ("core", "plan", "data"),
    "curation": ("data", "doctor"),
    "testing": (*GROUND, "kernels", "plan", "formats.base", "formats.memory", "data"),
}
# Any other folder of `formats` is a file format. No file format imports another one.
FILE_FORMAT = (*GROUND, "locations", "flow", "kernels", "containers", "formats.base", "formats.memory")
SEE_ALL = {"cli", "__main__"}

# The modules of the core that use a name of `penstock` itself, which fetches it at its first use, and that name:
# datasets make loaders and are written, and both are built on datasets.
NAMES_ABOVE = {
    "penstock.data.loadable": {"Loader"},
    "penstock.data.dataset": {"convert"},
    "penstock.data.dataset_facts": {"statistics"},
}

# The modules of ours that are imported inside a function: they, or what they import, take longer to load than the rest,
# and most processes never need them.
DEFERRED = {
    "penstock.kernels.compiler",
    "penstock.kernels.objects",
    "penstock.kernels.reading",
    "penstock.locations.transports",
    "penstock.cli.sketch",
}

HEAVY = {"torch", "jax", "gymnasium", "h5py", "numba", "pyarrow", "PIL", "matplotlib", "fsspec", "typer", "rich"}


def module_of(file: Path) -> str:
    root = next(root for root in ROOTS if file.is_relative_to(root))
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def within(file: Path) -> str:
    """The path of a file from the folder `src` of its distribution, or in the core from `src/penstock`."""
    root = PACKAGE if file.is_relative_to(PACKAGE) else next(root for root in ROOTS if file.is_relative_to(root))
    return file.relative_to(root).as_posix()


SOURCES = {module_of(file): file.read_text("utf-8") for file in FILES}
MODULES = set(SOURCES)


def package_of(module: str) -> str:
    """`penstock.formats.minari.ids` is in `formats.minari`, `penstock.core.spec` in `core`, `penstock` in ``.

    A module of another distribution is in it.
    """
    distribution, *parts = module.split(".")
    if distribution != "penstock":
        return distribution
    return ".".join(parts[:2]) if parts[:1] == ["formats"] else "".join(parts[:1])


CORE = {package_of(module) for module in MODULES} - {""} - set(DISTRIBUTIONS)
ROWS = {package: SEES.get(package, FILE_FORMAT) for package in CORE - SEE_ALL}


@functools.cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """A node and all below it. Each file and function of the package is walked once for all tests of this file."""
    return tuple(ast.walk(tree))


def own_imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every module of ours that is imported anywhere below `tree`, with its line."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else str(node.module) for name in inner]
        else:
            continue
        yield from ((name, node.lineno) for name in names if name.split(".")[0] in {"penstock", *DISTRIBUTIONS})


@functools.cache
def parse(text: str) -> ast.Module:
    """The syntax tree of a text. Each file of the package is parsed once for all tests of this file."""
    return ast.parse(text)


def parsed(file: Path) -> ast.Module:
    return parse(file.read_text("utf-8"))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_package_has_a_row_and_every_row_a_package() -> None:
    assert set(SEES) <= set(ROWS)
    assert [package for package in set(ROWS) - set(SEES) if not package.startswith("formats.")] == []


def wrong_imports(package: str, sources: Mapping[str, str]) -> list[str]:
    """Imports in a package that its row does not allow. `sources` is the text of each module."""
    allowed = {package, *ROWS.get(package, FILE_FORMAT)}
    return [
        f"{module}:{line} imports {name}"
        for module, source in sources.items()
        if package_of(module) == package
        for name, line in own_imports(parse(source))
        if package_of(name) not in allowed and not (name == "penstock" and module in NAMES_ABOVE)
    ]


@pytest.mark.parametrize("module", NAMES_ABOVE)
def test_no_other_name_above_is_used(module: str) -> None:
    names = [ast.unparse(node) for node in nodes(parse(SOURCES[module])) if isinstance(node, ast.Attribute)]
    assert {name.split(".")[1] for name in names if name.startswith("penstock.")} == NAMES_ABOVE[module]


@pytest.mark.parametrize("package", sorted(ROWS))
def test_imports_point_one_way(package: str) -> None:
    assert wrong_imports(package, SOURCES) == []


def circles(imports: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The largest sets of modules in which each imports each other one, directly or through others."""
    reached = {module: set(names) for module, names in imports.items()}
    for through in imports:
        for names in reached.values():
            if through in names:
                names |= reached[through]
    inside = {module for module, names in reached.items() if module in names}
    return {frozenset(other for other in inside & reached[module] if module in reached[other]) for module in inside}


def test_no_modules_import_each_other() -> None:
    """Imports for type checkers and inside functions count."""
    imports = {
        module: {name for name, _ in own_imports(parse(source)) if name in MODULES and name != module}
        for module, source in SOURCES.items()
    }
    assert circles(imports) == set()


def test_circles_are_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "d"}}
    assert circles(imports) == {frozenset({"b", "c"}), frozenset({"d"})}


@pytest.mark.parametrize("distribution", ["penstock", *DISTRIBUTIONS])
def test_distributions_import_in_one_direction(distribution: str) -> None:
    allowed = {distribution, *DISTRIBUTIONS.get(distribution, ())}
    wrong = [
        f"{module}:{line} imports {name}"
        for module, source in SOURCES.items()
        if module.split(".")[0] == distribution
        for name, line in own_imports(parse(source))
        if name.split(".")[0] not in allowed
    ]
    assert wrong == []


def test_distributions_have_one_version() -> None:
    projects = {
        folder.parent.name: tomllib.loads((folder.parent / "pyproject.toml").read_text()) for folder in ROOTS[1:]
    }
    assert {name.replace("-", "_") for name in projects} == set(DISTRIBUTIONS)
    for name, project in projects.items():
        assert project["project"]["version"] == penstock.__version__, name
        assert importlib.import_module(name.replace("-", "_")).__version__ == penstock.__version__
        core = [line for line in project["project"]["dependencies"] if re.match(r"penstock\b(?!-)", line)]
        assert [re.sub(r"\[.*\]", "", line) for line in core] == [f"penstock=={penstock.__version__}"]


def test_a_new_format_needs_no_row() -> None:
    assert wrong_imports("formats.lines", {"penstock.formats.lines": LINES_FORMAT}) == []
    of_another = {"penstock.formats.lines": "from penstock.formats.minari import ids"}
    assert wrong_imports("formats.lines", of_another) == [
        "penstock.formats.lines:1 imports penstock.formats.minari.ids"
    ]


def test_the_rows_have_no_circle() -> None:
    settled: set[str] = set()
    while ready := {package for package, sees in ROWS.items() if package not in settled and settled.issuperset(sees)}:
        settled |= ready
    assert settled == set(ROWS)


def test_own_modules_are_imported_on_top() -> None:
    inside = [
        f"{file.relative_to(ROOT)}:{line} imports {name} inside {function.name}"
        for file in FILES
        for function in functions(parsed(file))
        for name, line in own_imports(function)
        if name not in DEFERRED
    ]
    assert inside == []


def test_frozen_dataclasses_are_frozen() -> None:
    """Fields are set while an instance is created, by `set_fields`, and never afterwards."""
    creating = {"__post_init__", "require_int", "trusted"}
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno} {ast.unparse(node.func)} in {function.name}"
        for file in FILES
        if module_of(file) != "penstock.core.frozen"
        for function in functions(parsed(file))
        for node in nodes(function)
        if isinstance(node, ast.Call)
        and (
            (
                isinstance(node.func, ast.Attribute)
                and node.func.attr == "__setattr__"
                and ast.unparse(node.func) == "object.__setattr__"
            )
            or (isinstance(node.func, ast.Name) and node.func.id == "set_fields" and function.name not in creating)
        )
    ]
    assert wrong == []


is_crowded = runpy.run_path(str(ROOT / "tools" / "measures.py"))["is_crowded"]


def test_a_line_assigns_related_values_only() -> None:
    crowded = [
        f"{file.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}"
        for file in FILES
        for node in nodes(parsed(file))
        if is_crowded(node)
    ]
    assert crowded == []


@pytest.mark.parametrize(
    ("line", "crowded"),
    [
        ("a, b, c = 1, 2, 3", True),
        ("a, b, c = f(x)", False),
        ("a, b, c = c, a, b", False),
        ("a, b = 1, 2", False),
        ("a, b, c = x[0], x[1], x[2]", False),
        ("a, b, c = x[0], x[1], y[2]", True),
    ],
)
def test_crowded_lines_are_found(line: str, crowded: bool) -> None:
    assert is_crowded(ast.parse(line).body[0]) == crowded


ARRAY_TYPES = {
    ast.unparse(node.value)
    for node in parsed(PACKAGE / "core/arrays.py").body
    if isinstance(node, ast.AnnAssign) and node.value
}


def test_array_types_are_named_once() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno} names {ast.unparse(node.value)}"
        for file in FILES
        if package_of(module_of(file)) not in ("kernels", "loading", "penstock_live")
        for node in parsed(file).body
        if isinstance(node, ast.Assign) and ast.unparse(node.value) in ARRAY_TYPES
    ]
    assert wrong == []


MOST_ANY = 60
"""`Any` in the annotations of all kernels: of numba's and LLVM's own objects, which have no types."""


def test_kernels_are_typed() -> None:
    files = [file for file in FILES if "kernels" in file.relative_to(ROOT).parts]
    used = {
        file.relative_to(ROOT).as_posix(): sum(
            isinstance(node, ast.Name) and node.id == "Any" for node in nodes(parsed(file))
        )
        for file in files
    }
    print(f"kernels use `Any` {sum(used.values())} times; the limit is {MOST_ANY}")
    assert sum(used.values()) < MOST_ANY, {name: count for name, count in used.items() if count}


# Calls that replace, rename, lock or map files, and make temporary ones. They occur in `files/` alone.
FILE_CALLS = {
    "os": {"replace", "rename", "renames", "link"},
    "shutil": {"move"},
    "np": {"memmap"},
    "pa": {"memory_map"},
}
FILE_MODULES = {"fcntl", "tempfile", "mmap"}
FILE_EXCEPTIONS = {
    # numba takes nothing but a folder's path, and the folder is private and outlives a block
    "src/penstock/kernels/cache_folder.py": {"tempfile"},
}


def file_calls(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every use of a module or function by which files are owned by hand, with its line."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names if alias.name in FILE_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = FILE_CALLS.get(node.module, set())
            found = [node.module] if node.module in FILE_MODULES else [a.name for a in node.names if a.name in names]
            yield from ((name, node.lineno) for name in found)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called, owner = node.func.attr, ast.unparse(node.func.value)
            by_path = (
                called in ("rename", "replace") and (len(node.args), node.keywords) == (1, []) and owner != "draft"
            )
            mapped = any(keyword.arg == "mmap_mode" for keyword in node.keywords)
            if called in FILE_CALLS.get(owner, ()) or by_path or mapped:
                yield f"{owner}.{called}", node.lineno


def test_files_are_owned_in_one_way() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line} uses {name}"
        for file in FILES
        if package_of(module_of(file)) != "files"
        for name, line in file_calls(parsed(file))
        if name not in FILE_EXCEPTIONS.get(file.relative_to(ROOT).as_posix(), ())
    ]
    assert wrong == []


# Threads and counts of cores outside of `flow`, and why: docs/decisions.md, "Background threads are in flow".
THREAD_EXCEPTIONS = {
    "locations/fetching.py": {"ThreadPoolExecutor"},  # requests of all readers of the process, in no order
    "plan/packing/recent.py": {"ThreadPoolExecutor"},  # one plan ahead, of whichever epoch is asked for
    "containers/video/writer.py": {"Thread"},  # an encoder belongs to one thread; a `BlockQueue` feeds it
    "kernels/warmup.py": {"ProcessPoolExecutor"},  # `penstock warmup` compiles in as many processes as it is told
    "jobs/runners.py": {"Timer"},  # starts processes while the caller runs a job
    "jobs/worker.py": {"Thread"},  # waits for the end of the parent process
    "penstock_live/intake.py": {"Thread"},  # looks for files until the last stream leaves
    "penstock_live/pipeline.py": {"Thread"},  # ends the threads of a pipeline that was dropped
    "penstock_chess/lczero/loader.py": {"Thread"},  # snapshots of the figures, every quarter of a second
    "penstock_studio/viewer/viewed.py": {"Thread"},  # one check, while pages are shown
    "penstock_studio/viewer/live_watch.py": {"Thread"},  # one look a second at the figures of a running loader
    "testing/sources.py": {"Thread", "Process"},  # readers in threads, and after a fork
    "testing/writers.py": {"Process"},  # writers that are killed
}
THREAD_CALLS = {"Thread", "Timer", "Process", "Pool", "ThreadPoolExecutor", "ProcessPoolExecutor"}
THREAD_CALLS |= {"Queue", "SimpleQueue", "LifoQueue", "cpu_count", "process_cpu_count", "sched_getaffinity"}


def test_background_threads_and_counts_of_cores_are_in_flow() -> None:
    found: dict[str, set[str]] = {}
    for file in FILES:
        names = {
            ast.unparse(node.func).rpartition(".")[2] for node in nodes(parsed(file)) if isinstance(node, ast.Call)
        }
        if package_of(module_of(file)) != "flow" and (used := names & THREAD_CALLS):
            found[within(file)] = used
    assert found == THREAD_EXCEPTIONS


# Files that only write, or read what they wrote on this disk.
READ_HERE = {
    "containers/tar/writer.py",
    "containers/hdf5/writer.py",
    "containers/video/files.py",
    "containers/video/index.py",
}


def local_reads(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every call that reads a file by its path, with its line. Remote files would read as zeros."""
    for node in nodes(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        modes = [str(arg.value) for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        opens = (called == "open" and len(node.args) > 1 and ast.unparse(node.args[0]) != "fd") or (
            called.endswith(".open") and node.args[:1] and modes[:1]
        )
        reads = called.endswith((".read_bytes", ".read_text")) and not node.args
        if reads or called in ("np.fromfile", "np.load") or (opens and modes and modes[0] in ("r", "rb", "rt")):
            yield called, node.lineno


def test_formats_read_files_that_may_be_remote() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{line} calls {name}"
        for file in FILES
        if file.is_relative_to(PACKAGE)
        and file.relative_to(PACKAGE).parts[0] in ("containers", "formats")
        and "writer" not in file.name
        and file.relative_to(PACKAGE).as_posix() not in READ_HERE
        for name, line in local_reads(parsed(file))
        if name != "table.read_bytes"  # of columns, which opens by `files.descriptors`
    ]
    assert wrong == []


@pytest.mark.parametrize("call", ["open(p, 'rb')", "p.open('rb')", "p.read_bytes()", "np.load(p)"])
def test_local_reads_are_found(call: str) -> None:
    assert [name for name, _ in local_reads(ast.parse(call))]


def docstring_lines(node: ast.AST) -> int:
    """How many lines the docstrings of a tree take."""
    firsts = [n.body[0] for n in nodes(node) if isinstance(n, DOCUMENTED) and n.body and ast.get_docstring(n)]
    return sum((first.end_lineno or 0) - first.lineno + 1 for first in firsts)


def code_lines(tree: ast.AST, file: Path) -> int:
    """The lines of a file without its docstrings, which are as long as they need to be."""
    return len(file.read_text("utf-8").splitlines()) - docstring_lines(tree)


def test_functions_and_files_are_short() -> None:
    """A bound that shows what grows. Where it would make code dense, code is longer and the bound moves."""
    long_files = [f"{f.relative_to(ROOT)}: {n}" for f in FILES if (n := code_lines(parsed(f), f)) > 500]
    long_functions = [
        f"{file.relative_to(ROOT)}:{function.lineno} {function.name}"
        for file in FILES
        for function in functions(parsed(file))
        if (function.end_lineno or 0) - function.lineno + 1 - docstring_lines(function) > 80
    ]
    assert (long_files, long_functions) == ([], [])


def loaded_by(code: str) -> set[str]:
    """The modules that `code` loads in a fresh interpreter."""
    report = "print(json.dumps(sorted(set(sys.modules) - before)))"
    script = f"import json, sys; before = set(sys.modules); {code}; {report}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_almost_nothing() -> None:
    loaded = loaded_by("import penstock")
    assert {name for name in loaded if name.startswith("penstock")} == {"penstock", "penstock.lazy_names"}
    assert "numpy" not in loaded
    assert len(loaded) < 60


@pytest.mark.parametrize(
    "code", ["import penstock.data", "import penstock.loading.loader", "import penstock.recording.recorder"]
)
def test_packages_do_not_import_heavy_libraries(code: str) -> None:
    assert loaded_by(code) & HEAVY == set()


def test_help_does_not_import_the_commands() -> None:
    loaded = loaded_by("import penstock.cli.main")
    assert loaded & (HEAVY - {"typer", "rich"} | {"numpy"}) == set()


def exported(stub: Path) -> list[str]:
    """The names that a stub exports to type checkers: those imported `as` themselves."""
    imports = (node for node in nodes(parsed(stub)) if isinstance(node, ast.ImportFrom))
    return sorted(alias.name for node in imports for alias in node.names if alias.asname == alias.name)


def test_public_names_agree() -> None:
    assert penstock.__all__ == sorted(penstock.__all__) == exported(PACKAGE / "__init__.pyi")
    assert set(penstock.__all__) <= set(dir(penstock))
    assert len(penstock.__all__) <= 30


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'penstock' has no attribute 'nothing'$"):
        _ = penstock.nothing


@pytest.mark.parametrize("name", PENSTOCK)
def test_names_of_other_libraries_are_answered(name: str) -> None:
    with pytest.raises(AttributeError, match=f"^penstock has no '{name}'; use "):
        getattr(penstock, name)


@pytest.mark.parametrize("submodule", SUBMODULES)
def test_names_of_submodules_are_answered(submodule: str) -> None:
    for name in getattr(penstock, submodule).__all__:
        assert name not in penstock.__all__
        if name not in PENSTOCK:
            with pytest.raises(AttributeError, match=f"^penstock has no '{name}'; use penstock.{submodule}.{name}$"):
                getattr(penstock, name)


@pytest.mark.parametrize("name", penstock.__all__)
def test_public_names_say_what_they_are_by_example(name: str) -> None:
    value = getattr(penstock, name)
    document = inspect.getdoc(value)
    assert document
    shows_nothing = inspect.ismodule(value) or inspect.isabstract(value)
    if not shows_nothing and not (inspect.isclass(value) and issubclass(value, Exception)):
        assert ">>> " in document


def test_texts_name_no_machine() -> None:
    places = (*FILES, *(ROOT / "tests").rglob("*.py"), *ROOT.glob("packages/*/tests/**/*.py"))
    texts = [*places, *(ROOT / "docs").rglob("*.md"), *ROOT.glob("packages/*/*.md"), *ROOT.glob("*.md")]
    word = "/" + "work" + "/"
    assert [str(text.relative_to(ROOT)) for text in texts if word in text.read_text("utf-8")] == []
