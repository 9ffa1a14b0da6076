"""`ILRDataset` and `InterleavedDataset`: what they give, in which order, and where they go on."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, IterableDataset

from ilr_mirror.conftest import SHARDS, number
from penstock.data.map_dataset import planned_samples
from penstock_imitation.il_representations import (
    IdentityPairConstructor,
    ILRDataset,
    InterleavedDataset,
    SubdatasetExtractor,
    TemporalOffsetPairConstructor,
    load_ilr_datasets,
    write_frames,
)

ARCHIVES = ["A_plain.tar", "A.tgz", "A.tar.zst"]
A = SHARDS / "A_plain.tar"
PAIRS = TemporalOffsetPairConstructor("dynamics", 2)


def numbers(samples: Any, key: str = "obs") -> list[int]:
    return [number(sample[key]) for sample in samples]


def every_other(frames: Iterator[Any]) -> Iterator[Any]:
    return itertools.islice(frames, 0, None, 2)


@pytest.mark.parametrize("name", ARCHIVES)
def test_frames_are_those_that_the_original_decodes(name: str) -> None:
    expected = np.load(SHARDS / "A_steps.npz")
    dataset = ILRDataset(f"file:{SHARDS / name}")
    frames = list(dataset)
    assert len(dataset) == len(frames) == 16
    assert set(frames[0]) == {"__key__", "__trajectory__", "acts", "dones", "frame", "infos", "next_obs", "obs", "rews"}
    for key in expected:
        found = np.array([frame[key] for frame in frames])
        assert found.dtype == expected[key].dtype
        np.testing.assert_array_equal(found, expected[key])
    assert set(frames[0]["infos"]) == {"discount", "internal_state"}
    assert [frame["__key__"] for frame in frames[:2]] == ["frame_000", "frame_001"]


def test_frames_of_a_real_rollout() -> None:
    frames = list(load_ilr_datasets([SHARDS / "magical-random.tar.zst"]))
    ends = [t for t, frame in enumerate(frames) if frame["dones"]]
    assert ends == [39, 79]
    np.testing.assert_array_equal(frames[39]["infos"]["terminal_observation"], frames[39]["next_obs"])


def test_frames_own_what_they_have() -> None:
    dataset = ILRDataset(A)
    (first, *_), (again, *_) = list(dataset), list(dataset)
    first["obs"][:] = 255
    first["infos"]["internal_state"][:] = 9
    assert number(again["obs"]) == 0
    assert again["infos"]["internal_state"][0] != 9
    assert number(next(iter(dataset))["obs"]) == 0


def test_several_archives_are_one_dataset(tmp_path: Path) -> None:
    both = ILRDataset([f"file:{SHARDS / 'A.tgz'}", str(A)])
    assert numbers(both) == numbers(ILRDataset(A)) * 2
    pairs = list(both.pipe(PAIRS))
    assert [pair["traj_ts_ids"][0] for pair in pairs] == [0] * 3 + [2] * 5 + [3] + [4] * 3 + [6] * 5 + [7]
    odd = tmp_path / "a,b.tar"
    odd.write_bytes(A.read_bytes())
    assert len(ILRDataset(odd)) == 16
    with pytest.raises(ValueError, match="without braces and commas"):
        ILRDataset([odd, A])
    with pytest.raises(ValueError, match="at least one archive"):
        ILRDataset([])


def test_archives_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"_metadata\.meta\.pickle as the first member"):
        ILRDataset(SHARDS / "nometa.tgz")
    with pytest.raises(FileNotFoundError):
        ILRDataset(tmp_path / "none.tgz")
    text = tmp_path / "a.txt"
    text.write_text("frames")
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        archive.add(text, "0.txt")
    with pytest.raises(ValueError, match="archives of frames"):
        ILRDataset(tmp_path / "b.tar")


def test_metadata_that_run_code_do_not(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return exec, ("raise SystemExit('executed')",)

    member = tmp_path / "m"
    member.write_bytes(pickle.dumps({"env_cfg": Evil()}))
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.add(member, "_metadata.meta.pickle")
        with tarfile.open(A) as good:
            for each in good.getmembers()[1:]:
                archive.addfile(each, good.extractfile(each))
    with pytest.raises(ValueError, match="nothing was imported or run"):
        ILRDataset(tmp_path / "evil.tar")


def test_archives_whose_descriptions_differ_are_warned_of(tmp_path: Path) -> None:
    dataset = ILRDataset(A)
    write_frames(tmp_path / "b.tar", dataset.meta | {"env_cfg": {"task_name": "other"}}, dataset)
    with pytest.warns(UserWarning, match="env_cfg is {'task_name': 'other'}, not"):
        ILRDataset([A, tmp_path / "b.tar"])


@pytest.mark.parametrize(
    ("workers", "stage"),
    [(0, "function"), (1, "pairs"), (2, "frames"), (2, "function"), (3, "pairs"), (5, "frames")],
)
def test_every_sample_comes_once_from_any_number_of_workers(workers: int, stage: str) -> None:
    dataset = ILRDataset(A).shuffle(seed=1)
    if stage == "pairs":
        dataset = ILRDataset(A).pipe(PAIRS).shuffle(seed=1)
    if stage == "function":
        dataset = ILRDataset(A).pipe(every_other)
    assert isinstance(dataset, IterableDataset)
    expected = [number(s.get("obs", s.get("context"))) for s in dataset]
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    found = [number(s.get("obs", s.get("context"))) for s in loader]
    assert sorted(found) == sorted(expected)
    assert len(set(found)) == len(found) == {"frames": 16, "pairs": 9, "function": 8}[stage]


def test_shuffle_is_of_all_samples_and_another_in_each_epoch_and_for_each_seed() -> None:
    plain = numbers(ILRDataset(A).pipe(PAIRS), "context")
    orders: list[list[int]] = []
    for seed in (0, 1):
        dataset = ILRDataset(A).pipe(PAIRS).shuffle(seed=seed)
        orders += [numbers(dataset, "context"), numbers(dataset, "context")]
        assert numbers(ILRDataset(A).pipe(PAIRS).shuffle(seed=seed), "context") == orders[-2]
    assert len({tuple(order) for order in [plain, *orders]}) == 5
    assert all(sorted(order) == sorted(plain) for order in orders)


def test_functions_are_shuffled_in_a_buffer() -> None:
    def shuffled(size: int, seed: int) -> list[int]:
        return numbers(ILRDataset(A).pipe(every_other).shuffle(size, seed=seed))

    plain = numbers(ILRDataset(A).pipe(every_other))
    assert shuffled(1, 0) == plain
    assert shuffled(4, 0) == shuffled(4, 0) != shuffled(4, 1)
    assert sorted(shuffled(4, 1)) == sorted(plain) != shuffled(4, 1)


def test_pipe_leaves_the_dataset_as_it_was() -> None:
    dataset = ILRDataset(A)
    dataset.pipe(PAIRS)
    dataset.pipe(every_other)
    assert len(list(dataset)) == 16


def test_what_has_no_positions_has_no_length() -> None:
    dataset = ILRDataset(A).pipe(every_other)
    with pytest.raises(TypeError, match="unknown"):
        len(dataset)
    with pytest.raises(ValueError, match="with positions"):
        _ = dataset.samples


def test_order_of_pipes_that_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="before shuffle"):
        ILRDataset(A).shuffle().pipe(PAIRS)
    with pytest.raises(ValueError, match="as they are stored"):
        ILRDataset(A).pipe(PAIRS).pipe(SubdatasetExtractor(n_trajs=1))


@pytest.mark.parametrize(("extractor", "count"), [({"n_trajs": 2}, 6), ({"n_trans": 8}, 8), ({}, 16)])
def test_extractors_as_plans_and_as_functions(extractor: dict[str, int], count: int) -> None:
    stage = SubdatasetExtractor(**extractor)
    dataset = ILRDataset(A).pipe(stage)
    assert len(dataset) == count
    assert numbers(dataset) == numbers(stage(iter(ILRDataset(A)))) == numbers(ILRDataset(A))[:count]
    pairs = list(PAIRS(stage(iter(ILRDataset(A)))))
    found = dataset.pipe(PAIRS)
    assert len(found) == len(pairs)
    assert [pair["traj_ts_ids"] for pair in found] == [pair["traj_ts_ids"] for pair in pairs]


def test_extractors_of_more_than_there_is() -> None:
    for extractor in (SubdatasetExtractor(n_trajs=5), SubdatasetExtractor(n_trans=17)):
        with pytest.raises(ValueError, match="got"):
            ILRDataset(A).pipe(extractor)
        with pytest.raises(ValueError, match="expected at least"):
            list(extractor(iter(ILRDataset(A))))
    with pytest.raises(ValueError, match="got both"):
        SubdatasetExtractor(1, 1)


def made(kind: str) -> Any:
    dataset = ILRDataset(A)
    return {
        "frames": dataset.shuffle(seed=3),
        "pairs": dataset.pipe(PAIRS).shuffle(seed=3),
        "function": dataset.pipe(every_other).shuffle(3, seed=3),
        "interleaved": InterleavedDataset([dataset.pipe(PAIRS), dataset.pipe(PAIRS)], 11, seed=3),
        "turns": InterleavedDataset([dataset.pipe(every_other), [{"obs": np.full((1, 1, 2), 7)}]], 11),
    }[kind]


@pytest.mark.parametrize("given", [0, 1, 5])
@pytest.mark.parametrize("kind", ["frames", "pairs", "function", "interleaved", "turns"])
def test_it_goes_on_where_it_stood(kind: str, given: int) -> None:
    dataset = made(kind)
    list(dataset)  # an epoch before
    iterator = iter(dataset)
    for _ in range(given):
        next(iterator)
    state = dataset.state_dict()
    rest = [str(sample) for sample in iterator] + [str(sample) for sample in dataset]
    again = made(kind)
    again.load_state_dict(state)
    assert [str(sample) for sample in again] + [str(sample) for sample in again] == rest


def test_states_of_something_else() -> None:
    state = made("pairs").state_dict()
    for other in (made("frames"), made("interleaved"), ILRDataset(A).pipe(PAIRS)):
        with pytest.raises(ValueError, match="expected a state"):
            other.load_state_dict(state)


def test_an_epoch_begins_anew_unless_it_was_ended() -> None:
    dataset = made("pairs")
    first = numbers(dataset, "context")
    second = next(iter(dataset))
    assert number(second["context"]) == numbers(dataset, "context")[0]
    dataset.set_epoch(0)
    assert numbers(dataset, "context") == first


@pytest.mark.parametrize("weights", [None, [7, 3], [0.25, 0.5, 0.25]])
@pytest.mark.parametrize("positions", [True, False])
def test_shares_are_exact_at_every_prefix(weights: list[float] | None, positions: bool) -> None:
    count = 2 if weights is None else len(weights)
    parts = [ILRDataset(A).pipe(IdentityPairConstructor()) for _ in range(count)]
    sources: list[Any] = parts if positions else [[i] * (i + 1) for i in range(count)]
    mixed = InterleavedDataset(sources, 100, weights=weights)
    picked = (
        planned_samples(mixed.samples).at(np.arange(100))["source"].tolist()
        if mixed.samples is not None
        else list(mixed)
    )
    assert len(mixed) == len(list(mixed)) == 100
    share = np.array(weights or [1, 1]) / sum(weights or [1, 1])
    for k in range(101):
        assert (np.abs(np.bincount(picked[:k], minlength=count) - share * k) < 1).all()


def test_epochs_by_name() -> None:
    short = ILRDataset(A).pipe(TemporalOffsetPairConstructor(temporal_offset=5))
    long = ILRDataset(A).pipe(TemporalOffsetPairConstructor(temporal_offset=5)).shuffle(seed=1)
    lengths = {name: len(InterleavedDataset([short, long], name)) for name in ("drain", "all_exhausted")}
    assert lengths == {"drain": 4, "all_exhausted": 4}
    frames = InterleavedDataset([ILRDataset(A), ILRDataset(A).first(n_trajs=1)], "drain")
    assert sorted(numbers(frames)) == sorted([*numbers(ILRDataset(A)), 0, 1, 2, 3, 4])


def test_a_nominal_epoch_goes_on_where_the_one_before_ended() -> None:
    mixed = InterleavedDataset([ILRDataset(A), ILRDataset(A)], 10)
    seen = [numbers(mixed) for _ in range(2)]
    plain = numbers(ILRDataset(A))
    assert seen[0] == [plain[i // 2] for i in range(10)]
    assert seen[1] == [plain[i // 2] for i in range(10, 20)]


def test_seeds_of_an_interleaved_dataset() -> None:
    def order(seed: int | None) -> list[int]:
        return numbers(InterleavedDataset([ILRDataset(A), ILRDataset(A)], "drain", seed))

    assert order(0) == order(0) != order(1)
    assert order(None) not in (order(0), order(1))
    assert order(0)[::2] != order(0)[1::2]  # the datasets are not in step
    assert sorted(order(1)) == sorted(order(None))


def test_interleaving_nothing() -> None:
    with pytest.raises(ValueError, match="at least one dataset"):
        InterleavedDataset([], 5)
    with pytest.raises(ValueError, match="none in number 1"):
        list(InterleavedDataset([[1], []], 5))
    with pytest.raises(ValueError, match="no seed where not all have positions"):
        InterleavedDataset([[1], [2]], 5, seed=1)
    with pytest.raises(ValueError, match="a number of samples"):
        InterleavedDataset([[1], [2]], "drain")
    long = ILRDataset(A).pipe(TemporalOffsetPairConstructor(temporal_offset=9))
    with pytest.raises(ValueError, match="got none in"):
        InterleavedDataset([long, long], 5)


@pytest.mark.parametrize("workers", [1, 3])
def test_interleaved_in_workers_an_epoch_has_its_nominal_length(workers: int) -> None:
    """The original's has a multiple of it."""
    for mixed in (made("interleaved"), made("turns")):
        expected = sorted(str(sample) for sample in mixed)
        mixed.set_epoch(0)
        assert len(expected) == 11
        assert sorted(DataLoader(mixed, batch_size=None, num_workers=workers, collate_fn=str)) == expected


