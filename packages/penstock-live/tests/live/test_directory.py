"""Files of a directory that grows: each once, whole, whatever happens to its name. A clock by hand, no waiting."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from live.files import write
from penstock.errors import FormatError, MissingExtraError, PlanError
from penstock_live import directory as module
from penstock_live.directory import FilePathProvider


class Watched:
    """A directory that is polled by hand."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.now = folder, 5000.0
        chosen = {"watch": "poll", "settle": 2.0, "interval": 5.0, **options}
        self.provider = FilePathProvider(folder, clock=lambda: self.now, **chosen)

    def scan(self) -> list[str]:
        return [name for name in self.provider.scan() if self.provider.take(name) is not None]

    def poll(self, seconds: float = 6.0) -> list[str]:
        self.now += seconds
        return [found.name for found in self.provider.poll()]

    def found(self) -> list[str]:
        """What two looks find, at the second of which files are taken."""
        return [*self.poll(), *self.poll()]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    write(tmp_path / "b.chk", [1])
    write(tmp_path / "x" / "y" / "a.chk", [2])
    return Watched(tmp_path)


def test_a_scan_gives_the_newest_name_first_and_skips_names_with_a_dot(watched: Watched) -> None:
    write(watched.folder / ".hidden" / "c.chk", [3])
    (watched.folder / ".d.chk.x7Gh2").write_bytes(b"of rsync")
    assert watched.scan() == ["b.chk", "x/y/a.chk"]
    assert watched.found() == []


def test_a_file_that_comes_is_taken_once_at_the_second_look(watched: Watched) -> None:
    watched.scan()
    write(watched.folder / "new" / "c.chk", [3])
    assert watched.poll() == []
    assert watched.poll(seconds=1.9) == []
    assert watched.poll(seconds=0.1) == ["new/c.chk"]
    assert watched.found() == []


def test_a_file_that_still_grows_waits_until_it_rests(watched: Watched) -> None:
    watched.scan()
    path = watched.folder / "c.chk"
    for size in range(1, 5):
        path.write_bytes(bytes(size))
        assert watched.poll() == []
    assert watched.poll() == ["c.chk"]


def test_a_file_of_the_scan_that_changed_lately_waits_too(tmp_path: Path) -> None:
    write(tmp_path / "old.chk", [1], age=4990.0)
    write(tmp_path / "young.chk", [2], age=4999.0)
    watched = Watched(tmp_path)
    assert watched.scan() == ["old.chk"]
    (tmp_path / "young.chk").write_bytes(b"longer than it was before")
    assert watched.poll() == []
    assert watched.poll() == ["young.chk"]


def test_a_finished_directory_is_taken_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "young.chk", [2], age=4999.0)
    watched = Watched(tmp_path, watch="off")
    assert watched.scan() == ["young.chk"]
    write(tmp_path / "more.chk", [3])
    assert watched.found() == []


def test_what_was_not_wanted_at_the_scan_is_not_news_later_unless_it_is_written_anew(watched: Watched) -> None:
    assert len(watched.provider.scan()) == 2  # and none is taken
    assert watched.found() == []
    write(watched.folder / "b.chk", [1, 2, 3], age=1001.0)
    assert watched.found() == ["b.chk"]


def test_the_same_bytes_written_again_are_a_duplicate(watched: Watched) -> None:
    watched.scan()
    watched.poll()  # contents are looked at between polls
    write(watched.folder / "b.chk", [1], age=2000.0)
    write(watched.folder / "b.chk.new", [1])
    assert watched.found() == ["b.chk.new"]
    assert watched.provider.counts["duplicates"] == 1


def test_another_file_of_the_same_name_is_taken_as_rewritten(watched: Watched) -> None:
    watched.scan()
    watched.poll()
    write(watched.folder / "b.chk", [8], age=2000.0)
    watched.poll()
    watched.now += 6
    (found,) = watched.provider.poll()
    assert (found.name, found.rewritten) == ("b.chk", True)


@pytest.mark.parametrize("contents", [1, 8], ids=["as it was", "anew"])
def test_a_source_goes_on_with_a_file_only_if_it_was_written_as_when_it_was_taken(
    watched: Watched, contents: int
) -> None:
    watched.scan()
    watched.poll()
    path, register = watched.folder / "b.chk", watched.provider.register
    before = path.stat()
    write(path, [contents], age=2000.0)
    now = path.stat()
    for _ in range(3):  # before it is noticed, while it rests, and once it was taken anew
        is_same = register.same_contents("b.chk", path, now.st_size, before.st_mtime_ns)
        assert is_same == (contents == 1)
        watched.poll()
    assert register.same("b.chk", now)


def test_a_copy_in_another_folder_is_a_duplicate(watched: Watched) -> None:
    watched.scan()
    (watched.folder / "copy").mkdir()
    shutil.copy(watched.folder / "b.chk", watched.folder / "copy" / "b.chk")
    write(watched.folder / "copy" / "a.chk", [5])
    assert watched.found() == ["copy/a.chk"]
    assert watched.provider.counts["duplicates"] == 1


def test_a_hard_link_of_a_file_that_was_taken_is_a_duplicate_and_one_of_a_new_file_is_seen(watched: Watched) -> None:
    watched.scan()
    os.link(watched.folder / "b.chk", watched.folder / "z.chk")
    elsewhere = write(watched.folder.parent / f"{watched.folder.name}-elsewhere" / "n.chk", [9])
    os.link(elsewhere, watched.folder / "n.chk")
    assert watched.found() == ["n.chk"]
    assert watched.provider.counts["duplicates"] == 1


