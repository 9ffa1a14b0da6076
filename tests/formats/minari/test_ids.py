from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DataError, UnsafeDataError
from penstock.formats.minari import ids

# Accepted and refused as Minari 0.5.4's own regular expression does (measured).
ACCEPTED = ["x-v0", "cartpole-test-v0", "ab/x-v0", "ab//cd/x-v0", "a_b-c/d-e-v12", "-v-v1", "naïve/x-v3"]
REFUSED = ["", "a/x-v0", "ab/x-v0/", "a.b-v0", "ab/x y-v0", "/x-v0", "../x-v0", "ab/../x-v0", "x-v0\n"]


@pytest.mark.parametrize("dataset_id", ACCEPTED)
def test_accepted_ids_survive_a_round_trip(dataset_id):
    assert str(ids.parse(dataset_id)) == dataset_id


@pytest.mark.parametrize("dataset_id", REFUSED)
def test_refused_ids(dataset_id):
    with pytest.raises(DataError, match="expected an id"):
        ids.parse(dataset_id)


def test_a_version_may_be_missing_where_it_is_parsed_but_not_where_it_names_a_directory(tmp_path):
    assert ids.parse("ab/human") == ("ab", "human", None)
    with pytest.raises(DataError, match="with a version"):
        ids.directory("ab/human", tmp_path)


def test_leading_zeros_of_a_version_are_a_number():
    assert ids.parse("x-v00").version == 0


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/../../x", "/etc", "~/x", "a\0b", "c:/x", "..\\x", "a/..", "//"]
)
def test_a_name_never_leaves_the_root(name, tmp_path):
    with pytest.raises(UnsafeDataError):
        ids.inside(name, tmp_path)


def test_a_link_out_of_the_root_is_refused(tmp_path):
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    root.mkdir()
    (root / "door").symlink_to(outside)
    with pytest.raises(UnsafeDataError, match="stay below"):
        ids.inside("door/x-v0", root)


@given(st.text(max_size=30))
def test_whatever_the_text_the_path_stays_below_the_root(text):
    root = Path("/nowhere/root")
    try:
        path = ids.inside(text, root)
    except UnsafeDataError:
        return
    assert path.resolve().is_relative_to(root)
    assert path.resolve() != root


@given(st.from_regex(ids.DATASET_ID, fullmatch=True))
def test_parsing_is_the_inverse_of_generating(dataset_id):
    namespace, name, version = ids.parse(dataset_id)
    assert ids.parse(ids.generate(namespace, name, version)) == (namespace, name, version)


def test_namespaces():
    assert list(ids.hierarchy("ab/cd")) == ["ab", "ab/cd"]
    assert list(ids.hierarchy(None)) == []


def test_the_root_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    assert ids.root() == tmp_path / "root"
    assert not ids.root().exists()
    assert ids.id_of(tmp_path / "root" / "ab" / "x-v0") == "ab/x-v0"
    monkeypatch.delenv("MINARI_DATASETS_PATH")
    assert ids.root() == Path.home() / ".minari" / "datasets"