def test_without_pytorch_datasets_are_iterated() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['torch.utils.data'] = None\n"
        "from penstock_imitation.il_representations import *\n"
        f"print(len(list(ILRDataset({str(A)!r}).pipe(TemporalOffsetPairConstructor()))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "12", done.stderr


def test_states_hold_in_other_processes(tmp_path: Path) -> None:
    """And so do datasets, which workers that are spawned are given as pickles."""
    code = (
        "import pickle, sys\n"
        "for dataset, state in pickle.load(open(sys.argv[1], 'rb')):\n"
        "    dataset.load_state_dict(state)\n"
        "    print(len(list(dataset)))"
    )
    datasets = made("frames"), ILRDataset(A).pipe(SubdatasetExtractor(n_trans=7))
    for dataset in datasets:
        list(itertools.islice(dataset, 3))
    path = tmp_path / "datasets"
    path.write_bytes(pickle.dumps([(dataset, dataset.state_dict()) for dataset in datasets]))
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["13", "4"], done.stderr
    assert "0x" not in made("function").state_dict()["of"]


def test_frames_of_other_spaces_are_interleaved() -> None:
    mixed = InterleavedDataset([ILRDataset(A), ILRDataset(SHARDS / "magical-random.tar.zst")], 4)
    assert [sample["obs"].shape for sample in mixed] == [(3, 8, 8), (12, 96, 96)] * 2
