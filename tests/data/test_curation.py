"""Curations: files that survive kills and forgeries, merges, and what datasets make of them."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.data.curation import Curation, default_path
from penstock.data.dataset import selection_of
from penstock.data.episode_marks import EpisodeMarks
from penstock.errors import ArgumentError, FormatError, PlanError, StateError
from penstock.formats.base.format import named
from tests.cli.conftest import Call, call  # noqa: F401 - a fixture

EPISODES = 5
TAGS = ["good", "slow", "\u00fcber", 'a"b', "slip"]

spans = st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(TAGS)).map(
    lambda span: (min(span[:2]), max(span[:2]), span[2])
)
marks = st.builds(
    EpisodeMarks,
    tags=st.frozensets(st.sampled_from(TAGS)),
    rating=st.none() | st.integers(1, 5),
    excluded=st.none() | st.booleans(),
    note=st.text(max_size=5),
    spans=st.lists(spans, max_size=3),
)
changes = st.lists(st.tuples(st.integers(0, EPISODES - 1), marks), max_size=8)


def memory() -> penstock.EpisodeDataset:
    return penstock.from_arrays({"rewards": np.arange(15.0)}, lengths=[1, 2, 3, 4, 5])


def written(path: Path, lengths: list[int], *, append: bool = False) -> Path:
    source = penstock.from_arrays({"rewards": np.arange(float(sum(lengths)))}, lengths=lengths)
    columns = named("columns")
    with columns.append(path) if append else columns.create(path, source.spec) as writer:
        for episode in source:
            writer.write(episode)
    return path


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return written(tmp_path / "demo", [1, 2, 3, 4, 5])


def edited(path: Path, **chosen: EpisodeMarks) -> Path:
    """The curation next to a dataset, after changes such as `e3=EpisodeMarks(...)`."""
    file = default_path(path)
    with penstock.open(path) as data, Curation.edit(file, data.source) as curation:
        for name, each in chosen.items():
            curation[int(name[1:])] = each
    return file


@given(changes)
@settings(max_examples=25, deadline=None)
def test_random_changes_are_what_a_dict_says(tmp_path_factory: pytest.TempPathFactory, each: Any) -> None:
    data, model = memory(), dict.fromkeys(range(EPISODES), EpisodeMarks())
    file = tmp_path_factory.mktemp("curation") / "c.json"
    for episode, changed in each:
        with Curation.edit(file, data.source) as curation:
            assert curation[episode] == model[episode]
            curation[episode] = model[episode] = changed
    curation = Curation.read(file) if each else Curation.of(data.source)
    assert {e: curation[e] for e in range(EPISODES)} == model
    assert [e for e, _ in curation.marks()] == [e for e in model if model[e] != EpisodeMarks()]
    curated = data.apply(curation)
    kept = [e for e in model if not model[e].excluded]
    assert curated.table()["id"].tolist() == kept
    np.testing.assert_array_equal(curated.table()["rating"], [model[e].rating or np.nan for e in kept])
    for tag in TAGS:
        has = curated.filter(f"{tag!r} in tags").episodes.index.tolist()
        assert has == [e for e in kept if tag in model[e].tags]
        without = curated.filter(f"{tag!r} not in spans or {tag!r} in tags").episodes.index.tolist()
        assert without == [e for e in kept if tag in model[e].tags or tag not in {s[2] for s in model[e].spans}]
    assert curated.filter("rating >= 3").episodes.index.tolist() == [e for e in kept if (model[e].rating or 0) >= 3]
    again = data[kept[::-1]].apply(curation)
    assert again.table()["id"].tolist() == kept[::-1]


@given(st.lists(changes, min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_random_merges(each: Any) -> None:
    curations = [Curation("f", EPISODES, dict(changed)) for changed in each]
    merged, conflicts = Curation.merge(curations)
    named_conflicts = {(conflict.episode, conflict.mark): conflict.values for conflict in conflicts}
    for e in range(EPISODES):
        mine = [curation[e] for curation in curations]
        assert merged[e].tags == {tag for one in mine for tag in one.tags}
        assert set(merged[e].spans) == {span for one in mine for span in one.spans}
        for mark in ("rating", "excluded"):
            said = tuple(value for one in mine if (value := getattr(one, mark)) is not None)
            assert getattr(merged[e], mark) == (said[-1] if said else None)
            assert named_conflicts.get((e, mark)) == (said if len(set(said)) > 1 else None)
        assert set(merged[e].note.split("\n")) >= {line for one in mine for line in one.note.split("\n") if one.note}
    assert Curation.merge([merged])[0] == merged


def test_a_merge_waits_for_marks_that_are_being_set(dataset: Path, tmp_path: Path) -> None:
    """The viewer changes the file that others' marks are merged into."""
    mine, others = tmp_path / "mine.json", tmp_path / "others.json"
    with penstock.open(dataset) as data:
        for path, tag in ((mine, "mine"), (others, "others")):
            with Curation.edit(path, data.source) as curation:
                curation[0] = EpisodeMarks(tags={tag})
        merging = threading.Thread(target=Curation.merge_files, args=([mine, others], mine), kwargs={"overwrite": True})
        with Curation.edit(mine, data.source) as curation:
            merging.start()
            curation[1] = EpisodeMarks(tags={"late"})
        merging.join()
    merged = Curation.read(mine)
    assert merged[0].tags == {"mine", "others"}
    assert merged[1].tags == {"late"}
    with pytest.raises(FileExistsError):
        Curation.merge_files([mine, others], mine)


