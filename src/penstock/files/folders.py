"""Folders, and files that others write by name, which appear only when they are complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.files.descriptors import StrPath, open_descriptor
from penstock.files.rename import move, put_in_place
from penstock.files.replace import Durability, sync
from penstock.files.scratch import NEW, OLD, disk_errors_named, make_scratch, sweep, sweep_once


@contextmanager
def scratch_folder(target: StrPath) -> Generator[Path]:
    """Make a hidden, private, empty folder next to `target`, and delete it with all in it when the block ends."""
    place = Path(target)
    sweep_once(place.parent)
    scratch, fd = make_scratch(place, _make)
    try:
        with disk_errors_named(place):
            yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # what cannot be removed now is left to a later sweep
        os.close(fd)


@contextmanager
def atomic_path(path: StrPath, *, durable: Durability = "none", overwrite: bool = False) -> Generator[Path]:
    """Give a path to make a folder or file at, which takes the place of `path` when the block ends.

    If the block raises, nothing changes. A folder that is replaced is not lost at any moment: the two exchange their
    names where the system can do that; elsewhere they are renamed in an order that the next `sweep` ends.
    """
    target = Path(path)
    if not overwrite and os.path.lexists(target):
        raise FileExistsError(f"expected nothing at {target}; remove it, or choose another place")
    with scratch_folder(target) as scratch:
        (scratch / NEW).mkdir()
        new_path = scratch / NEW / target.name
        yield new_path
        if durable != "none":
            sync(new_path)
        _install(new_path, target, scratch, overwrite=overwrite)
    if durable == "folder":
        sync(target.parent)


@contextmanager
def replaced_path(path: StrPath) -> Generator[None]:
    """Free a path for the block, which makes another file or folder there, and delete the old one when the
    block ends.

    If the block raises, the old one is back. After a kill, the next writer in the folder ends the replacement.
    """
    target = Path(path)
    with scratch_folder(target) as scratch:
        (scratch / OLD).mkdir()
        old = scratch / OLD / target.name
        move(target, old)
        try:
            yield
        except BaseException:
            move(old, target)
            raise


def remove_folder(path: StrPath) -> None:
    """Delete a folder with all in it, which disappears at once. After a kill, a second call deletes what is left."""
    target = Path(path)
    if os.path.lexists(target):
        with scratch_folder(target) as scratch, suppress(FileNotFoundError):  # another process was first
            move(target, scratch / "removed")
    sweep(target.parent)


def _install(new_path: Path, target: Path, scratch: Path, *, overwrite: bool) -> None:
    if overwrite:
        (scratch / OLD).mkdir()
        put_in_place(new_path, target, scratch / OLD / target.name)
        return
    try:
        move(new_path, target)
    except FileExistsError as error:
        raise FileExistsError(f"expected nothing at {target}; remove it, or choose another place") from error


def _make(path: str) -> int:
    os.mkdir(path, 0o700)
    try:
        return open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise FileExistsError(path) from None  # swept before it was locked: another name is taken