def test_a_renamed_file_is_not_taken_again_and_says_what_it_was(watched: Watched) -> None:
    watched.scan()
    (watched.folder / "b.chk").rename(watched.folder / "c.chk")
    watched.poll()
    watched.now += 6
    (found,) = watched.provider.poll()
    assert (found.name, found.was) == ("c.chk", "b.chk")
    assert watched.found() == []


def test_files_and_folders_that_vanish_are_passed_over(watched: Watched) -> None:
    names = watched.provider.scan()
    shutil.rmtree(watched.folder / "x")
    assert watched.provider.take(names[1]) is None
    write(watched.folder / "c.chk", [3])
    assert watched.poll() == []
    (watched.folder / "c.chk").unlink()
    assert watched.found() == []
    shutil.rmtree(watched.folder)
    assert watched.found() == []
    assert watched.provider.counts["vanished"] == 1
    assert watched.provider.deleted() == []  # the whole folder is away, which may pass
    write(watched.folder / "d.chk", [4])
    assert watched.found() == ["d.chk"]


def test_a_missing_directory_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="expected a directory of chunk files, got none"):
        FilePathProvider(tmp_path / "nothing")
    with pytest.raises(PlanError, match="watch to be one of"):
        FilePathProvider(tmp_path, watch="sometimes")  # pyright: ignore[reportArgumentType]


class Event:
    def __init__(self, kind: str, path: Path, to: Path | None = None, folder: bool = False) -> None:
        self.event_type, self.src_path, self.dest_path, self.is_directory = kind, str(path), str(to), folder


class Native(Watched):
    """As if the system told of changes: events are handed in by hand."""

    class Observer:
        def is_alive(self) -> bool:
            return True

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.provider.scan()
        self.provider.mode, self.provider._observer = "native", self.Observer()

    def hear(self, kind: str, name: str, to: str | None = None, folder: bool = False) -> None:
        path = self.folder / name
        self.provider._heard(Event(kind, path, None if to is None else self.folder / to, folder))


def test_files_that_were_closed_or_moved_in_are_taken_at_once_in_the_order_of_the_events(tmp_path: Path) -> None:
    native = Native(tmp_path)
    for name in ("z.chk", "a.chk"):
        write(tmp_path / name, [ord(name[0])])
    native.hear("closed", "z.chk")
    native.hear("moved", ".a.chk.partial", to="a.chk")
    native.hear("moved", "a.chk", to=".a.chk.partial")
    native.hear("closed", ".b.chk")
    assert native.poll(seconds=0) == ["z.chk", "a.chk"]


def test_a_file_that_was_created_but_never_closed_as_a_hard_link_is_taken_at_the_second_look(tmp_path: Path) -> None:
    native = Native(tmp_path)
    write(tmp_path / "a.chk", [1])
    native.hear("created", "a.chk")
    assert native.poll(seconds=0) == []
    assert native.poll(seconds=2) == ["a.chk"]


def test_a_file_that_was_deleted_meanwhile_and_a_folder_that_came_and_went_are_nothing(tmp_path: Path) -> None:
    native = Native(tmp_path)
    native.hear("created", "a.chk")
    native.hear("closed", "a.chk")
    native.hear("deleted", "a.chk")
    native.hear("created", "folder", folder=True)
    native.hear("deleted", "folder", folder=True)
    assert native.found() == []


def test_what_a_folder_held_before_it_was_watched_is_found(tmp_path: Path) -> None:
    native = Native(tmp_path)
    write(tmp_path / "folder" / "a.chk", [1])
    native.hear("created", "folder", folder=True)
    assert native.found() == ["folder/a.chk"]


def test_events_that_were_lost_lead_to_a_look_at_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVENTS", 3)
    native = Native(tmp_path)
    for i in range(9):
        write(tmp_path / f"{i}.chk", [i])
        native.hear("closed", f"{i}.chk")
    assert sorted([*native.poll(seconds=0), *native.poll(seconds=2)]) == [f"{i}.chk" for i in range(9)]
    assert native.provider.counts["lost_events"] == 1


def test_events_that_never_came_are_made_up_for_by_a_look_every_minute(tmp_path: Path) -> None:
    native = Native(tmp_path)
    write(tmp_path / "a.chk", [1])
    assert native.poll(seconds=59) == []
    assert native.poll(seconds=1) == []
    assert native.poll(seconds=2) == ["a.chk"]


def test_a_watch_that_ends_is_replaced_by_polling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native = Native(tmp_path)
    monkeypatch.setattr(Native.Observer, "is_alive", lambda self: False)
    write(tmp_path / "a.chk", [1])
    assert native.found() == ["a.chk"]
    assert (native.provider.mode, native.provider.why) == ("poll", "the thread that watches ended")


def test_where_nothing_can_be_watched_the_directory_is_polled_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str, extra: str, distribution: str) -> Any:
        raise MissingExtraError(f"{name} is not installed; install it with: pip install '{distribution}[{extra}]'")

    monkeypatch.setattr(module, "require", missing)
    watched = Watched(tmp_path, watch="auto")
    watched.scan()
    assert watched.provider.mode == "poll"
    assert "penstock-live[watch]" in watched.provider.why
    write(tmp_path / "a.chk", [1])
    assert watched.found() == ["a.chk"]
    with pytest.raises(MissingExtraError):
        Watched(tmp_path, watch="native").scan()


def test_the_system_tells_of_files_that_were_moved_in(tmp_path: Path) -> None:
    """With the library that watches, as it is: the one test here that waits, for an event."""
    provider = FilePathProvider(tmp_path, watch="native")
    assert provider.scan() == []
    try:
        write(tmp_path / "a.chk", [1])
        found: list[str] = []
        for _ in range(600):
            provider.wait(0.1)
            found += [file.name for file in provider.poll()]
            if found:
                break
        assert found == ["a.chk"]
        assert provider.mode == "native"
    finally:
        provider.close()
    assert provider.poll() == []