def test_merges_of_other_datasets_are_refused(dataset: Path) -> None:
    with pytest.raises(ArgumentError, match="got none"):
        Curation.merge([])
    earlier = Curation.read(edited(dataset, e4=EpisodeMarks(rating=1)))
    written(dataset, [6], append=True)
    with penstock.open(dataset) as data:
        later = Curation.of(data.source)
        later[5] = EpisodeMarks(tags={"new"})
        with pytest.raises(StateError, match="source="):
            Curation.merge([earlier, later])
        merged, conflicts = Curation.merge([earlier, later], data.source)
        assert (merged.episodes, merged[4].rating, merged[5].tags, conflicts) == (6, 1, {"new"}, ())
        with pytest.raises(StateError, match="made for"):
            Curation.merge([Curation("other", 5), later], data.source)


def test_changed_datasets_are_refused_and_appended_ones_accepted(dataset: Path, tmp_path: Path) -> None:
    file = edited(dataset, e1=EpisodeMarks(excluded=True))
    before = file.read_bytes()
    written(dataset, [6, 7], append=True)
    with penstock.open(dataset, curation=file) as data:
        assert data.table()["id"].tolist() == [0, 2, 3, 4, 5, 6]
        assert selection_of(data).as_of(5).episodes.table()["id"].tolist() == [0, 2, 3, 4]  # type: ignore[union-attr]
        written(dataset, [8], append=True)
        assert data.refresh().table()["id"].tolist() == [0, 2, 3, 4, 5, 6, 7]
    other = written(tmp_path / "other", [2, 2, 3, 4, 5])
    fewer = written(tmp_path / "fewer", [1, 2, 3])
    for path, said in ((other, "first episodes are others"), (fewer, "episodes were removed")):
        with pytest.raises(StateError, match=said):
            penstock.open(path, curation=file)
        with pytest.raises(StateError, match=said), penstock.open(path) as data, Curation.edit(file, data.source):
            pytest.fail("not reached")
    assert file.read_bytes() == before
    edited(dataset, e6=EpisodeMarks(rating=3))
    assert (Curation.read(file).episodes, Curation.read(file)[1].excluded) == (8, True)


def test_marks_but_not_notes_are_in_the_fingerprint(dataset: Path) -> None:
    base = EpisodeMarks(tags={"good"}, rating=3, spans=[(0, 1, "slip")])
    with penstock.open(dataset) as data:

        def fingerprint(marks: EpisodeMarks, *, later: bool = False) -> str:
            curation = Curation.of(data.source)
            curation[1] = marks
            curation[4] = EpisodeMarks(rating=1 if later else None)
            return data[[0, 1, 2]].apply(curation).windows(1).shuffle(seed=0).fingerprint

        first = fingerprint(base)
        assert fingerprint(base) == first == fingerprint(replace(base, note="why")) == fingerprint(base, later=True)
        others = {
            data[[0, 1, 2]].windows(1).shuffle(seed=0).fingerprint,
            fingerprint(replace(base, tags=frozenset({"bad"}))),
            fingerprint(replace(base, rating=4)),
            fingerprint(replace(base, excluded=True)),
            fingerprint(replace(base, excluded=False)),
            fingerprint(replace(base, spans=())),
        }
        assert len(others - {first}) == 6


