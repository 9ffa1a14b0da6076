"""Tasks: sources, functions of examples and of batches, random numbers, filters, epochs, shards, what goes wrong."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.columns import Columns
from penstock.core.ragged import Ragged
from penstock.errors import FormatError, PlanError, SpecError
from penstock_mirrors import airio
from penstock_mirrors.airio import (
    SKIP_FEATURE,
    AirIOInjectedRuntimeArgs,
    FilterFnTransform,
    FunctionDataSource,
    JsonDataSource,
    MapFnTransform,
    Mixture,
    PenstockDataSource,
    RandomMapFnTransform,
    ShardInfo,
    Task,
    batched,
    feature_converters,
    get_dataset,
)
from penstock_mirrors.airio.packing import (
    AirIOPackDatasetIterPreprocessor,
    AirIOPackDatasetMapPreprocessor,
    MultiBinPacker,
    NoamPacker,
    PlannedPacker,
    PlannedPackPreprocessor,
)
from penstock_mirrors.airio.preprocessors import pad, rekey, trim
from tests.locations.server import serving

WORDS = ["on", "a", "hill", "far", "away", "there", "is", "one"]
TEXTS = PenstockDataSource({"train": [{"text": word, "id": i} for i, word in enumerate(WORDS)]})


def to_bytes(example: dict[str, Any]) -> dict[str, Any]:
    return {"targets": np.frombuffer(example["text"].encode(), np.uint8), "id": example["id"]}


def texts(data: Any) -> list[str]:
    return [bytes(row["targets"][row["targets"] > 0].astype(np.uint8)).decode() for row in data]


def test_functions_of_one_example_see_text_and_numbers() -> None:
    data = Task("t", TEXTS, [MapFnTransform(to_bytes)]).get_dataset(shuffle=False)
    assert texts(data) == WORDS
    assert data[2]["id"] == 2
    assert Task("t", TEXTS).get_dataset(shuffle=False)[3]["text"].tobytes() == b"far"
    assert Task("t", TEXTS).num_input_examples("train") == 8


def test_shuffling_is_a_permutation_by_the_seed() -> None:
    task = Task("t", TEXTS, [MapFnTransform(to_bytes)])
    first, again, other = (texts(task.get_dataset(seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert sorted(first) == sorted(other) == sorted(WORDS)
    assert texts(get_dataset(task)) == WORDS


def test_functions_of_batches_see_columns() -> None:
    @batched
    def shout(columns: Columns) -> dict[str, Any]:
        held = columns["targets"]
        return {"targets": Ragged(held.values - 32, held.offsets), "id": columns["id"] * 10}

    @batched
    def only_long(columns: Columns) -> Any:
        return columns["targets"].lengths > 2

    steps = [MapFnTransform(to_bytes), MapFnTransform(shout), FilterFnTransform(only_long)]
    data = Task("t", TEXTS, steps).get_dataset(shuffle=False)
    assert texts(data) == ["HILL", "FAR", "AWAY", "THERE", "ONE"]
    assert [row["id"] for row in data] == [20, 30, 40, 50, 70]
    packed = Task("t", TEXTS, [*steps, PlannedPackPreprocessor]).get_dataset({"targets": 9, "id": SKIP_FEATURE})
    assert len(packed) == 3
    assert sorted("".join(texts(packed))) == sorted("HILLFARAWAYTHEREONE")


def test_features_that_are_not_packed_come_one_a_sequence() -> None:
    packed = Task("t", TEXTS, [MapFnTransform(to_bytes), airio.packing.MultiBinTruePackIterPreprocessor]).get_dataset(
        {"targets": 8, "id": SKIP_FEATURE}, shuffle=False
    )
    for row in packed:
        ids = row["targets_segment_ids"]
        assert "".join(WORDS[i] for i in row["id"][: ids.max()]) == bytes(row["targets"][ids > 0]).decode()


def test_functions_behind_batches_see_rows() -> None:
    steps = [
        MapFnTransform(to_bytes),
        MapFnTransform(trim),
        MapFnTransform(lambda e: {"targets": e["targets"][::-1], "n": len(e["targets"])}),
        FilterFnTransform(lambda e: e["n"] > 2),
        MapFnTransform(pad),
        MapFnTransform(lambda e: {"targets": e["targets"], "first": e["targets"][0]}),
    ]
    data = Task("t", TEXTS, steps).get_dataset({"targets": 4}, shuffle=False)
    assert texts(data) == ["llih", "raf", "yawa", "reht", "eno"]
    assert data[:]["targets"].shape == (5, 4)
    assert data[:]["first"].tolist() == [ord(c) for c in "lryre"]


def test_runtime_arguments_are_handed_in_and_changed() -> None:
    seen: list[Any] = []

    def note(example: Any, args: AirIOInjectedRuntimeArgs) -> Any:
        seen.append((dict(args.sequence_lengths or {}), args.split, args.batch_size))
        return example

    renamed = MapFnTransform(
        functools.partial(rekey, key_map={"words": "targets"}),
        update_runtime_args=lambda args: args.replace(sequence_lengths={"words": 3}),
    )
    task = Task("t", TEXTS, [MapFnTransform(to_bytes), MapFnTransform(note), renamed, MapFnTransform(trim)])
    data = task.get_dataset({"targets": 4}, shuffle=False)
    assert [len(row["words"]) for row in data] == [2, 1, 3, 3, 3, 3, 2, 3]
    assert set(map(str, seen)) == {"({'targets': 4}, 'train', None)"}
    with pytest.raises(PlanError, match="one parameter of"):
        Task("t", TEXTS, [MapFnTransform(lambda e, a=None: e), MapFnTransform(_asks_twice)]).get_dataset()


def _asks_twice(example: Any, a: AirIOInjectedRuntimeArgs, b: AirIOInjectedRuntimeArgs) -> Any:
    return example


def noisy(example: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {"id": example["id"], "name": len(example["text"]), "draw": rng.integers(1 << 40)}


NOISY = [RandomMapFnTransform(noisy)]


@pytest.mark.parametrize("shuffle", [False, True])
def test_random_numbers_follow_from_seed_and_position(shuffle: bool) -> None:
    def draws(seed: int, steps: Any = NOISY, epochs: int = 2) -> list[int]:
        data = Task("t", TEXTS, steps).get_dataset(seed=seed, shuffle=shuffle, num_epochs=epochs)
        assert all(row["name"] == len(WORDS[row["id"]]) for row in data)
        at = np.random.default_rng(0).permutation(len(data))
        found = [int(data[int(k)]["draw"]) for k in at]
        return [found[i] for i in np.argsort(at)]

    assert draws(0) == draws(0)
    assert len(set(draws(0) + draws(1))) == 32  # epochs and seeds differ
    assert len(set(draws(0, epochs=1))) == 8
    # Before a filter there is one draw for each example, so that what was chosen is what is read.
    steps = [RandomMapFnTransform(noisy), FilterFnTransform(lambda e: e["draw"] % 2 == 0)]
    left = draws(0, steps)
    assert all(draw % 2 == 0 for draw in left)
    assert sorted(left[: len(left) // 2]) == sorted(left[len(left) // 2 :])


def test_a_mixture_draws_anew_in_every_epoch() -> None:
    tasks = [Task(name, TEXTS, [RandomMapFnTransform(noisy)]) for name in "ab"]
    data = Mixture("m", tasks, [1, 1]).get_dataset(num_epochs=2)
    assert len({int(row["draw"]) for row in data}) == len(data) == 32


def test_a_filter_sees_the_random_numbers_that_are_read_later() -> None:
    @batched
    def noisy(columns: Columns, keys: Any) -> Columns:
        return columns.merged({"draw": keys % 1000})

    steps = [MapFnTransform(lambda e: {"id": e["id"]}), RandomMapFnTransform(noisy)]
    every = Task("t", TEXTS, steps).get_dataset(shuffle=False)[:]
    even = FilterFnTransform(lambda e: e["draw"] % 2 == 0)
    left = Task("t", TEXTS, [*steps, even]).get_dataset(shuffle=False)[:]
    assert 0 < left.n < 8
    assert left["draw"].tolist() == [d for d in every["draw"].tolist() if d % 2 == 0]


def test_elements_that_are_no_dicts(tmp_path: Path) -> None:
    numbers = FunctionDataSource(lambda split: np.arange(5), splits=["train"])
    assert numbers.num_input_examples("train") == 5
    data = Task("t", numbers, [MapFnTransform(lambda n: n + 1), FilterFnTransform(lambda n: n > 2)]).get_dataset()
    assert sorted(row["element"] for row in data) == [3, 4, 5]
    (tmp_path / "a.json").write_text(json.dumps([{"x": 1}, {"x": 2}]))
    (tmp_path / "b.jsonl").write_text('{"x": 3}\n\n{"x": 4}\n')
    (tmp_path / "c.jsonl").write_text("[5]\n[6]\n")
    source = JsonDataSource({"train": str(tmp_path / "[ab].json*"), "lists": [str(tmp_path / "c.jsonl")]})
    assert (source.num_input_examples("train"), source.splits) == (4, {"train", "lists"})
    assert Task("t", source, [MapFnTransform(json.loads)]).get_dataset(shuffle=False)[:]["x"].tolist() == [1, 2, 3, 4]
    lists = Task("t", source, [MapFnTransform(lambda text: {"n": json.loads(text)[0]})])
    assert lists.get_dataset(split="lists", shuffle=False)[:]["n"].tolist() == [5, 6]


def test_json_is_at_locations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Braces, numbers in natural order, and URLs, as everywhere."""
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    for n in (1, 2, 10):
        (tmp_path / f"part-{n}.jsonl").write_text(f"{n}")
    objects = {path.name: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    with serving(objects) as site:
        for root in (str(tmp_path), site.url):
            source = JsonDataSource({"all": f"{root}/part-*.jsonl", "some": [f"{root}/part-{{10,1}}.jsonl"]})
            assert source.get_data_source("all") == ["1", "2", "10"]
            assert source.get_data_source("some") == ["10", "1"]
        with pytest.raises(PlanError, match=f"files that fit '{site.url}/none.jsonl'"):
            JsonDataSource({"train": f"{site.url}/none.jsonl"})
        objects["bad.jsonl"] = b"[1"
        with pytest.raises(FormatError, match=f"line 1 in {site.url}/bad.jsonl"):
            JsonDataSource({"train": f"{site.url}/bad.jsonl"})


def test_what_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1]\n[2\n")
    with pytest.raises(FormatError, match=r"JSON value a line.* at line 2 in .*a.json"):
        JsonDataSource({"train": str(tmp_path / "a.json")})
    (tmp_path / "b.json").write_text("[" * 100_000)
    with pytest.raises(FormatError, match="line 1 in"):
        JsonDataSource({"train": str(tmp_path / "b.json")})
    (tmp_path / "c.json").write_bytes(b"\xff")
    with pytest.raises(FormatError, match="expected UTF-8, got"):
        JsonDataSource({"train": str(tmp_path / "c.json")})
    with pytest.raises(PlanError, match="expected files that fit"):
        JsonDataSource({"train": str(tmp_path / "none*")})


def test_penstock_datasets_are_sources() -> None:
    episodes = penstock.from_arrays({"targets": np.arange(1, 10), "x": np.ones((9, 2))}, lengths=[4, 3, 2])
    whole = PenstockDataSource({"train": episodes})
    packed = Task("t", whole, [PlannedPackPreprocessor]).get_dataset({"targets": 6, "x": 6})
    assert len(packed) == 2
    assert packed[0]["x"].shape == (6, 2)
    assert sorted(t for row in packed for t in row["targets"].tolist() if t) == list(range(1, 10))
    summed = MapFnTransform(lambda e: {"sum": e["targets"].sum()})
    assert Task("t", whole, [summed]).get_dataset(shuffle=False)[:]["sum"].tolist() == [10, 18, 17]
    windows = PenstockDataSource({"train": episodes.windows(2)})
    assert Task("t", windows).get_dataset(shuffle=False)[0]["targets"].tolist() == [1, 2]
    assert Task("t", windows, [summed]).get_dataset(shuffle=False)[:]["sum"].tolist() == [3, 5, 7, 11, 13, 17]
    words = penstock.from_records([{"text": w} for w in WORDS])
    task = Task("t", PenstockDataSource({"train": words}), [MapFnTransform(lambda e: {"n": len(e["text"])})])
    assert task.get_dataset(shuffle=False)[:]["n"].tolist() == [len(w) for w in WORDS]


def test_empty_sequences_and_nested_examples() -> None:
    source = PenstockDataSource({"train": [{"a": {"x": []}}, {"a": {"x": [1.5, 2.5]}}, {"a": {"x": [3.5]}}]})
    (pack,) = Task("t", source, [PlannedPackPreprocessor]).get_dataset({"a/x": 4})
    assert sorted(pack["a"]["x"].tolist()) == [0, 1.5, 2.5, 3.5]


def test_epochs_shards_and_batches() -> None:
    task = Task("t", TEXTS, [MapFnTransform(to_bytes)])
    whole = texts(task.get_dataset(seed=5, num_epochs=3))
    assert len(whole) == 24
    assert all(sorted(whole[i : i + 8]) == sorted(WORDS) for i in (0, 8, 16))
    assert whole[:8] != whole[8:16]
    shards = [texts(task.get_dataset(seed=5, num_epochs=3, shard_info=ShardInfo(i, 3))) for i in range(3)]
    assert [word for three in zip(*shards, strict=True) for word in three] == whole
    endless = task.get_dataset(seed=5, num_epochs=None)
    assert len(endless) > 1 << 60
    assert texts(endless[i] for i in range(24)) == whole
    batches = list(task.get_dataset({"targets": 5}, runtime_preprocessors=[MapFnTransform(pad)], batch_size=3))
    assert [batch["targets"].shape for batch in batches] == [(3, 5), (3, 5), (2, 5)]
    with pytest.raises(PlanError, match="expected a batch_size with num_prefetch_threads"):
        task.get_dataset(num_prefetch_threads=2)


def test_ranks_without_a_row_have_the_same_features() -> None:
    steps = [MapFnTransform(to_bytes), MapFnTransform(trim), MapFnTransform(lambda e: {"n": e["targets"].size})]
    data = Task("t", TEXTS, steps).get_dataset({"targets": 4}, shuffle=False)
    shares = [[b["n"] for b in data.loader(5, rank=rank, world=4)] for rank in range(4)]
    assert {share.dtype for batches in shares for share in batches} == {np.dtype(np.int64)}
    assert [share.tolist() for share in [b[1] for b in shares]] == [[], [4], [2], [3]]


def test_packers_by_their_frames() -> None:
    lengths = {"targets": 8}
    for frame in (
        AirIOPackDatasetMapPreprocessor(packer=NoamPacker(), pool_size=4),
        AirIOPackDatasetMapPreprocessor(MultiBinPacker(2), lambda feature_lengths: feature_lengths["targets"]),
        AirIOPackDatasetIterPreprocessor(packer=PlannedPacker(overlong="split", align=2)),
    ):
        data = Task("t", TEXTS, [MapFnTransform(to_bytes), frame]).get_dataset(lengths)
        assert sorted("".join(texts(data))) == sorted("".join(WORDS))


def test_converters_take_any_packer_and_keep_features() -> None:
    steps = feature_converters.get_t5x_lm_feature_converter_preprocessors(pack=PlannedPackPreprocessor, bos_id=1)
    data = Task("t", TEXTS, [MapFnTransform(to_bytes)]).get_dataset({"targets": 8}, runtime_preprocessors=steps)
    for row in data:
        first = row["decoder_positions"] == 0
        assert (row["decoder_input_tokens"][first & (row["decoder_segment_ids"] > 0)] == 1).all()
    steps = feature_converters.get_t5x_enc_dec_feature_converter_preprocessors(
        pack=True, passthrough_feature_keys=["id"]
    )
    both = MapFnTransform(lambda e: {"inputs": e["targets"], **e})
    task = Task("t", TEXTS, [MapFnTransform(to_bytes), both])
    data = task.get_dataset({"inputs": 9, "targets": 9, "id": SKIP_FEATURE}, runtime_preprocessors=steps)
    for row in data:
        assert (
            "".join(WORDS[i] for i in row["id"][: row["encoder_segment_ids"].max()])
            == texts([{"targets": row["encoder_input_tokens"]}]).pop()
        )


@pytest.mark.parametrize(
    ("lengths", "steps", "error", "message"),
    [
        ({"target": 4}, [PlannedPackPreprocessor], SpecError, r"among \['targets', 'id'\] in .*\['target'\]"),
        (None, [PlannedPackPreprocessor], PlanError, "a sequence length for what is packed in t, got None"),
        (
            {"targets": 0},
            [],
            PlanError,
            "a sequence length of 1 or more, a list of one for each axis, or -1, got 0 for 'targets'",
        ),
        ({"targets": -1}, [PlannedPackPreprocessor], PlanError, "a sequence length for what is packed"),
        ({"targets": 3}, [MapFnTransform(pad)], SpecError, "at most 3 values of 'targets', got 5; trim"),
        (
            {"id": 3, "targets": -1},
            [PlannedPackPreprocessor],
            SpecError,
            r"one value or vector an example of \['targets'\]",
        ),
        (
            {"targets": 9},
            feature_converters.get_t5x_enc_dec_feature_converter_preprocessors(pack=False),
            PlanError,
            "a sequence length for 'inputs', got {'targets': 9}",
        ),
        (
            {"inputs": 9, "targets": 9},
            feature_converters.get_t5x_enc_dec_feature_converter_preprocessors(pack=False),
            SpecError,
            r"a feature 'inputs', got examples with \['targets'\]",
        ),
    ],
)
def test_what_does_not_fit_says_so(lengths: Any, steps: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Task("t", TEXTS, [MapFnTransform(to_bytes)]).get_dataset(lengths, runtime_preprocessors=steps)[:]


def test_examples_that_differ_say_so() -> None:
    for examples, message in (
        ([{"x": 1}, {"y": 1}], "a feature 'x' in every example"),
        ([{"x": [[1]]}, {"x": [[1, 2]]}], "x with one shape, or shapes that differ in the first axis alone"),
    ):
        with pytest.raises(SpecError, match=message):
            Task("t", PenstockDataSource({"train": examples})).get_dataset()
    for source in (TEXTS, FunctionDataSource(lambda split: [], ["train"])):
        with pytest.raises(PlanError, match=r"a split among \['train'\], got 'test'"):
            Task("t", source).get_dataset(split="test")


def test_fingerprints_tell_tasks_apart() -> None:
    def print_of(*steps: Any, lengths: int = 4, seed: int = 0) -> str:
        task = Task("t", TEXTS, [MapFnTransform(to_bytes), *steps])
        return task.get_dataset({"targets": lengths}, seed=seed, shuffle=False).fingerprint

    trimmed = MapFnTransform(trim)
    prints = [
        print_of(),
        print_of(trimmed),
        print_of(trimmed, lengths=3),
        print_of(trimmed, MapFnTransform(functools.partial(pad, pad_id=1))),
        print_of(trimmed, MapFnTransform(functools.partial(pad, pad_id=2))),
        print_of(FilterFnTransform(lambda e: e["id"] > 2)),
        print_of(RandomMapFnTransform(lambda e, rng: e)),
        print_of(RandomMapFnTransform(lambda e, rng: e), seed=1),
    ]
    assert len(set(prints)) == len(prints)
    assert print_of(trimmed) == print_of(trimmed)
