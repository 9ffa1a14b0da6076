"""Derived columns: what a function computes from whole episodes is read like a stored column."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.core.episode import Episode
from penstock.core.ragged import Ragged
from penstock.core.spec import Field, Spec
from penstock.data import derived_values
from penstock.data.dataset import selection_of
from penstock.data.derived import DerivedSource
from penstock.data.derived_column import DerivedColumn
from penstock.data.derived_values import MemoryValues, StoredValues
from penstock.errors import ArgumentError, DataError, SpecError
from penstock.formats.base.source import Source
from penstock.formats.columns.writer import ColumnsWriter
from penstock.formats.memory import MemorySource
from penstock.testing.examples import EXAMPLES, Example
from penstock.testing.sources import SourceContract


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("PENSTOCK_CACHE", str(folder))
    return folder


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of few episodes, so that a small dataset has many."""
    monkeypatch.setattr(derived_values, "RANGE_BYTES", 64)
    monkeypatch.setattr(derived_values, "STORED_RANGE_BYTES", 64)


@dataclass(frozen=True)
class Listed:
    """Function that returns what a list has for an episode."""

    values: Sequence[np.ndarray]

    def __call__(self, episode: Episode) -> np.ndarray:
        return self.values[episode.id]


def _ends_with_an_array(example: Any) -> bool:
    fields = list(example.spec.fields.values())
    return len(fields) > 1 and not fields[-1].ragged and any(f.align != "episode" for f in fields[:-1])


class Overlaid(SourceContract):
    """The last column is not stored but computed."""

    examples: ClassVar[Sequence[Example]] = [example for example in EXAMPLES if _ends_with_an_array(example)]
    memory: int | None = None

    def open(self, path: Path, episodes: Sequence[Episode]) -> Source:
        name, field = list(episodes[0].spec.fields.items())[-1]
        fields = {p: f for p, f in episodes[0].spec.fields.items() if p != name}
        spec = Spec(fields, episodes[0].spec.observation_space, episodes[0].spec.action_space)
        stored = [Episode(spec, {p: e.columns[p] for p in fields}, metadata=e.metadata) for e in episodes]
        values = [np.asarray(e.columns[name]) for e in episodes]
        values = [v[0] for v in values] if field.align == "episode" else values
        base = MemorySource.from_episodes(stored)
        column = DerivedColumn.of(base, name, Listed(values), field.align, "1", field.dtype, field.shape)
        return DerivedSource(base, column, self.memory)


class TestInMemory(Overlaid):
    pass


class TestInTheCache(Overlaid):
    memory = 0


def dataset(lengths: Sequence[int], seed: int = 0) -> penstock.EpisodeDataset:
    rng, steps = np.random.default_rng(seed), sum(lengths)
    columns = {
        "observations": rng.normal(size=(steps + len(lengths), 2)).astype("f4"),
        "rewards": rng.integers(-9, 9, steps) / 4,
        "actions": np.arange(steps),
    }
    return penstock.from_arrays(columns, lengths)


def double(episode: Episode) -> np.ndarray:
    return episode.rewards * 2


def norms(episode: Episode) -> np.ndarray:
    return np.abs(episode.observations).sum(axis=1)


def with_stored(data: penstock.EpisodeDataset, name: str, values: np.ndarray) -> penstock.EpisodeDataset:
    """The same dataset with one column more, stored."""
    source = data.source
    every = {path: np.concatenate([np.asarray(e.columns[path]) for e in data]) for path in source.spec}
    return penstock.from_arrays({**every, name: values}, np.diff(source.offsets).tolist())


PLANS: dict[str, Callable[[penstock.EpisodeDataset], penstock.MapDataset]] = {
    "samples": lambda data: data.transitions(),
    "windows": lambda data: data.windows(3).shuffle(1),
    "padded": lambda data: data.windows(4, past=2, pad="repeat", columns={"x": ("double", -1, 2)}),
    "pairs": lambda data: data.pairs(),
    "sequences": lambda data: data.sequences(),
    "packs": lambda data: data.sequences().select_columns("double", "rewards").pack(32).shuffle(3),
    "mixes": lambda data: penstock.mix({"a": data.steps(), "b": data.steps()}, {"a": 2, "b": 1}, stop=40),
    "chosen": lambda data: data.filter("total_steps > 1").split(0.5, 0.5, seed=2)[0].windows(2),
    "shard": lambda data: data.windows(2).shard(1, 2).repeat(2),
}