def test_a_saved_run_is_refused_with_other_marks(dataset: Path) -> None:
    def loader(file: Path) -> penstock.Loader:
        return penstock.open(dataset, curation=file).steps().shuffle(seed=1).loader(batch_size=2, threads=0)

    first = loader(edited(dataset, e0=EpisodeMarks(excluded=True)))
    batches = iter(first)
    next(batches)
    state = first.state_dict()
    same = loader(default_path(dataset))
    same.load_state_dict(state)
    np.testing.assert_array_equal(next(iter(same))["rewards"], next(batches)["rewards"])
    changed = loader(edited(dataset, e1=EpisodeMarks(rating=5)))
    with pytest.raises(StateError):
        changed.load_state_dict(state)


def test_derived_columns_keep_the_curation(dataset: Path) -> None:
    with penstock.open(dataset, curation=edited(dataset, e1=EpisodeMarks(excluded=True))) as data:
        longer = data.with_column("twice", lambda episode: episode.rewards * 2)
        assert longer.table()["id"].tolist() == [0, 2, 3, 4]
        again = penstock.EpisodeDataset(longer.source).apply(Curation.read(default_path(dataset)))
        assert again[1].columns["twice"].tolist() == [6.0, 8.0, 10.0]
        assert "Curation(1 of 5 episodes marked)" in selection_of(data).chain[1]


def test_convert_leaves_out_what_is_excluded(dataset: Path, tmp_path: Path, call: Call) -> None:  # noqa: F811
    file = edited(dataset, e1=EpisodeMarks(excluded=True), e2=EpisodeMarks(tags={"good"}))
    with penstock.open(dataset, curation=file) as data:
        assert penstock.convert(data, tmp_path / "one").episodes == 4
    said = call("convert", dataset, tmp_path / "two", "--curation", file, "--where", "'good' in tags", "--json").json
    assert said["episodes"] == 1
    with penstock.open(tmp_path / "two") as data:
        assert data[0].rewards.tolist() == [3.0, 4.0, 5.0]


def test_questions_without_a_curation() -> None:
    data = memory()
    with pytest.raises(PlanError, match="curation="):
        data.filter("'good' in tags")
    curated = data.apply(Curation.of(data.source))
    assert len(curated.filter("'good' not in tags")) == EPISODES
    assert len(curated.filter("'good' in tags")) == 0
    for wrong in ("'good' in words", "'good' in 'tags'", "1 in tags", "'a' < tags", "'a' in tags in tags", "tags > 1"):
        with pytest.raises(PlanError):
            curated.filter(wrong)
    with pytest.raises(PlanError, match="rating"):
        curated.apply(Curation.of(data.source)).table()


