"""`repair`: mend what can be mended without loss, in a copy or in place after a backup.

1. The dataset is checked, and its format says which changes of files mend the findings (`Format.repairs`).
2. In a copy, they are applied to a hidden folder that takes its name at the end. In place, the bytes that change are
   first saved in a folder next to the dataset, which appears when it is complete; then each change is one atomic
   replacement, or one cut of a torn tail and one write behind it. A kill between two steps leaves the finding, the
   backup, or both: the next call goes on.
3. The result is checked again, because a repair can show more: an index that is whole again names other files. After
   `ROUNDS` rounds, the remaining findings are reported.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.data.located import DatasetFiles, locate
from penstock.doctor.check import check
from penstock.errors import ArgumentError, DataError, FormatError
from penstock.files import atomic_path, locked, sync, write_atomic
from penstock.files.descriptors import open_descriptor
from penstock.formats.base.findings import Finding, Repair, cut_repair
from penstock.formats.base.format import named

ROUNDS = 4
RECORD = "backup.json"
_STEP = 1 << 24


@dataclass(frozen=True, eq=False)
class RepairReport:
    """Result of a repair.

    Args:
        repairs: Changes that were made, or would be.
        left: Findings of level error or warning that remain.
        out: The mended dataset; None if nothing was written.
        backups: Folders with the bytes that were changed in place, the first one first.

    Example:
        >>> RepairReport((), ()).sound
        True
    """

    repairs: tuple[Repair, ...]
    left: tuple[Finding, ...]
    out: Path | None = None
    backups: tuple[Path, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether no finding that remains is an error."""
        return all(finding.level != "error" for finding in self.left)


def repair(
    path: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] | None = None,
    in_place: bool = False,
    plan: bool = False,
    deep: bool = False,
    format: str | None = None,
    threads: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> RepairReport:
    """Mend what can be mended without loss of a complete episode: torn tails, totals, indices, footers, statistics.

    Args:
        path: File or folder of a dataset on this machine.
        out: Where a mended copy goes. The default is None: no copy.
        in_place: Whether the dataset itself is changed, after a backup next to it of the bytes that change.
        plan: Whether only to list the changes.
        deep: Whether to read all values, which finds more. The default is False.
        format: Name of the format. The default is None: recognised by content.
        threads: Threads that check. The default is None: the number of cores.
        progress: Whether to show a progress bar. The default is None: on a terminal.
        options: Options of the format, as for `penstock.open`.

    Returns:
        The changes, and the findings that remain.

    Raises:
        ArgumentError: Not exactly one of `out`, `in_place` and `plan` is given, or the dataset has a URL or several
            files.
        LockedError: A writer has the dataset open.
        FileExistsError: Something is at `out`.

    Example:
        >>> import penstock, tempfile
        >>> data = penstock.from_arrays({"rewards": [0.0, 1.0]}, lengths=[2])
        >>> path = Path(penstock.convert(data, f"{tempfile.mkdtemp()}/demo").out)
        >>> _ = (path / "episodes").write_bytes((path / "episodes").read_bytes() + b"half an entry")
        >>> report = repair(path, in_place=True)
        >>> [(each.finding, each.message) for each in report.repairs], report.sound
        ([('torn-tail', 'cut 13 bytes off the end')], True)
    """
    if (out is not None) + in_place + plan != 1:
        raise ArgumentError("expected one of out, in_place and plan; take plan=True to see what would change")
    located = locate(os.fspath(path), format=format)
    dataset = located.datasets[0]
    place, *more = dataset.paths
    if len(located.datasets) > 1 or more or dataset.url is not None:
        raise ArgumentError(f"expected one file or folder on this machine, got {path}; repair each of them")
    how: dict[str, Any] = {"deep": deep, "threads": threads, "progress": progress, "format": dataset.format.name}
    if plan:
        findings = check(place, **how, **options).findings
        return RepairReport(_repairs(dataset, place, findings), _left(findings))
    if out is not None:
        return _copied(dataset, place, Path(out), {**how, **options})
    with dataset.format.writing_lock(place):
        return _mended(dataset, place, {**how, **options}, check(place, **how, **options).findings, backup=True)


