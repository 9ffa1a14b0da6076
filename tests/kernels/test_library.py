# pyright: reportPrivateUsage=false
"""How kernels compile: at their first call, once for all threads and processes, and for the types they list."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from penstock.core.arrays import FloatArray, IntArray
from penstock.errors import ArgumentError, MissingExtraError, PenstockError
from penstock.kernels import building, jit, library, linking, telling

COMPILED = library.chosen_level() != library.NUMBA and library._tools() != "" and library._binding() is not None


@jit.helper
def twice(x: int) -> int:
    return 2 * x


@jit.kernel("i8[1C] i8[1C]", "i4[1C] i8[1C]")
def add_twice(x: IntArray, out: IntArray) -> None:
    for i in range(len(x)):
        out[i] = twice(x[i]) + 1


@jit.kernel("i8[2C] f8[1Cr] i8 u8 f8 b1 i4 f4")
def every_kind(
    x: IntArray, y: FloatArray, i: int, u: int, f: float, b: bool, small: np.int32, narrow: np.float32
) -> tuple[int, float, bool]:
    return x[0, 0] + i + np.int64(u) + small, y[0] + f + narrow, not b


def new_kernel(kernel: Any = None) -> Any:
    """What runs a kernel, as a process that has not called it yet makes it."""
    known = jit.KERNELS[f"{__name__}.add_twice"] if kernel is None else kernel
    return jit.Kernel(known.function, known.signatures).made()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache of kernels."""
    monkeypatch.setattr(library, "cached_library", lambda name: tmp_path / name)
    monkeypatch.setattr(telling, "_compiled", telling._Compiled())
    return tmp_path


@pytest.mark.skipif(not COMPILED, reason="numba runs kernels here")
def test_a_kernel_becomes_one_file_and_its_helper_stays_a_function_for_python(folder: Path) -> None:
    out = np.zeros(3, np.int64)
    for _ in range(2):
        new_kernel()(np.arange(3), out)
        assert out.tolist() == [1, 3, 5]
        assert [path.suffix for path in folder.iterdir()] == [".so"]
    assert twice(4) == 8


@pytest.mark.skipif(not COMPILED, reason="numba runs kernels here")
def test_code_of_files_that_changed_is_not_loaded(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    files: list[int] = []
    for content in ("first", "first", "second"):
        monkeypatch.setattr(linking, "file_digest", lambda _, content=content: content)
        new_kernel()(np.arange(3), np.zeros(3, np.int64))
        files.append(len(list(folder.iterdir())))
    assert files == [1, 1, 2]


def test_what_has_no_file_and_what_it_uses_is_told_apart() -> None:
    source = "SIZE = {}\nTABLE = np.arange({})\ndef f(x):\n    return x {} SIZE + TABLE[0]"
    digests: set[str] = set()
    for case in ((1, 2, "+"), (2, 2, "+"), (1, 3, "+"), (1, 2, "-")):
        names: dict[str, Any] = {"np": np}
        exec(compile(source.format(*case), "<cell>", "exec"), names)  # noqa: S102
        digests.add(linking.linked_files(names["f"]))
    assert len(digests) == 4


def test_files_of_helpers_and_intrinsics_belong_to_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    files: set[str] = set()

    def seen(path: str) -> str:
        files.add(Path(path).name)
        return path

    monkeypatch.setattr(linking, "file_digest", seen)
    import_module("penstock.kernels.runs")
    kernels = [kernel for name, kernel in jit.KERNELS.items() if name.startswith("penstock.kernels.runs.")]
    for _ in ("names as written", "names that were replaced"):
        files.clear()
        for kernel in kernels:
            linking.linked_files(kernel.function)
            kernel.made()
        assert {"runs.py", "intrinsics.py"} <= files


@pytest.mark.skipif(not COMPILED, reason="numba runs kernels here")
@pytest.mark.parametrize("locks", [True, False])
def test_a_file_is_locked_while_a_kernel_compiles(monkeypatch: pytest.MonkeyPatch, folder: Path, locks: bool) -> None:
    held: list[str] = []

    @contextmanager
    def locked(path: Path, flags: int, *, wait: bool) -> Generator[None]:
        if not locks:
            raise OSError("no locks available")
        path.touch()
        held.append(path.suffix)
        yield

    monkeypatch.setattr(library, "locked", locked)
    out = np.zeros(1, np.int64)
    for _ in range(2):
        new_kernel()(np.ones(1, np.int64), out)
    assert out.tolist() == [3]
    assert held == [".lock"] * locks
    assert [path.suffix for path in folder.iterdir()] == [".so"]


@pytest.mark.skipif(not COMPILED, reason="numba runs kernels here")
@pytest.mark.parametrize("terminal", [True, False])
def test_a_long_compilation_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, folder: Path, terminal: bool
) -> None:
    errors = io.StringIO()
    monkeypatch.setattr(errors, "isatty", lambda: terminal)
    monkeypatch.setattr(telling.sys, "stderr", errors)
    monkeypatch.setattr(telling, "QUIET_SECONDS", 0.0)
    with caplog.at_level(logging.INFO, logger="penstock"):
        made = new_kernel()
        made(np.arange(3), np.zeros(3, np.int64))
        made(np.arange(3, dtype=np.int32), np.zeros(3, np.int64))
    if terminal:
        assert "compiling kernels, once: test_library.add_twice" in errors.getvalue()
    told = errors.getvalue() if terminal else "".join(caplog.messages)
    assert told.count("compiled kernels for") == 1
    assert str(folder) in told


