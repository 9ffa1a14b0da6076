"""The grammar of locations: what a text, a path or a list stands for."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from penstock.errors import ArgumentError, DataError
from penstock.locations.location import Location, Url, output_place
from penstock.locations.patterns import MOST, expand_braces


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.tar", ["a.tar"]),
        ("{08..10}", ["08", "09", "10"]),
        ("{8..10}", ["8", "9", "10"]),
        ("{2..0}", ["2", "1", "0"]),
        ("{-1..1}", ["-1", "0", "1"]),
        ("{0..10..5}", ["0", "5", "10"]),
        ("{a,b}-{0..1}", ["a-0", "a-1", "b-0", "b-1"]),
        ("x{a,{b,c}d}", ["xa", "xbd", "xcd"]),
        ("{,x}y", ["y", "xy"]),
        ("{x}{}{", ["{x}{}{"]),
        ("a}{1,2", ["a}{1,2"]),
    ],
)
def test_braces_are_those_of_a_shell(pattern: str, names: list[str]) -> None:
    assert expand_braces(pattern) == names


@pytest.mark.parametrize("pattern", [f"{{0..{MOST}}}", "{0..9999}{0..9999}", "{0..99999999999999999999}"])
def test_a_pattern_of_too_many_names_is_refused(pattern: str) -> None:
    with pytest.raises(DataError, match="at most 1,048,576 names"):
        expand_braces(pattern)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("s-10.tar", "s-2.tar", ".s-3.tar", "{odd}.tar", "odd[1].tar", "deep/er/x.tar"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("given", "places"),
    [
        ("s-*.tar", ["s-2.tar", "s-10.tar"]),
        ("s-?.tar", ["s-2.tar"]),
        ("**/x.tar", ["deep/er/x.tar"]),
        (Path("s-*.tar"), ["s-2.tar", "s-10.tar"]),
        (["s-10.tar", "s-{2,1*}.tar"], ["s-10.tar", "s-2.tar", "s-10.tar"]),
        ("{odd}.tar", ["{odd}.tar"]),
        ("odd[1].tar", ["odd[1].tar"]),
        ("odd[[]1].tar", ["odd[1].tar"]),
        ("file:s-2.tar", ["s-2.tar"]),
        ("file:s-*.tar", ["s-2.tar", "s-10.tar"]),
        ("file:odd%5B1%5D.tar", ["odd[1].tar"]),
        ("D4RL/door/human-v2", ["D4RL/door/human-v2"]),
        ("folder:train", ["folder:train"]),
        ("c:/x", ["c:/x"]),
    ],
)
def test_local_names(folder: Path, given: object, places: list[str]) -> None:
    assert Location.of(given).places == tuple(map(Path, places))  # type: ignore[arg-type]


def test_absolute_names(folder: Path) -> None:
    expected = (folder / "s-2.tar",)
    for given in (folder / "s-2.tar", (folder / "s-2.tar").as_uri(), f"file://localhost{folder}/s-2.tar", "~/s-2.tar"):
        assert Location.of(given).places == expected


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("pipe:cat a.tar", DataError, "runs no commands; save the output to a file"),
        ("no-*.tar", FileNotFoundError, r"nothing matches the pattern no-\*.tar"),
        ("s-{2,9*}.tar", FileNotFoundError, r"nothing matches the pattern s-9\*.tar"),
        ("file://host/a.tar", DataError, "the host 'host'"),
        ([], DataError, "an empty list"),
        ("", DataError, "an empty text"),
        ([3], ArgumentError, "got 3"),
        (Path("s3://bucket/a.tar"), DataError, "keeps one slash of s3://"),
        ("s3:/bucket/a.tar", DataError, "expected the URL s3://bucket/a.tar as text, got one slash"),
    ],
)
def test_names_that_are_refused(folder: Path, given: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Location.of(given)  # type: ignore[arg-type]


def test_a_target_with_a_lost_slash_is_refused(folder: Path) -> None:
    for given in ("s3:/bucket/new", Path("s3://bucket/new")):
        with pytest.raises(DataError, match="expected the URL s3://bucket/new as text"):
            output_place(given)
    assert output_place("file:/a/new") == Path("/a/new")
    assert output_place("a:b") == Path("a:b")
    Path("s3:").mkdir()
    assert output_place("s3:/new") == Path("s3:/new")


def test_urls_print_without_credentials() -> None:
    secret = "https://me:secret@host/{a,b}.tar?signature=secret"
    location = Location.of([secret, "zip://x::s3://key:secret@bucket/b.zip"], {"key": "secret", "anon": False})
    assert [place.full for place in location.places if isinstance(place, Url)] == [
        "https://me:secret@host/a.tar?signature=secret",
        "https://me:secret@host/b.tar?signature=secret",
        "zip://x::s3://key:secret@bucket/b.zip",
    ]
    for text in (str(location), repr(location), str(location.places), f"{location.places[2]}"):
        assert "secret" not in text
    assert str(location.places[0]) == "https://host/a.tar"
    assert pickle.loads(pickle.dumps(location)) == location


def test_storage_options_are_for_urls(folder: Path) -> None:
    with pytest.raises(ArgumentError, match=r"storage_options with a URL, got \['anon'\]"):
        Location.of("s-2.tar", {"anon": True})
    location = Location.of("s3://bucket/a", {"anon": True})
    assert Location.of(location) is location
    with pytest.raises(ArgumentError, match="got them with a Location"):
        Location.of(location, {"anon": True})