@pytest.mark.parametrize("memory", [None, 0])
@pytest.mark.parametrize("name", PLANS)
def test_every_plan_reads_a_derived_column_as_a_stored_one(name: str, memory: int | None, small_ranges: None) -> None:
    data = dataset([5, 1, 8, 3, 2, 7, 1, 6])
    stored = with_stored(data, "double", np.concatenate([e.rewards * 2 for e in data]))
    derived = data.with_column("double", double, memory=memory)
    ours, wanted = PLANS[name](derived), PLANS[name](stored)
    assert len(ours) == len(wanted)
    for block in (slice(0, 3), slice(0, len(ours))):
        found, expected = ours[block], wanted[block]
        assert set(found) == set(expected)
        for path in expected:
            np.testing.assert_array_equal(found[path], expected[path], err_msg=path)


@settings(max_examples=30)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(1, 200), st.sampled_from(["step", "boundary"]))
def test_any_lengths_ranges_and_order_of_reads(lengths: list[int], range_bytes: int, align: Any) -> None:
    data = dataset(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derived_values, "RANGE_BYTES", range_bytes)
        derived = data.with_column("x", double if align == "step" else norms, align)
        values = np.concatenate([(double if align == "step" else norms)(e) for e in data])
        rows = derived.source.rows(align)
        for e in np.random.default_rng(0).permutation(len(lengths)).tolist():
            begin, end = rows[e : e + 2].tolist()
            zero = np.zeros(1, np.int64)
            span = penstock.Selection(zero, zero + begin, zero + end - begin, zero, (1, end - begin))
            np.testing.assert_array_equal(derived.source.read(["x"], span)["x"][0], values[begin:end])


def test_a_number_or_a_row_for_each_episode(small_ranges: None) -> None:
    data = dataset([3, 1, 2])
    derived = data.with_column("sum", lambda e: e.rewards.sum(), "episode")
    derived = derived.with_column("mean", lambda e: e.observations.mean(axis=0), "episode")
    sums = [e.rewards.sum() for e in data]
    assert derived.steps()[:]["sum"].tolist() == [sums[0]] * 3 + [sums[1]] + [sums[2]] * 2
    assert derived.source.spec["mean"].shape == (2,)
    assert derived.table()["sum"].tolist() == sums
    assert "mean" not in derived.table()
    assert len(derived.filter("sum >= 0")) == sum(s >= 0 for s in sums)


def test_a_column_can_use_a_derived_column() -> None:
    data = dataset([4, 2]).with_column("double", double)
    derived = data.with_column("more", lambda e: e.columns["double"] + 1)
    assert derived.steps()[:]["more"].tolist() == (data.steps()[:]["rewards"] * 2 + 1).tolist()
    assert selection_of(derived).chain[1:] == (f"with_column('double', {__name__}.double)", repr(derived.source.column))


class Recording(MemorySource):
    """Source that notes what is read."""

    reads: list[str]

    def read_array(self, column: str, selection: Any, out: Any) -> None:
        self.reads.append(column)
        super().read_array(column, selection, out)


def recording(data: penstock.EpisodeDataset) -> penstock.EpisodeDataset:
    source = data.source
    columns = {path: np.concatenate([np.asarray(e.columns[path]) for e in data]) for path in source.spec}
    noted = Recording(source.spec, columns, source.offsets)
    noted.reads = []
    return penstock.EpisodeDataset(noted)


def test_only_the_columns_that_the_function_uses_are_read(small_ranges: None) -> None:
    data = recording(dataset([4, 2, 5, 3]))
    derived = data.with_column("double", lambda e: e.rewards * len(e))
    assert derived.source.base.reads == ["rewards"]
    derived.steps().select_columns("double")[:]
    assert set(derived.source.base.reads) == {"rewards"}


