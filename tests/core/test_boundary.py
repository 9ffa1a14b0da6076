"""Whatever a parser or a state raises has one of our classes, with path and place; what is not the data's passes."""

from __future__ import annotations

import errno
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.blocks import BlockIterator
from penstock.core.boundary import is_of_data, parsing
from penstock.core.columns import Columns
from penstock.core.selection import Selection
from penstock.core.spec import Field, Spec
from penstock.errors import (
    ExpiredRowError,
    FormatError,
    MissingExtraError,
    SpecError,
    StateError,
    UnknownFormatError,
    UnsafeDataError,
)
from penstock.formats.base import format as registry
from penstock.formats.base.format import Format
from penstock.formats.base.source import Source
from penstock.formats.records import RecordSource
from penstock.loading.ticket import Ticket


class BadMagicError(OSError):
    """As libraries raise it."""


OF_DATA = [
    KeyError("shape"),
    AttributeError("'NoneType' object has no attribute 'x'"),
    IndexError("list index out of range"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    RecursionError("maximum recursion depth exceeded"),
    MemoryError(),
    OverflowError("int too large"),
    struct.error("unpack requires a buffer of 4 bytes"),
    zlib.error("Error -3"),
    EOFError(),
    IsADirectoryError(errno.EISDIR, "Is a directory"),
    NotADirectoryError(errno.ENOTDIR, "Not a directory"),
    OSError(errno.EINVAL, "Invalid argument"),
    OSError("Tried reading schema message, was null or length 0"),
    BadMagicError("Not a gzipped file"),
]
NOT_OF_DATA = [
    FileNotFoundError(errno.ENOENT, "No such file"),
    FileNotFoundError("nothing there"),
    PermissionError(errno.EACCES, "Permission denied"),
    OSError(errno.EIO, "Input/output error"),
    TimeoutError(),
    MissingExtraError("h5py is not installed"),
    ImportError("no module"),
    UserWarning("a warning made an error"),
    UnsafeDataError("code"),
    SpecError("columns"),
]


@pytest.mark.parametrize("error", OF_DATA, ids=lambda e: type(e).__name__)
def test_errors_of_the_data_become_format_errors(error: Exception) -> None:
    with pytest.raises(FormatError, match=r"at the header in a\.bin$") as raised, parsing("a.bin", "the header"):
        raise error
    assert raised.value.__cause__ is error
    assert type(error).__name__ in str(raised.value)
    assert (raised.value.path, raised.value.where) == ("a.bin", "the header")


@pytest.mark.parametrize("error", NOT_OF_DATA, ids=lambda e: type(e).__name__)
def test_errors_of_anything_else_pass(error: Exception) -> None:
    assert not is_of_data(error)
    with pytest.raises(type(error)) as raised, parsing("a.bin"):
        raise error
    assert raised.value is error


def test_interrupts_pass() -> None:
    with pytest.raises(KeyboardInterrupt), parsing("a.bin"):
        raise KeyboardInterrupt


def test_errors_get_the_path_that_they_lack() -> None:
    with pytest.raises(FormatError, match=r"^bad bytes - at byte 7 in a\.bin$"), parsing("a.bin"):
        raise FormatError("bad bytes", where="byte 7")
    with pytest.raises(FormatError, match=r"in inner\.bin$"), parsing("a.bin"):
        raise FormatError("bad bytes", path="inner.bin")
    with pytest.raises(OSError, match=r"Input/output error: 'a\.bin'"), parsing("a.bin"):
        raise OSError(errno.EIO, "Input/output error")


def test_quotes_of_the_input_are_cut() -> None:
    with pytest.raises(FormatError) as raised, parsing("a.bin"):
        raise ValueError("x" * 100_000)
    assert len(str(raised.value)) < 500


class Broken(Source):
    """A third party's source: whatever it reads raises `error`."""

    error: Exception = KeyError("inner")

    @property
    def offsets(self) -> Any:
        return np.array([0, 2, 5])

    @property
    def spec(self) -> Spec:
        return Spec({"x": Field(np.dtype("f8")), "words": Field(np.dtype("u1"), (), "episode", "text")})

    @property
    def fingerprint(self) -> str:
        return "broken"

    @property
    def metadata(self) -> Any:
        raise self.error

    def read_array(self, column: str, selection: Selection, out: Any) -> None:
        raise self.error

    def read_ragged(self, column: str, selection: Selection) -> Any:
        raise self.error

    def episode_metadata(self, episodes: Any) -> Any:
        raise self.error


class BrokenFormat(Format):
    """A third party's format."""

    name, description = "broken", "for tests"
    error: Exception = KeyError("inner")

    def recognises(self, path: Path) -> bool:
        raise self.error

    def open(self, path: Path, **options: Any) -> Source:
        return self.opened(**options)

    def opened(self, *, level: int = 0) -> Source:
        if level == 2:
            raise TypeError(f"expected level 0 or 1, got {level}")
        if level == 1:
            raise self.error
        return Broken()

    def append(self, path: Path, **options: Any) -> Any:
        raise self.error

    def check(self, path: Path) -> Any:
        yield registry.Finding("torn-tail", "here", "one")
        raise self.error


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> BrokenFormat:
    entry = BrokenFormat()
    monkeypatch.setattr(registry, "available", lambda: {"broken": entry})
    return entry


def test_a_format_of_a_third_party_is_guarded(tmp_path: Path, broken: BrokenFormat) -> None:
    for act in (lambda: broken.open(tmp_path, level=1), lambda: broken.append(tmp_path)):
        with pytest.raises(FormatError, match="KeyError: 'inner'") as raised:
            act()
        assert raised.value.path == tmp_path
    findings = broken.check(tmp_path)
    assert next(findings).where == "here"
    with pytest.raises(FormatError, match="KeyError: 'inner'"):
        next(findings)


def test_wrong_options_stay_type_errors(tmp_path: Path, broken: BrokenFormat) -> None:
    with pytest.raises(penstock.ArgumentError, match="the format 'broken' has no option 'speed'"):
        penstock.open(tmp_path, format="broken", speed=2)
    with pytest.raises(TypeError, match="expected level 0 or 1"):
        penstock.open(tmp_path, format="broken", level=2)


def test_a_recogniser_that_fails_is_named_if_nothing_else_knows_the_data(tmp_path: Path, broken: BrokenFormat) -> None:
    with pytest.raises(UnknownFormatError, match=r"broken could not look at it: .*KeyError"):
        penstock.open(tmp_path)


def test_a_source_is_guarded_with_path_and_column(tmp_path: Path, broken: BrokenFormat) -> None:
    source = penstock.open(tmp_path, format="broken").source
    one = np.ones(1, np.int64)
    chosen = Selection(one * 0, one, one, one * 0, (1, 1))
    reads = {
        "x": lambda: source.read(["x"], chosen),
        "words": lambda: source.read(["words"], chosen),
        None: lambda: source.episode_metadata([0]),
    }
    for where, read in reads.items():
        with pytest.raises(FormatError, match="KeyError: 'inner'") as raised:
            read()
        assert (raised.value.path, raised.value.where) == (tmp_path, where)
    with pytest.raises(FormatError, match="at x in"):
        source.episode(0)
    with pytest.raises(FormatError):
        _ = source.metadata


def test_mistakes_of_the_caller_stay_what_they_are(tmp_path: Path, broken: BrokenFormat) -> None:
    source = penstock.open(tmp_path, format="broken").source
    one = np.ones(1, np.int64)
    inside, outside = (Selection(one * 0, one * start, one, one * 0, (1, 1)) for start in (0, 9))
    with pytest.raises(KeyError, match="nothing"):
        source.read_array("nothing", inside, np.zeros(1))
    with pytest.raises(KeyError):
        source.read_ragged("x", inside)
    with pytest.raises(ExpiredRowError):
        source.read_array("x", outside, np.zeros(1))
    with pytest.raises(KeyError):
        source.episode_metadata([7])
    with pytest.raises(IndexError):
        source.episode(2)
    with pytest.raises(TypeError):
        source.read_array("x")  # type: ignore[call-arg]


def test_functions_of_the_user_raise_what_they_raise() -> None:
    class Records(list[Any]):
        def __getitem__(self, i: Any) -> Any:
            if i == 20:
                raise AttributeError("mine")
            return {"x": i}

    source = RecordSource(Records(range(30)))
    with pytest.raises(AttributeError, match="mine"):
        source.episode(20)


def numbers() -> penstock.MapDataset:
    return penstock.from_arrays({"x": np.arange(6)}, lengths=[6]).steps()


HUGE: Any = 1 << 80
ODD: list[Any] = [None, 5.5, "x", [], {}, [[[]]], {"position": []}, float("nan"), HUGE, -1, "\ud800"]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_states_of_any_kind_are_state_errors(odd: Any) -> None:
    loader = numbers().loader(batch_size=4, threads=0)
    batched = penstock.IterDataset.of(numbers(), 2).rebatch(3).loader(threads=0)
    next(iter(batched))
    for taker in (loader, batched):
        good = taker.state_dict()
        for name in ("position", "skipped", "upstream", "offset", "fingerprint"):
            late = name == "offset" and odd == HUGE  # how long the block is shows when it is read
            if name in good and odd != good[name] and not late:
                with pytest.raises(StateError):
                    taker.load_state_dict({**good, name: odd})
        with pytest.raises(StateError):
            taker.load_state_dict(odd)
    with pytest.raises(StateError):
        Ticket.parse(odd)
    with pytest.raises(StateError):
        Ticket(odd, odd, odd)


@pytest.mark.parametrize("epoch", [[0, 5], [1, 1 << 61], [1 << 80, 3], [1, 50], [-1, 0], [1], None, "x"])
def test_an_epoch_that_cannot_begin_there_is_refused_and_leaves_no_trace(epoch: Any) -> None:
    data = penstock.from_arrays({"x": np.arange(60)}, lengths=[10, 20, 5, 25]).sequences()

    def fresh() -> penstock.Loader:
        return packed.loader(batch_size=1, threads=0)

    packed = data.shuffle(seed=1).pack(30, repack=True)
    taken = fresh()
    first = [batch["x"].tolist() for batch in taken]
    good = taken.state_dict()
    if epoch is not None:
        with pytest.raises(StateError):
            fresh().load_state_dict({**good, "epoch": epoch, "position": 2})
    again = fresh()
    assert [batch["x"].tolist() for batch in again] == first
    again.load_state_dict(good)
    assert again.state_dict() == good


def test_a_wrong_argument_of_loading_stays_a_type_error() -> None:
    with pytest.raises(TypeError, match="speed"):
        numbers().loader(batch_size=4).load_state_dict({}, speed=3)  # type: ignore[call-arg]


def test_a_function_that_fails_while_a_state_is_resumed_is_not_blamed_on_the_state() -> None:
    broken: list[bool] = []

    def double(columns: Columns) -> dict[str, Any]:
        if broken:
            raise AttributeError("mine")
        return {"x": columns["x"] * 2}

    data = penstock.IterDataset.of(numbers(), 4).flat_map(double).rebatch(3)
    iterator = iter(data)
    assert next(iterator)["x"].tolist() == [0, 2, 4]
    state = iterator.state_dict()
    again = iter(data)
    again.load_state_dict(state)
    assert again.state_dict() == state
    assert next(again)["x"].tolist() == [6, 8, 10]
    broken.append(True)
    again = iter(data)
    again.load_state_dict(state)
    with pytest.raises(AttributeError, match="mine"):
        next(again)


def test_an_iterator_of_the_user_is_guarded() -> None:
    class Walk(BlockIterator):
        def __next__(self) -> Columns:
            raise StopIteration

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.at = state["at"]

    with pytest.raises(StateError, match="state of a Walk, got one that raises KeyError: 'at'"):
        Walk().load_state_dict({})


def test_warnings_made_errors_pass() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning), parsing("a"):
            warnings.warn("told", UserWarning, stacklevel=1)


def test_a_number_beyond_all_floats_is_infinite_in_the_table() -> None:
    entries = [{"a": 10**400, "b": 1.5}, {"a": -(10**400), "b": 10**400}]
    rows = {"x": np.zeros(2)}
    source = penstock.MemorySource(Spec({"x": Field(np.dtype("f8"))}), rows, np.arange(3), episode_metadata=entries)
    table = source.table()
    assert (table["a"].tolist(), table["b"].tolist()) == ([np.inf, -np.inf], [1.5, np.inf])


def test_a_folder_where_metadata_should_be(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "metadata.json").mkdir(parents=True)
    (data / "episode_0").mkdir()
    with pytest.raises(FormatError):
        penstock.open(tmp_path)