def repair_log(
    path: Path,
    whole_size: Callable[[Path], int],
    *,
    out: Path | None = None,
    in_place: bool = False,
    plan: bool = False,
) -> RepairReport:
    """Cut the torn tail of a file that is appended to, such as a journal, off."""
    if (out is not None) + in_place + plan != 1:
        raise ArgumentError("expected one of out, in_place and plan; take plan=True to see what would change")
    with locked(path, os.O_RDWR if in_place else os.O_RDONLY):
        size, keep = path.stat().st_size, whole_size(path)
        if size == keep:
            return RepairReport((), ())
        each = cut_repair(path, keep, size)
        if plan:
            return RepairReport((each,), ())
        if out is not None:
            write_atomic(out, path.read_bytes()[:keep], durable="folder", overwrite=False)
            return RepairReport((each,), (), out)
        backup = _back_up(None, path, [each])
        _apply(each)
        return RepairReport((each,), (), path, (backup,))


def _copied(dataset: DatasetFiles, place: Path, out: Path, how: Mapping[str, Any]) -> RepairReport:
    """Mend a copy; without anything to mend, there is none."""
    with _lock_if_writable(dataset, place):
        findings = check(place, **how).findings
        if not _repairs(dataset, place, findings):
            return RepairReport((), _left(findings))
        with atomic_path(out, durable="folder") as new_copy:
            shutil.copytree(place, new_copy) if place.is_dir() else shutil.copy2(place, new_copy)
            report = _mended(dataset, new_copy, how, findings, backup=False)  # the copy is equal, so are its findings
    moved = [
        Repair(r.finding, out / r.path.relative_to(new_copy), r.message, None, r.keep, r.where) for r in report.repairs
    ]
    # Only findings that are left name files, which have other paths now.
    return RepairReport(tuple(moved), _left(check(out, **how).findings) if report.left else (), out)


def _mended(
    dataset: DatasetFiles, place: Path, how: Mapping[str, Any], findings: Sequence[Finding], *, backup: bool
) -> RepairReport:
    """Mend what `findings` name, check again, and so on until nothing can be mended."""
    done: list[Repair] = []
    backups: list[Path] = []
    for _ in range(ROUNDS):
        repairs = _repairs(dataset, place, findings)
        if not repairs:
            break
        if backup:
            backups.append(_back_up(dataset.format.name, place, repairs))
        for each in repairs:
            _apply(each)
        done += repairs
        findings = check(place, **how).findings
    return RepairReport(tuple(done), _left(findings), place if done else None, tuple(backups))


def _repairs(dataset: DatasetFiles, place: Path, findings: Sequence[Finding]) -> tuple[Repair, ...]:
    """The repairs, at most one of each file: others of it come in the next round."""
    repairs: dict[Path, Repair] = {}
    for each in dataset.format.repairs(place, findings):
        repairs.setdefault(each.path, each)
    return tuple(repairs.values())


def _left(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding.level != "note")


@contextmanager
def _lock_if_writable(dataset: DatasetFiles, place: Path) -> Generator[None]:
    """Keep writers out while a dataset is copied. On a disk that cannot be written, there are none."""
    with ExitStack() as lock:
        try:
            lock.enter_context(dataset.format.writing_lock(place))
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
        yield


def _apply(repair: Repair) -> None:
    content = repair.content() if repair.content is not None else b""
    if repair.keep is None:
        write_atomic(repair.path, content, durable="folder")
    else:
        _continue(repair.path, repair.keep, content)