def test_a_function_may_use_other_columns_for_some_episodes(small_ranges: None) -> None:
    data = dataset([2, 3, 1])
    derived = data.with_column("x", lambda e: e.rewards if e.id == 0 else e.actions * 1.0)
    rewards, actions = (data.steps()[:][path] for path in ("rewards", "actions"))
    assert derived.steps()[:]["x"].tolist() == [*rewards[:2], *actions[2:]]


def test_values_are_computed_once_and_only_where_they_are_read(small_ranges: None) -> None:
    calls: list[int] = []

    def counted(episode: Episode) -> np.ndarray:
        calls.append(episode.id)
        return episode.rewards

    derived = dataset([4] * 12).with_column("x", counted, version=1)
    assert calls == [0]
    derived[7]
    assert calls == [0, 7]
    derived[[3]].steps()[:]
    assert sorted(calls[2:]) == [3]
    samples = derived.steps()
    samples[:], samples[:]
    assert sorted(calls[3:]) == [e for e in range(12) if e != 3]
    derived[7], list(derived)
    assert len(calls) == 14


def test_arrays_of_a_function_cannot_be_changed() -> None:
    def change(episode: Episode) -> np.ndarray:
        episode.rewards[:] = 0
        return episode.rewards

    with pytest.raises(DataError, match="read-only - at episode 0"):
        dataset([2]).with_column("x", change)


@pytest.mark.parametrize(
    ("fn", "align", "message"),
    [
        (lambda e: e.rewards[:-1], "step", r"expected 3 rows of 'x' \(one for each step, align='step'\), got 2"),
        (lambda e: e.rewards, "boundary", r"expected 4 rows of 'x' .*one more.* got 3"),
        (lambda e: 1.0, "step", "expected 3 rows of 'x' .* got a single number"),
        (lambda e: [[1], [1, 2], [3]], "step", "array of numbers with rows of one shape"),
        (lambda e: Ragged.from_rows([[1], [1, 2], [3]]), "step", "rows of one shape .* got Ragged"),
        (lambda e: [None] * 3, "step", "array of numbers"),
    ],
)
def test_results_that_do_not_fit_are_refused_at_once(fn: Any, align: Any, message: str) -> None:
    with pytest.raises(SpecError, match=f"{message}.* - at episode 0"):
        dataset([3, 2]).with_column("x", fn, align)


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (lambda e: e.rewards[: 3 - e.id], SpecError, "expected 3 rows of 'x' .* got 2 - at episode 1"),
        (lambda e: e.rewards.astype("f4" if e.id else "f8"), SpecError, "as float64, got float32 - at episode 1"),
        (lambda e: np.zeros((3, 1 + e.id)), SpecError, r"rows of shape \(1,\), got \(2,\) - at episode 1"),
        (lambda e: e.rewards / (1 if e.id == 0 else []), DataError, "ValueError: .* - at episode 1"),
        (lambda e: e.rewards if e.id == 0 else e.columns["reward"], DataError, "did you mean 'rewards'.* episode 1"),
    ],
)
@pytest.mark.parametrize("memory", [None, 0])
def test_results_that_do_not_fit_are_refused_when_read(fn: Any, error: Any, message: str, memory: int | None) -> None:
    derived = dataset([3, 3, 3]).with_column("x", fn, memory=memory)
    with pytest.raises(error, match=message):
        derived.steps()[:]
    with pytest.raises(error, match=message):
        derived.steps()[:]


def test_an_error_leaves_the_ranges_that_were_computed(small_ranges: None) -> None:
    derived = dataset([4] * 6).with_column("x", lambda e: e.rewards if e.id != 4 else None)
    with pytest.raises(SpecError, match="episode 4"):
        derived.steps()[:]
    assert derived[[0, 1, 2, 3, 5]].steps()[:].n == 20


def test_a_given_dtype_converts_values_of_the_same_kind() -> None:
    derived = dataset([3, 2]).with_column("x", lambda e: e.rewards, dtype="f4")
    assert derived.steps()[:]["x"].dtype == np.float32
    with pytest.raises(SpecError, match="as int64, got float64"):
        dataset([3]).with_column("x", lambda e: e.rewards, dtype="i8").steps()[:]