def test_a_short_compilation_is_not_told(monkeypatch: pytest.MonkeyPatch, caplog: Any, folder: Path) -> None:
    monkeypatch.setattr(telling, "QUIET_SECONDS", float("inf"))
    with caplog.at_level(logging.INFO, logger="penstock"):
        new_kernel()(np.arange(3), np.zeros(3, np.int64))
    assert caplog.messages == []


LAZY: Any = add_twice


def test_what_runs_a_kernel_replaces_it_in_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "add_twice", LAZY)
    monkeypatch.setattr(LAZY, "_made", None)
    out = np.zeros(3, np.int64)
    add_twice(np.arange(3), out)
    assert out.tolist() == [1, 3, 5]
    assert add_twice is LAZY.made()
    LAZY(np.arange(3), out)  # a name that was imported before the first call goes on to work


def ints(*shape: int) -> IntArray:
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape)


def fixed(array: Any) -> Any:
    array.flags.writeable = False
    return array


GOOD = (ints(1, 1), fixed(np.full(1, 0.5)), 2, np.uint64(3), 0.25, True, np.int32(4), np.float32(0.125))
BAD: dict[str, tuple[int, Callable[[], object]]] = {
    "another dtype": (0, lambda: ints(1, 1).astype(np.int32)),
    "another sign": (0, lambda: ints(1, 1).astype(np.uint64)),
    "times": (0, lambda: ints(1, 1).astype("m8[ns]")),
    "another byte order": (0, lambda: ints(1, 1).astype(">i8")),
    "another number of axes": (0, lambda: ints(1)),
    "another order": (0, lambda: ints(4, 4)[::2, ::2]),
    "an order of columns": (0, lambda: np.asfortranarray(ints(2, 2))),
    "read only": (0, lambda: fixed(ints(1, 1))),
    "writable": (1, lambda: np.ones(1)),
    "a list": (0, lambda: [[1]]),
    "nothing": (0, lambda: None),
    "a float for an integer": (2, lambda: 2.0),
    "a bool for an integer": (2, lambda: True),
    "an integer that is too large": (2, lambda: 1 << 63),
    "an integer of another width": (2, lambda: np.int32(2)),
    "an array for an integer": (2, lambda: np.array(2)),
    "a signed integer for an unsigned one": (3, lambda: 3),
    "an integer for a float": (4, lambda: 1),
    "a float of another width": (4, lambda: np.float32(1)),
    "an integer for a bool": (5, lambda: 1),
    "Python's integer for a narrow one": (6, lambda: 4),
    "Python's float for a narrow one": (7, lambda: 0.5),
}


