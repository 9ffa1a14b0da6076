"""Kernels load where neither the installation nor the home folder can be written."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.errors import PenstockError
from penstock.kernels import cache_folder

SCRIPT = """
import warnings
from pathlib import Path
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from penstock.kernels import cache_folder, library, spans
    by_numba = library.chosen_level() == library.NUMBA
    print(Path(spans._paint.made().stats.cache_path).parents[2] if by_numba else cache_folder._writable())
    print([str(each.message)[:28] for each in caught if "kernels" in str(each.message)])
import numba
print(repr(numba.config.CACHE_DIR))
"""


def read_only_copy(folder: Path) -> Path:
    """The part of the package that kernels need, in a folder where nobody, not even root, can make `__pycache__`."""
    source = Path(penstock.__file__).parent
    (folder / "penstock").mkdir(parents=True)
    for name in ("__init__.py", "__init__.pyi", "errors.py", "lazy_names.py"):
        shutil.copy(source / name, folder / "penstock")
    for name in ("core", "files", "kernels"):
        shutil.copytree(source / name, folder / "penstock" / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "penstock" / "kernels" / "__pycache__").touch()
    return folder


def run(tmp_path: Path, temporary: Path, setting: str) -> subprocess.CompletedProcess[str]:
    nowhere = "/proc/nowhere"
    places = {"HOME": nowhere, "XDG_CACHE_HOME": nowhere, "NUMBA_CACHE_DIR": nowhere, "TMPDIR": str(temporary)}
    places["PENSTOCK_KERNELS"] = setting
    environment = {**os.environ, **places, "PYTHONPATH": str(read_only_copy(tmp_path / "installed"))}
    command = [sys.executable, "-B", "-c", SCRIPT]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=temporary)


@pytest.mark.parametrize("setting", ["numba", ""])
def test_kernels_are_cached_in_a_temporary_folder_where_nothing_else_can_be_written(
    tmp_path: Path, setting: str
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = run(tmp_path, temporary, setting)
    assert done.returncode == 0, done.stderr
    place, warned, after = done.stdout.splitlines()
    ours = temporary / f"penstock-kernels-{os.getuid()}"
    assert Path(place) == ours
    assert warned == "['compiled kernels are cached ']"
    assert after == "'/proc/nowhere'"  # code of others keeps its own setting
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700


@pytest.mark.parametrize("foreign", ["open", "link", "file"])
def test_a_folder_that_others_could_fill_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, foreign: str
) -> None:
    theirs = tmp_path / f"penstock-kernels-{os.getuid()}"
    if foreign == "open":
        theirs.mkdir(0o700)
        theirs.chmod(0o777)
    elif foreign == "link":
        (tmp_path / "other").mkdir(0o700)
        theirs.symlink_to(tmp_path / "other")
    else:
        theirs.touch()
    monkeypatch.setattr(cache_folder.tempfile, "tempdir", str(tmp_path))
    removed = list[str]()
    monkeypatch.setattr(cache_folder.atexit, "register", lambda _, folder, **__: removed.append(folder))
    got = Path(cache_folder._temporary())
    assert got.parent == tmp_path
    assert got != theirs
    assert stat.S_IMODE(got.stat().st_mode) == 0o700
    assert removed == [str(got)]


def test_no_folder_at_all_is_an_error_that_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_folder.tempfile, "tempdir", "/proc/nowhere")
    with pytest.raises(PenstockError, match="set NUMBA_CACHE_DIR"):
        cache_folder._temporary()