def test_an_empty_dataset_needs_dtype_and_shape() -> None:
    empty = MemorySource(Spec({"rewards": Field(np.dtype("f8"))}), {"rewards": np.zeros(0)}, np.zeros(1, np.int64))
    data = penstock.EpisodeDataset(empty)
    with pytest.raises(SpecError, match="give dtype= and shape="):
        data.with_column("x", double)
    assert len(data.with_column("x", double, dtype="f4", shape=()).steps()) == 0


@pytest.mark.parametrize("name", ["rewards", "observations/x", "", "a//b", 3])
def test_names_that_cannot_be_new_columns(name: Any) -> None:
    with pytest.raises((SpecError, ArgumentError), match=r"expected (a new column|the path of a new column)"):
        dataset([2]).with_column(name, double)


def test_wrong_arguments_are_refused() -> None:
    data = dataset([2])
    with pytest.raises(ArgumentError, match="a function of an episode for column 'x', got 3"):
        data.with_column("x", 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="align to be one of"):
        data.with_column("x", double, "steps")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="align='step' and shape="):
        data.with_column("x", penstock.returns_to_go(), "episode")
    with pytest.raises(SpecError, match=r"column 'reward' .* did you mean 'rewards'"):
        data.with_column("x", penstock.returns_to_go(rewards="reward"))
    with pytest.raises(SpecError, match=r"'observations' with align 'step' .* got 'boundary'"):
        data.with_column("x", penstock.returns_to_go(rewards="observations"))


def test_the_fingerprint_covers_data_function_and_field() -> None:
    data, other = dataset([3, 2]), dataset([3, 2], seed=1)
    digests = [
        data.with_column("x", double).episodes.fingerprint,
        other.with_column("x", double).episodes.fingerprint,
        data.with_column("y", double).episodes.fingerprint,
        data.with_column("x", norms, "boundary").episodes.fingerprint,
        data.with_column("x", double, dtype="f4").episodes.fingerprint,
        data.with_column("x", double, version=2).episodes.fingerprint,
        data.with_column("x", penstock.returns_to_go(0.9)).episodes.fingerprint,
        data.with_column("x", penstock.returns_to_go(0.8)).episodes.fingerprint,
        data.episodes.fingerprint,
    ]
    assert len(set(digests)) == len(digests)
    assert data.with_column("x", double).episodes.fingerprint == digests[0]
    assert data.with_column("x", double, memory=0).episodes.fingerprint == digests[0]


def test_chosen_episodes_stay_chosen() -> None:
    data = dataset([5, 1, 8, 3, 2, 7])
    chosen = data.filter("total_steps > 1").split(0.5, 0.5, seed=4)[1]
    derived = chosen.with_column("double", double)
    assert derived.episodes.index.tolist() == chosen.episodes.index.tolist()
    later = data.with_column("double", double).filter("total_steps > 1").split(0.5, 0.5, seed=4)[1]
    assert derived.episodes.fingerprint == later.episodes.fingerprint
    assert derived[0].columns["double"].tolist() == (chosen[0].rewards * 2).tolist()


def test_batches_of_a_loader_and_a_state_that_resumes(small_ranges: None) -> None:
    windows = dataset([9] * 20).with_column("double", double).windows(4).shuffle(0)
    loader = windows.loader(batch_size=8, threads=2)
    batches = [batch["double"].copy() for _, batch in zip(range(4), loader, strict=False)]
    state = loader.state_dict()
    loader.load_state_dict(state)  # a loop that was left early is not continued otherwise
    rest = [batch["double"].copy() for batch in loader]
    again = (
        dataset([9] * 20).with_column("double", double, memory=0).windows(4).shuffle(0).loader(batch_size=8, threads=0)
    )
    again.load_state_dict(state)
    assert [b.tolist() for b in again_batches(again)] == [b.tolist() for b in rest]
    assert (batches[0] == windows[:8]["double"]).all()


def again_batches(loader: penstock.Loader) -> Iterator[np.ndarray]:
    return (batch["double"].copy() for batch in loader)