@pytest.fixture(scope="module", params=["numba", "chosen"])
def strict(request: pytest.FixtureRequest) -> Any:
    """A kernel with an argument of each kind, by numba and as it runs in this process."""
    kernel = jit.KERNELS[f"{__name__}.every_kind"]
    return library._dispatcher(kernel) if request.param == "numba" else kernel.made()


@pytest.mark.parametrize("what", BAD)
def test_an_argument_of_another_kind_is_refused(strict: Any, what: str) -> None:
    place, make = BAD[what]
    with pytest.raises(TypeError, match=r"every_kind to be called with \(i8\[2C\] .*got"):
        strict(*GOOD[:place], make(), *GOOD[place + 1 :])


@pytest.mark.parametrize(
    "other",
    [
        {},
        {3: 3 + (1 << 63)},
        {2: np.int64(2), 4: np.float64(0.25), 5: np.bool_(True)},
        {0: ints(2, 2)[:1, :1].copy().view(np.ndarray), 2: np.longlong(2)},
    ],
    ids=["plain", "a large integer", "NumPy's numbers", "another name of a type"],
)
def test_arguments_of_the_stated_kinds_are_taken(strict: Any, other: dict[int, object]) -> None:
    given = [other.get(place, value) for place, value in enumerate(GOOD)]
    whole, real, flag = strict(*given)
    assert (whole % (1 << 63), real, flag) == (10, 0.875, False)


def test_another_number_of_arguments_is_refused(strict: Any) -> None:
    for given in ((), GOOD[:-1], (*GOOD, 1)):
        with pytest.raises(TypeError):
            strict(*given)


@pytest.mark.skipif(not COMPILED, reason="numba takes an array that is not aligned for one that is")
def test_an_array_that_is_not_aligned_or_has_a_mask_is_refused() -> None:
    array = np.zeros(33, np.uint8)[1:].view(np.int64)
    with pytest.raises(TypeError, match=r"got \(unaligned int64\[1C\], int64\[1C\]\)"):
        new_kernel()(array, np.zeros(4, np.int64))
    with pytest.raises(TypeError, match=r"got \(int64\[1C\], int64\[1C\]\)"):
        new_kernel()(np.ma.masked_array([1], [True]), np.zeros(4, np.int64))


def test_references_of_arguments_are_given_back() -> None:
    given = [np.arange(3), np.zeros(3, np.int64)]
    made = new_kernel()
    made(*given)
    before = [sys.getrefcount(each) for each in given]
    for _ in range(100):
        made(*given)
        with pytest.raises(TypeError):
            made(given[0], 1)
    assert [sys.getrefcount(each) for each in given] == before


PROGRAM = """
import sys, threading
import numpy as np
import penstock.plan
from penstock.kernels import locate, spans
assert "numba" not in sys.modules
together = threading.Barrier(8)
painted = []

def paint():
    out, one = np.empty(3, np.int32), np.ones(1, np.int64)
    together.wait()
    spans.paint(one, one, one, 0, out)
    painted.append(out.tolist())

threads = [threading.Thread(target=paint) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert painted == [[0, 1, 0]] * 8
groups = locate.Groups.of(np.array([2, 3]))
print(groups.locate(np.array([1, 2, 4])).tolist())
print("numba" in sys.modules)
"""


def printed(program: str, **settings: str) -> list[str]:
    """The lines that a program prints."""
    environment = {**os.environ, **settings}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not COMPILED, reason="numba runs kernels here")
@pytest.mark.skipif(Path(library.__file__).with_name(library.LIBRARY).exists(), reason="the wheel has them compiled")
def test_threads_share_a_first_call_and_the_next_process_does_not_import_numba(tmp_path: Path) -> None:
    for compiles in (True, False):
        assert printed(PROGRAM, NUMBA_CACHE_DIR=str(tmp_path)) == ["[[1, 0, 2]]", str(compiles)]
        assert len(list(tmp_path.rglob("*.so"))) == 3  # two kernels, and what calls them
        assert not list(tmp_path.rglob("*.lock"))


