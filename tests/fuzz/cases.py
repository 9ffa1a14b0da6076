"""One case: a target and a number give edited files; they are read; what may not be is a `Finding`."""

from __future__ import annotations

import random
import resource
import shutil
import signal
import traceback
import warnings
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from penstock.errors import PenstockError
from tests.fuzz.targets import Files, Target

CPU_SECONDS = 20
SPARE_MEMORY = 3 << 30  # beyond what the process maps when it starts
SOURCE = "/penstock/"
CASES = 5  # of each target in the tests
SLOW = ("native/pickle", "native/procgen", "native/atari", "minari/0.4.2", "l5kit/golden", "map/map")  # not in tests
MISSING = ("no library", "MissingExtraError")  # outcomes of unedited files whose reading needs an optional library


class TooLongError(BaseException):
    """A case took more time than any file of these sizes should."""


@dataclass(frozen=True)
class Outcome:
    """What a case came to: `kind` is "values", "other values", "finding", "caught at the boundary" (an error that no
    parser foresaw), or the class of a documented error; `place` is the line that raised; `message` the traceback of a
    finding, the words of an error, the digest of values."""

    kind: str
    place: str = ""
    message: str = ""


def edited_files(target: Target, seed: int) -> Files:
    """The files of a target after one to three edits. Seed 0 leaves them as they are."""
    rng = random.Random(f"{target.key} {seed}")
    files = dict(target.files())
    for _ in range(rng.choice((1, 1, 1, 2, 3)) if seed else 0):
        name = rng.choice(list(files)) if files else ""
        if files and (len(files) == 1 or rng.random() < 0.9):
            files[name] = target.edit(files[name], rng)
        elif files:
            _edit_folder(files, name, rng)
    return files


def _edit_folder(files: Files, name: str, rng: random.Random) -> None:
    other = rng.choice(list(files))
    match rng.randrange(5):
        case 0:
            del files[name]
        case 1:
            files[name], files[other] = files[other], files[name]
        case 2:  # a folder where a file should be
            files[f"{name}/x"] = files.pop(name)
        case 3:
            files[name] = b""
        case _:
            files[f"{name}{rng.choice(('~', '.bak', '0', '.1'))}"] = files[other]


def write(files: Files, folder: Path) -> None:
    """Put files into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def judged(target: Target, seed: int, folder: Path, expected: str | None = None) -> Outcome:
    """Read an edited dataset. `expected` is the digest of the unedited one, for targets that are sealed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zipfile, about names that come twice
            write(edited_files(target, seed), folder)
    except (ImportError, OSError) as error:  # the latter for names that no file can have
        return Outcome("no library" if isinstance(error, ImportError) else "no files", message=str(error))
    rng = random.Random(seed)
    try:
        with limited(CPU_SECONDS if seed else 0), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of ours, about what is left out
            warnings.simplefilter("error", RuntimeWarning)  # of NumPy, about numbers that do not fit
            digest, reported = target.read(folder, rng)
    except (PenstockError, FileNotFoundError, PermissionError) as error:
        if _caused_by_memory(error):
            return Outcome("finding", f"memory {_place(error)}", traceback.format_exc())
        foreseen = not str(error).startswith("expected data that can be read, got")
        return Outcome(type(error).__name__ if foreseen else "caught at the boundary", _place(error), str(error))
    except (Exception, TooLongError) as error:  # noqa: BLE001  that is what is looked for
        return Outcome("finding", f"{type(error).__name__} {_place(error)}", traceback.format_exc())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if target.sealed and expected is not None and digest != expected and not reported:
        return Outcome("finding", "other values without a word", digest)
    return Outcome("values" if digest == expected else "other values", message=digest)


def quick(targets: Iterable[Target]) -> list[Target]:
    """The targets that tests read: not the slow ones."""
    return [target for target in targets if not target.key.startswith(SLOW)]


def check_edited(target: Target, folder: Path) -> None:
    """Fail unless some edited files give values or an error of ours."""
    whole = judged(target, 0, folder / "unedited")
    assert whole.kind == "other values", whole.message
    assert judged(target, 0, folder / "again", whole.message).kind == "values"
    for seed in range(1, 1 + CASES):
        found = judged(target, seed, folder / str(seed), whole.message)
        assert found.kind != "finding", f"--replay '{target.key}:{seed}'\n{found.place}\n{found.message}"


def limit_memory() -> None:
    """Refuse this process more address space than it has and some."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@contextmanager
def limited(seconds: float) -> Generator[None]:
    """Raise `TooLongError` after some seconds of this process's time; 0 is no limit, for files whose first reading
    compiles kernels."""

    def ring(_: int, __: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _caused_by_memory(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__
    return False


def _place(error: BaseException) -> str:
    """The innermost line of penstock that an error came through, of the first of its causes."""
    while error.__cause__ is not None:
        error = error.__cause__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if SOURCE in frame.filename]
    return f"{frames[-1].filename.rpartition(SOURCE)[2]}:{frames[-1].lineno}" if frames else ""