@pytest.mark.parametrize("moment", ["while editing", "before the file is replaced", "after the file is replaced"])
def test_a_killed_writer_leaves_one_state(dataset: Path, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.files import replace as replacing

    file = edited(dataset, e0=EpisodeMarks(rating=1))
    child = os.fork()
    if child == 0:
        move = replacing.move

        def killed(*given: Any, **options: Any) -> None:
            if moment.startswith("after"):
                move(*given, **options)
            os._exit(9)

        replacing.move = killed  # type: ignore[assignment]
        with penstock.open(dataset) as data, Curation.edit(file, data.source) as curation:
            curation[0] = EpisodeMarks(rating=2)
            if moment.startswith("while"):
                os._exit(9)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert Curation.read(file)[0].rating == (2 if moment.startswith("after") else 1)
    edited(dataset, e1=EpisodeMarks(rating=4))  # the lock is free
    assert Curation.read(file)[1].rating == 4


def test_a_failed_change_changes_nothing(dataset: Path) -> None:
    file = edited(dataset, e0=EpisodeMarks(rating=1))
    before = file.read_bytes()
    with penstock.open(dataset) as data, pytest.raises(ArgumentError), Curation.edit(file, data.source) as curation:
        curation[0], curation[5] = EpisodeMarks(rating=2), EpisodeMarks()
    assert file.read_bytes() == before


def test_changes_from_several_threads_are_all_kept(dataset: Path) -> None:
    link = dataset.parent / "link.json"
    link.symlink_to(default_path(dataset))
    with penstock.open(dataset) as data:

        def change(number: int) -> None:
            for i in range(10):
                with Curation.edit(link if number % 2 else default_path(dataset), data.source) as curation:
                    curation[number] = replace(curation[number], tags=curation[number].tags | {f"t{i}"})

        threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    curation = Curation.read(default_path(dataset))
    assert [len(curation[number].tags) for number in range(5)] == [10, 10, 10, 10, 0]
    assert link.is_symlink()


@pytest.mark.parametrize(
    "wrong",
    [
        {"tags": "good"},
        {"tags": ["two words"]},
        {"tags": ["a/b"]},
        {"tags": [""]},
        {"tags": ["x" * 65]},
        {"tags": [3]},
        {"tags": ["\ud800"]},
        {"rating": 0},
        {"rating": 6},
        {"rating": True},
        {"rating": 2.5},
        {"excluded": 1},
        {"excluded": "yes"},
        {"note": 3},
        {"note": "x" * 10_001},
        {"note": "\udfff"},
        {"spans": [[3, 2, "slip"]]},
        {"spans": [[-1, 2, "slip"]]},
        {"spans": [[0, 2]]},
        {"spans": [[0, 1e300, "slip"]]},
        {"spans": {"0": 1}},
        {"colour": "red"},
        [],
        None,
    ],
)
def test_forged_marks_are_refused(tmp_path: Path, wrong: Any) -> None:
    file = tmp_path / "c.json"
    stated = {"penstock": "curation", "version": 1, "fingerprint": "f", "episodes": 2, "marks": {"1": wrong}}
    file.write_text(json.dumps(stated))
    with pytest.raises(FormatError, match=r"episode 1: expected .* in .*c\.json"):
        Curation.read(file)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b"{}",
        b"1e999",
        b'{"penstock": "curation"}',
        b'{"penstock": "curation", "version": 2, "fingerprint": "f", "episodes": 1, "marks": {}}',
        b'{"penstock": "curation", "version": true, "fingerprint": "f", "episodes": 1, "marks": {}}',
        b'{"penstock": "curation", "version": 1, "fingerprint": 3, "episodes": 1, "marks": {}}',
        b'{"penstock": "curation", "version": 1, "fingerprint": "f", "episodes": -1, "marks": {}}',
        b'{"penstock": "curation", "version": 1, "fingerprint": "f", "episodes": "1", "marks": {}}',
        b'{"penstock": "curation", "version": 1, "fingerprint": "f", "episodes": 1, "marks": []}',
        b'{"penstock": "curation", "version": 1, "fingerprint": "f", "episodes": 1, "marks": {"1": {}}}',
        b'{"penstock": "curation", "version": 1, "fingerprint": "f", "episodes": 1, "marks": {"-0": {}}}',
        b'{"penstock": "curation", "version": 1, "fingerprint": "f", "episodes": 1, "marks": {"00": {}}}',
        b'{"penstock": "curation", "version": 1, "fingerprint": "f", "episodes": 9, "marks": {"\xd9\xa3": {}}}',
    ],
)
def test_forged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "c.json"
    file.write_bytes(content)
    with pytest.raises(FormatError, match=r"expected .*c\.json"):
        Curation.read(file)
    data = memory()
    with pytest.raises(FormatError), Curation.edit(file, data.source):
        pytest.fail("not reached")
    assert file.read_bytes() == content


def test_numbers_are_those_of_the_dataset() -> None:
    curation = Curation("f", 3)
    for wrong in (-1, 3, True, "1", 1.0):
        with pytest.raises(ArgumentError, match="0:3"):
            curation[wrong]  # type: ignore[index]
    curation[np.int64(2)] = EpisodeMarks(rating=np.int64(3))  # type: ignore[arg-type, index]
    assert list(curation.marks()) == [(2, EpisodeMarks(rating=3))]
    copy = curation.copy()
    copy[2] = EpisodeMarks()
    assert (curation[2].rating, copy[2].rating, repr(copy)) == (3, None, "Curation(0 of 3 episodes marked)")