def _continue(path: Path, keep: int, content: bytes) -> None:
    """Cut a file, and write behind the bytes that stay."""
    fd = open_descriptor(path, os.O_RDWR)
    try:
        os.ftruncate(fd, keep)
        left, position = memoryview(content), keep
        while left:
            written = os.pwrite(fd, left, position)
            left, position = left[written:], position + written
        os.fsync(fd)
    finally:
        os.close(fd)


def _back_up(format: str | None, place: Path, repairs: Sequence[Repair]) -> Path:
    """Save the bytes that repairs change in a new folder next to the dataset, which appears when it is complete."""
    number = 1
    while (folder := place.with_name(f"{place.name}.backup-{number}")).exists():
        number += 1
    with atomic_path(folder, durable="folder") as backup:
        backup.mkdir()
        entries: list[dict[str, Any]] = []
        for i, each in enumerate(repairs):
            keep = each.keep or 0
            existed = each.path.exists()
            if existed:
                _copy_tail(each.path, keep, backup / str(i))
            name = os.path.relpath(each.path, place.parent)
            entries.append({"file": name, "keep": keep, "existed": existed, "why": f"{each.finding}: {each.message}"})
        record = {"dataset": place.name, "format": format, "files": entries}
        write_atomic(backup / RECORD, json.dumps(record, indent=1).encode(), durable="file")
    return folder


def _copy_tail(path: Path, keep: int, target: Path) -> None:
    with path.open("rb") as source, target.open("wb") as file:
        source.seek(keep)
        shutil.copyfileobj(source, file, _STEP)
        file.flush()
        os.fsync(file.fileno())


def undo_repair(backup: str | os.PathLike[str]) -> Path:
    """Put the bytes of a backup back, as they were before the repair; the backup stays.

    Args:
        backup: Folder that `repair` made next to the dataset. Take back the last repair first.

    Returns:
        Path of the dataset.

    Raises:
        FormatError: The folder is no backup of a repair.
        DataError: A file is shorter than what the repair left: it was changed since.
        LockedError: A writer has the dataset open.

    Example:
        >>> import penstock, tempfile
        >>> data = penstock.from_arrays({"rewards": [0.0, 1.0]}, lengths=[2])
        >>> path = Path(penstock.convert(data, f"{tempfile.mkdtemp()}/demo").out)
        >>> _ = (path / "episodes").write_bytes((path / "episodes").read_bytes() + b"half an entry")
        >>> report = repair(path, in_place=True)
        >>> undo_repair(report.backups[0]) == path, (path / "episodes").stat().st_size
        (True, 61)
    """
    folder = Path(backup)
    try:
        record: Any = json.loads((folder / RECORD).read_bytes())
    except (OSError, ValueError) as error:
        raise FormatError(f"expected {RECORD} of a repair, got {error}", path=folder) from error
    try:
        place = folder.absolute().parent / Path(str(record["dataset"])).name
        name = record["format"]
        files = [(str(each["file"]), int(each["keep"]), bool(each["existed"])) for each in record["files"]]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"expected {RECORD} of a repair, got other JSON", path=folder) from error
    with locked(place, os.O_RDWR) if name is None else named(str(name)).writing_lock(place):
        for i, (file, keep, existed) in enumerate(files):
            path = (place.parent / file).resolve()
            if path != place.resolve() and place.resolve() not in path.parents:
                raise FormatError(f"expected files of {place.name}, got {file}", path=folder)
            _put_back(path, keep, folder / str(i), existed=existed)
    sync(place.parent)
    return place


def _put_back(path: Path, keep: int, saved: Path, *, existed: bool) -> None:
    if not existed:
        path.unlink(missing_ok=True)
    elif keep == 0:
        write_atomic(path, saved.read_bytes(), durable="folder")
    elif path.stat().st_size < keep:
        raise DataError(f"expected {path} as the repair left it, with {keep} bytes, got {path.stat().st_size}")
    else:
        _continue(path, keep, saved.read_bytes())