KERNELS = """
import json
import numpy as np
from penstock.kernels import checksum, locate, permute, returns, runs

lengths, out = np.arange(100, dtype=np.int32), np.zeros(60, np.int64)
runs.gather_runs(lengths, np.arange(20) * 4, np.full(20, 3), out)
rewards = np.random.default_rng(0).normal(size=1000)
sums = np.zeros(1000)
returns.discounted_sums(rewards, np.array([0, 300, 1000]), 0.99, sums)
numbers = permute.permute(np.arange(50), np.full(50, 50), np.zeros(50, np.int64), 7)
located = locate.Groups.of(np.array([2, 3])).locate(np.array([1, 2, 4]))
print(json.dumps([checksum.lookup3(b"kernels" * 9), out.tolist(), sums.tolist(), numbers.tolist(), located.tolist()]))
"""


def test_kernels_give_equal_results_by_numba_and_at_every_level() -> None:
    (by_numba,) = printed(KERNELS, PENSTOCK_KERNELS=library.NUMBA)
    assert len(json.loads(by_numba)) == 5
    for level in library.machine_levels():
        assert printed(KERNELS, PENSTOCK_KERNELS=level) == [by_numba]


@pytest.mark.skipif(not COMPILED, reason="there is no C compiler")
def test_a_library_next_to_a_module_of_kernels_needs_no_numba(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As in a wheel: one library for all levels, and the extension next to it."""
    from penstock.kernels import objects, reading

    kernel = jit.KERNELS[f"{__name__}.add_twice"]
    made: list[bytes] = []
    for signature in kernel.signatures:
        code = reading.read(kernel, signature)
        symbol = library.symbol_of(kernel.name, signature)
        made += [objects.emit(code, signature, symbol, level) for level in library.machine_levels()]
    made.append(objects.emit_text(library.DIGEST, library.sources_digest([kernel]), library.machine_levels()[0]))
    building.build_library(made, folder / library.LIBRARY, building.c_compiler())
    building.build_binding(folder / library.BINDING, building.c_compiler())
    monkeypatch.setattr(library, "__file__", str(folder / "library.py"))
    monkeypatch.setattr(library, "_binding", library._binding.__wrapped__)
    monkeypatch.setattr(library, "_library_of", lambda _: folder / library.LIBRARY)
    monkeypatch.setattr(library, "_tools", lambda: "")
    assert library.digest_in(folder / library.LIBRARY) == library.sources_digest([kernel])
    assert library.digest_in(folder / library.LIBRARY) != library.sources_digest([jit.Kernel(kernel.function, ())])
    for level in library.machine_levels():
        monkeypatch.setattr(library, "chosen_level", lambda level=level: level)
        assert library.is_compiled(kernel, kernel.signatures[0])
        for dtype in (np.int64, np.int32):
            out = np.zeros(3, np.int64)
            new_kernel()(np.arange(3, dtype=dtype), out)
            assert out.tolist() == [1, 3, 5]


@pytest.mark.skipif(not building.c_compiler(), reason="there is no C compiler")
@pytest.mark.parametrize("gil", [True, False])
def test_the_extension_asks_for_the_limited_api_only_where_python_has_a_gil(gil: bool, tmp_path: Path) -> None:
    """Headers of a free-threaded Python refuse it, and only `pyconfig.h` says that they are such headers."""
    (tmp_path / "numpy").mkdir()
    for name in ("Python.h", "numpy/arrayobject.h"):
        (tmp_path / name).touch()
    (tmp_path / "pyconfig.h").write_text("" if gil else "#define Py_GIL_DISABLED 1\n")
    command = [*building.c_compiler(), "-E", "-dM", f"-I{tmp_path}", str(building.BINDING)]
    defined = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert ("Py_LIMITED_API" in defined) is gil


def test_kernels_are_the_same_code_as_by_all_passes_of_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core.compiler import DefaultPassBuilder
    from numba.core.compiler_lock import global_compiler_lock

    from penstock.kernels import histograms, objects, reading, runs

    del histograms, runs  # imported for their kernels: loops, branches and arithmetic of small types
    names = (f"{__name__}.every_kind", "penstock.kernels.histograms._count_bytes", "penstock.kernels.runs._gather_runs")

    def made() -> list[bytes]:
        monkeypatch.setattr(reading, "_linker", linking.Linker(reading._READING))
        kernels = [jit.KERNELS[name] for name in names]
        codes = [(reading.read(kernel, kernel.signatures[0]), kernel.signatures[0]) for kernel in kernels]
        return [objects.emit(code, signature, "name", "v2") for code, signature in codes]

    def all_passes(reader: Any) -> list[Any]:
        passes: Any = cast("Any", DefaultPassBuilder).define_nopython_pipeline(reader.state)
        lowering = reading.typed_passes.NativeLowering
        passes.passes = [(reading._LoweringOnly if each is lowering else each, name) for each, name in passes.passes]
        passes.finalize()
        return [passes]

    by_few = made()
    monkeypatch.setattr(reading, "_types_chosen_once", lambda: global_compiler_lock)
    monkeypatch.setattr(reading._Reader, "define_pipelines", all_passes)
    assert made() == by_few


def test_the_types_of_an_operator_are_chosen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    from penstock.kernels import reading

    chosen: list[object] = []
    functions: Any = numba.types.Function
    choose = functions.get_call_type

    def counted(function: Any, *args: Any) -> Any:
        chosen.append((function, args[1]))
        return choose(function, *args)

    monkeypatch.setattr(functions.__base__, "get_call_type", counted)
    kernel = jit.KERNELS[f"{__name__}.every_kind"]
    reading.read(kernel, kernel.signatures[0])
    assert len(chosen) == len(set(chosen))
    assert functions.get_call_type is counted


def test_objects_are_emitted_for_machines_that_this_one_is_not() -> None:
    from penstock.kernels import objects, reading

    kernel = jit.KERNELS[f"{__name__}.every_kind"]
    code = reading.read(kernel, kernel.signatures[0])
    assert code.returns == "i8 f8 b1"
    heads = {level: objects.emit(code, kernel.signatures[0], "name", level)[:20] for level in objects.TARGETS}
    assert heads["v2"][:4] == heads["arm64"][:4] == b"\x7fELF"
    assert (heads["v2"][18], heads["arm64"][18]) == (62, 183)  # EM_X86_64, EM_AARCH64
    assert heads["apple"][:4] == bytes.fromhex("cffaedfe")  # MH_MAGIC_64


def test_without_compiled_code_and_numba_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_tools", lambda: "")
    monkeypatch.setitem(sys.modules, "penstock.kernels.compiler", None)
    monkeypatch.delattr("penstock.kernels.compiler", raising=False)
    with pytest.raises(MissingExtraError, match=r"got neither; .*pip install 'penstock\[jit\]'"):
        new_kernel()


def test_where_the_extension_cannot_be_built_it_is_told_and_numba_runs_kernels(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(library, "__file__", str(folder / "library.py"))  # wheels have the extension next to it
    monkeypatch.setattr(library, "_binding", library._binding.__wrapped__)
    monkeypatch.setattr(library, "chosen_level", lambda: "v2")
    monkeypatch.setattr(library, "_tools", lambda: "tools")

    def fails(path: Path, command: object) -> None:
        raise PenstockError("Python.h: No such file")

    monkeypatch.setattr(building, "build_binding", fails)
    with pytest.warns(UserWarning, match=r"numba in each process.*Python\.h: No such file; install the headers"):
        made = new_kernel()
    assert made.py_func.__name__ == "add_twice"


def test_a_failed_build_shows_what_the_linker_said(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import sys; sys.exit('no such target')")
    with pytest.raises(PenstockError, match=r"to build kernels, got status 1: no such target"):
        building.build_library([b"object"], tmp_path / "library.so", command)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", ["v9", "Numba"])
def test_another_word_for_a_level_is_refused(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.setenv("PENSTOCK_KERNELS", setting)
    with pytest.raises(ArgumentError, match=rf"expected PENSTOCK_KERNELS among \['numba'.*got '{setting}'"):
        library.chosen_level.__wrapped__()


def test_the_levels_of_this_machine_are_those_that_numpy_sees() -> None:
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("levels are of x86-64")
    has = import_module("numpy._core._multiarray_umath").__cpu_features__
    assert ("v2" in library.machine_levels()) == has["SSE42"]
    assert ("v3" in library.machine_levels()) == (has["AVX2"] and has["FMA3"] and has["F16C"])