def test_many_threads_compute_each_range_once(small_ranges: None) -> None:
    calls: list[int] = []

    def counted(episode: Episode) -> np.ndarray:
        calls.append(episode.id)
        return episode.rewards

    samples = dataset([4] * 50).with_column("x", counted, version=1, dtype="f8", shape=()).steps()
    threads = [threading.Thread(target=lambda: samples[:]) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(calls) == list(range(50))


@pytest.mark.parametrize("memory", [None, 0])
def test_a_pickled_source_reads_the_same(memory: int | None) -> None:
    source = dataset([3, 2]).with_column("double", double, memory=memory).source
    again = pickle.loads(pickle.dumps(source))
    assert (again.fingerprint, again.spec) == (source.fingerprint, source.spec)
    values = [penstock.EpisodeDataset(s).steps()[:]["double"].tolist() for s in (source, again)]
    assert values[0] == values[1]


def test_a_forked_process_computes_what_is_missing(small_ranges: None) -> None:
    derived = dataset([4] * 10).with_column("double", double)
    derived[[0, 1]].steps()[:]
    child = os.fork()
    if child == 0:
        batch = derived.steps()[:]
        os._exit(int(batch["double"].tolist() != (batch["rewards"] * 2).tolist()))
    assert os.waitpid(child, 0)[1] == 0
    batch = derived.steps()[:]
    assert batch["double"].tolist() == (batch["rewards"] * 2).tolist()


def growing(path: Path, lengths: Sequence[int]) -> None:
    data = dataset(lengths)
    if not path.exists():
        ColumnsWriter.create(path, data.source.spec).close()
    with ColumnsWriter(path) as writer:
        for episode in data:
            writer.write(episode)


@pytest.mark.parametrize("memory", [None, 0])
def test_appended_episodes_are_computed_after_a_refresh(tmp_path: Path, memory: int | None, small_ranges: None) -> None:
    growing(tmp_path / "store", [4, 3, 5])
    data = penstock.open(tmp_path / "store")
    derived = data.filter("total_steps > 3").with_column("double", double, memory=memory)
    before = derived.steps()
    values = before[:]["double"].tolist()
    growing(tmp_path / "store", [6, 2])
    assert before[:]["double"].tolist() == values
    everything = derived.refresh()
    batch = everything.steps()[:]
    assert batch.n == 20
    assert batch["double"].tolist() == (batch["rewards"] * 2).tolist()
    assert before[:]["double"].tolist() == values
    earlier = selection_of(everything.filter("total_steps > 3")).as_of(3)
    assert earlier is not None
    assert earlier.episodes.fingerprint == derived.episodes.fingerprint
    late = data.filter("total_steps > 3").with_column("double", double)
    assert late.episodes.fingerprint == derived.episodes.fingerprint
    assert len(late) == len(derived)


def test_known_values_are_kept_when_a_source_grows(tmp_path: Path, small_ranges: None) -> None:
    calls: list[int] = []

    def counted(episode: Episode) -> np.ndarray:
        calls.append(episode.id)
        return episode.rewards

    growing(tmp_path / "store", [8] * 6)
    derived = penstock.open(tmp_path / "store").with_column("x", counted, version=1, dtype="f8", shape=())
    derived.steps()[:]
    growing(tmp_path / "store", [8] * 3)
    derived.refresh().steps()[:]
    assert sorted(calls[:6]) == list(range(6))
    assert set(calls[6:]) <= {5, 6, 7, 8}  # the last range of before has other bounds now


def stored(derived: penstock.EpisodeDataset) -> StoredValues:
    kept = derived.source._values._current()
    assert isinstance(kept, StoredValues)
    return kept


def test_large_columns_go_to_the_cache_and_are_found_again(cache: Path, small_ranges: None) -> None:
    calls: list[int] = []

    def counted(episode: Episode) -> np.ndarray:
        calls.append(episode.id)
        return episode.rewards

    data = dataset([4] * 10)
    one = data.with_column("x", counted, version=1, memory=8 * 40)
    assert isinstance(one.source._values._current(), MemoryValues)
    for name in ("x", "another_name"):
        derived = data.with_column(name, counted, version=1, memory=8 * 40 - 1, dtype="f8", shape=())
        assert derived.steps()[:][name].tolist() == data.steps()[:]["rewards"].tolist()
    assert sorted(calls) == [0, *range(10)]
    assert len(list((cache / "derived").iterdir())) == 1
    assert derived[3].columns["another_name"].tolist() == data[3].rewards.tolist()
    assert sorted(calls) == [0, *range(10)]
    derived.close()


def test_a_cache_that_is_damaged_is_computed_again(cache: Path, small_ranges: None) -> None:
    data = dataset([4] * 10)
    data.with_column("x", double, memory=0).steps()[:]
    for file in (cache / "derived").rglob("spec.json"):
        file.write_text("{")
    derived = data.with_column("x", double, memory=0)
    assert derived.steps()[:]["x"].tolist() == (data.steps()[:]["rewards"] * 2).tolist()


def test_a_full_disk_is_told_and_the_work_goes_on_later(
    cache: Path, small_ranges: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counted(episode: Episode) -> np.ndarray:
        calls.append(episode.id)
        return episode.rewards

    derived = dataset([4] * 10).with_column("x", counted, version=1, dtype="f8", shape=(), memory=0)
    written, write = [], ColumnsWriter.write

    def full(self: ColumnsWriter, episode: Episode) -> int:
        if len(written) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(len(episode))
        return write(self, episode)

    with monkeypatch.context() as patch:
        patch.setattr(ColumnsWriter, "write", full)
        with pytest.raises(OSError, match="no space for the 320 bytes of column 'x'; set PENSTOCK_CACHE"):
            derived.steps()[:]
    calls.clear()
    assert derived.steps()[:]["x"].tolist() == derived.steps()[:]["rewards"].tolist()
    assert sorted(calls) == list(range(sum(written) // 4, 10))


KILLED = """
import os, signal, sys
import numpy as np, penstock
from penstock.data import derived_values
from penstock.formats.columns import writer

derived_values.STORED_RANGE_BYTES = 64
point, calls = int(sys.argv[1]), 0
names = ("pwrite", "fsync", "mkdir", "ftruncate", "close", "open")
real = {name: getattr(os, name) for name in names}

def counted(name):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == point:
            os.kill(os.getpid(), signal.SIGKILL)
        return real[name](*args, **kwargs)
    return call

data = penstock.from_arrays({"rewards": np.arange(40.0)}, [4] * 10)
derived = data.with_column("x", lambda e: e.rewards * 2, version=1, dtype="f8", shape=(), memory=0)
for name in names:
    setattr(os, name, counted(name))
values = derived.steps()[:]["x"].tolist()
for name in names:
    setattr(os, name, real[name])
print(calls, values == (np.arange(40.0) * 2).tolist())
"""


def run(point: int) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", KILLED, str(point)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_a_killed_process_leaves_nothing_that_is_half_used(cache: Path) -> None:
    """Each process goes on where the one before was killed, until one comes to the end."""
    for point in (5, 17, 40):
        assert run(point)[0] == -9
    code, out = run(0)
    assert (code, out.split()[1]) == (0, "True")


def test_two_processes_compute_a_column_once(cache: Path) -> None:
    script = KILLED.replace("e.rewards * 2", "(os.write(1, b'%d ' % e.id), e.rewards * 2)[1]")
    both = [subprocess.Popen([sys.executable, "-c", script, "0"], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    out = [process.communicate()[0].split() for process in both]
    assert [text[-1] for text in out] == ["True", "True"]
    assert sorted(int(e) for text in out for e in text[:-2]) == list(range(10))


def test_columns_that_were_not_used_for_long_leave_the_cache(
    cache: Path, small_ranges: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = dataset([4] * 10)
    first, second = (data.with_column("x", double, version=v, memory=0) for v in (1, 2))
    for i, derived in enumerate((first, second)):
        derived.steps()[:]
        os.utime(stored(derived).folder, (i, i))
    second.close()
    monkeypatch.setattr(derived_values, "LIMIT", 0)
    data.with_column("x", double, version=3, memory=0).steps()[:]
    assert stored(first).folder.exists()  # in use
    assert not stored(data.with_column("x", double, version=2, memory=0)).folder.exists()


def test_converting_a_dataset_stores_its_derived_columns(tmp_path: Path) -> None:
    data = dataset([4, 2]).with_column("double", double)
    penstock.convert(data, tmp_path / "store")
    found = penstock.open(tmp_path / "store").steps()[:]
    assert found["double"].tolist() == (found["rewards"] * 2).tolist()
