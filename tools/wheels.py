"""Build wheels whose kernels are compiled: for Linux on x86-64, and with PyPI's ziglang for arm64 and macOS too.

    python tools/wheels.py [--out dist] [--only penstock] [--check]

Each distribution with kernels gets a library of them next to their modules, and the core the extension that calls
them. Wheels need no numba. The others are wheels of Python alone. Those for macOS were never run. A free-threaded
Python builds wheels for its own version, which were never run either. `--check` builds nothing: it says which wheels
were built from other sources than those here.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import sysconfig
import tempfile
import zipfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.wheel import WheelBuilder

from penstock.flow.limits import cores
from penstock.kernels import building, jit, library, reading, warmup
from penstock.kernels.objects import emit, emit_text

ROOT = Path(__file__).parents[1]
# The headers of this machine's NumPy ask for endian.h, which macOS has not.
APPLE = ("-DNUMPY_CORE_INCLUDE_NUMPY_NPY_ENDIAN_H_", "-DNPY_LITTLE_ENDIAN=1234", "-DNPY_BYTE_ORDER=1234")
X86 = ("v2", "v3", "v4")
ZIG = (sys.executable, "-m", "ziglang", "cc", "-target")


@dataclass(frozen=True)
class Platform:
    """Machines that one wheel is for: the levels of kernels in it, the command that links, and the wheel's tag."""

    levels: tuple[str, ...]
    command: tuple[str, ...]
    tag: str = ""  # empty: by the version of the C library that was linked


def platforms() -> list[Platform]:
    """What this machine can build for."""
    found = [Platform(X86, building.c_compiler())] if building.c_compiler() else []
    if find_spec("ziglang") is None:
        print("arm64 and macOS are left out: they need PyPI's ziglang")
        return found
    return [
        Platform(X86, (*ZIG, "x86_64-linux-gnu.2.17")),
        Platform(("arm64",), (*ZIG, "aarch64-linux-gnu.2.17")),
        Platform(("apple",), (*ZIG, "aarch64-macos.11.0", *APPLE), "macosx_11_0_arm64"),
    ]


def objects_of(job: tuple[str, str, tuple[str, ...]]) -> dict[str, bytes]:
    """The object files of a kernel for a signature, by level."""
    name, signature, levels = job
    import_module(name.rpartition(".")[0])
    code = reading.read(jit.KERNELS[name], signature)
    symbol = library.symbol_of(name, signature)
    return {level: emit(code, signature, symbol, level) for level in levels}


def compiled(kernels: list[jit.Kernel[..., Any]], levels: list[str]) -> dict[str, list[bytes]]:
    """The object files of kernels, by level, compiled in processes, one a core."""
    jobs = [(kernel.name, signature, tuple(levels)) for kernel in kernels for signature in kernel.signatures]
    print(f"compiling {len(jobs)} kernels for {', '.join(levels)}: up to some minutes", flush=True)
    with ProcessPoolExecutor(cores(), multiprocessing.get_context("spawn")) as pool:
        made = list(pool.map(objects_of, jobs))
    return {level: [each[level] for each in made] for level in levels}


def tag_of(files: list[Path], machine: str) -> str:
    """The platform of a wheel with these files, by the newest version of the C library that they ask for."""
    asked = {
        tuple(map(int, found)) for file in files for found in re.findall(rb"GLIBC_(\d+)\.(\d+)", file.read_bytes())
    }
    major, minor = max({(2, 17), *asked})
    return f"manylinux_{major}_{minor}_{machine}"


def python_tag() -> str:
    """The interpreters that the extension is for: all since 3.11, or, built without a GIL, those of one version."""
    version = f"cp3{sys.version_info.minor}"
    return f"{version}-{version}t" if sysconfig.get_config_var("Py_GIL_DISABLED") else "cp311-abi3"


class KernelWheel(WheelBuilder):
    """A wheel with more files in it."""

    def __init__(self, root: Path, files: dict[Path, str], tag: str) -> None:
        super().__init__(str(root))
        self.build_data = {
            "pure_python": False,
            "tag": tag,
            "force_include": {str(file): name for file, name in files.items()},
        }

    def get_default_build_data(self) -> dict[str, Any]:
        """What hatchling puts into a wheel, and its tag."""
        return super().get_default_build_data() | self.build_data


def build(folder: Path, platform: Platform, objects: dict[str, list[bytes]], digest: str, out: Path) -> str:
    """Build the wheel of the distribution in a folder of this repository, for a platform."""
    with tempfile.TemporaryDirectory() as scratch:
        files: dict[Path, str] = {}
        package = next(path.parent for path in folder.glob("src/*/kernels"))
        kernels = f"{package.name}/kernels"
        files[Path(scratch, library.LIBRARY)] = f"{kernels}/{library.LIBRARY}"
        linked = [each for level in platform.levels for each in objects[level]]
        linked.append(emit_text(library.DIGEST, digest, platform.levels[0]))
        building.build_library(linked, Path(scratch, library.LIBRARY), platform.command)
        if folder == ROOT:
            files[Path(scratch, library.BINDING)] = f"{kernels}/{library.BINDING}"
            building.build_binding(Path(scratch, library.BINDING), platform.command)
        machine = "aarch64" if platform.levels == ("arm64",) else "x86_64"
        tag = f"{python_tag() if folder == ROOT else 'py3-none'}-{platform.tag or tag_of(list(files), machine)}"
        return next(KernelWheel(folder, files, tag).build(directory=str(out), versions=["standard"]))


def kernels_of(distribution: str) -> list[jit.Kernel[..., Any]]:
    """The kernels of a distribution."""
    names = dict.fromkeys(name for name, _ in warmup.signatures())
    return [jit.KERNELS[name] for name in names if name.startswith(f"{distribution.replace('-', '_')}.")]


def is_current(wheel: Path) -> bool:
    """Whether the library in a wheel was built from the sources that are here."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        member = next(name for name in archive.namelist() if name.endswith(f"/{library.LIBRARY}"))
        built = library.digest_in(Path(archive.extract(member, folder)))
    return built == library.sources_digest(kernels_of(wheel.name.partition("-")[0]))


def main() -> None:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--only", action="append", metavar="DISTRIBUTION")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        wrong = [path.name for path in sorted(options.out.glob("*x86_64.whl")) if not is_current(path)]
        sys.exit(f"built from other sources: {', '.join(wrong)}; run make wheels" if wrong else None)
    folders = {"penstock": ROOT} | {folder.name: folder for folder in sorted(ROOT.glob("packages/*"))}
    found = platforms()
    for name in options.only or folders:
        kernels = kernels_of(name)
        if not kernels:
            print(next(WheelBuilder(str(folders[name])).build(directory=str(options.out), versions=["standard"])))
            continue
        objects = compiled(kernels, [level for platform in found for level in platform.levels])
        digest = library.sources_digest(kernels)
        for platform in found:
            print(build(folders[name], platform, objects, digest, options.out), flush=True)


if __name__ == "__main__":
    main()
