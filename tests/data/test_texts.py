"""Texts as tokens, against the published values of T5's tests and against plain loops over one text at a time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.data.texts import Texts
from penstock.errors import ArgumentError, PlanError, SpecError
from penstock.transforms import FillInTheMiddle, RandomPrefix, SpanCorruption

PRE, SUF, MID, EOS, TOP = 1001, 1002, 1003, 1, 999


def texts(seed: int, n: int = 60) -> tuple[penstock.EpisodeDataset, list[list[int]]]:
    rng = np.random.default_rng(seed)
    lengths = [1, 2, 3, *rng.integers(1, 40, n - 3).tolist()]
    words = [rng.integers(10, 900, length).tolist() for length in lengths]
    return penstock.from_arrays({"tokens": np.concatenate(words).astype("int32")}, lengths), words


def parts(columns: Any, prefix: str = "", name: str = "tokens") -> list[list[int]]:
    """The texts of a batch, in the order of rows, with a check of positions and padding."""
    out: list[list[int]] = []
    for row, segments, positions in zip(
        columns[name], columns[f"{prefix}segment_ids"], columns[f"{prefix}positions"], strict=True
    ):
        assert not row[segments == 0].any()
        assert not positions[segments == 0].any()
        for number in range(1, segments.max(initial=0) + 1):
            assert positions[segments == number].tolist() == list(range((segments == number).sum()))
            out.append(row[segments == number].tolist())
    return out


class FixedMask(SpanCorruption):
    """Span corruption with noise at given tokens."""

    mask: np.ndarray[Any, Any]

    def noise_mask(self, texts: Texts, keys: Any) -> Any:
        return self.mask


@pytest.mark.parametrize(
    ("tokens", "mask", "sentinel", "inputs", "targets"),
    [
        # T5's test_noise_span_to_unique_sentinel, and the complement for targets.
        ([10, 11, 12, 13, 14, 15], "110010", 999, [999, 12, 13, 998, 15], [10, 11, 999, 14, 998]),
        # T5's test_denoise.
        (
            [3, 2, 20, 4, 3, 2, 8, 13, 2, 3, 2, 23, 7, 19, 22, 3, 2, 7, 2],
            "0000000010000011111",
            25,
            [3, 2, 20, 4, 3, 2, 8, 13, 25, 3, 2, 23, 7, 19, 24],
            [25, 2, 24, 22, 3, 2, 7, 2],
        ),
        # T5's test_denoise_no_corruption.
        ([3, 2, 20], "000", 25, [3, 2, 20], [25]),
    ],
)
def test_sentinels_are_those_of_t5(
    tokens: list[int], mask: str, sentinel: int, inputs: list[int], targets: list[int]
) -> None:
    corruption = FixedMask(sentinel, 20, 20, eos=None)
    object.__setattr__(corruption, "mask", np.array([digit == "1" for digit in mask]))
    made = penstock.from_arrays({"tokens": tokens}, [len(tokens)]).sequences().map(corruption, seed=0, version=1)[:]
    assert parts(made, "inputs_", "inputs") == [inputs]
    assert parts(made, "targets_", "targets") == [targets]


@pytest.mark.parametrize(
    ("inputs", "density", "span", "wanted"),
    [(64, 0.2, 2.0, (70, 22)), (64, 0.2, 1.0, (63, 27)), (512, 0.15, 3.0, (568, 114))],  # T5's test_random_spans_helper
)
def test_lengths_are_those_of_t5(inputs: int, density: float, span: float, wanted: tuple[int, int]) -> None:
    corruption = SpanCorruption(TOP, inputs, noise_density=density, mean_noise_span_length=span, merge=True)
    assert (corruption.tokens_length, corruption.width[1]) == wanted
    data, _ = texts(0, 400)
    rows = data.sequences().pack(corruption.tokens_length, method="concat_split").map(corruption, seed=0)
    full = rows[: len(rows) - 1]
    assert (full["inputs_segment_ids"] == 1).all()
    assert (full["targets_segment_ids"] == 1).all()


def test_the_noise_of_32_tokens_has_the_spans_of_t5_and_all_choices_are_equally_likely() -> None:
    corruption = SpanCorruption(TOP, 40, 20, noise_density=0.25, mean_noise_span_length=2.0)
    data = penstock.from_arrays({"tokens": np.arange(32 * 200)}, [32] * 200).sequences()
    masks = corruption.noise_mask(Texts.of(data[:], "tokens"), np.arange(200, dtype=np.uint64)).reshape(200, 32)
    assert (masks.sum(1) == 8).all()
    assert ((np.diff(masks.astype(int), axis=1, prepend=0) == 1).sum(1) == 4).all()
    assert not masks[:, 0].any()
    assert masks[:, -1].all()

    small = SpanCorruption(TOP, 40, 20, noise_density=0.5, mean_noise_span_length=2.0)
    n = 9000
    rows = penstock.from_arrays({"tokens": np.arange(8 * n)}, [8] * n).sequences()[:]
    masks = small.noise_mask(Texts.of(rows, "tokens"), np.arange(n, dtype=np.uint64) * 7).reshape(n, 8)
    counts = Counter(map(tuple, masks.tolist()))
    assert len(counts) == 9  # 3 ways to cut the noise, and 3 to cut the rest
    assert sum((count - n / 9) ** 2 / (n / 9) for count in counts.values()) < 26  # chi-square, 8 degrees, 0.1 %


@pytest.mark.parametrize("seed", range(3))
def test_inputs_and_targets_together_are_the_texts(seed: int) -> None:
    data, words = texts(seed)
    for rows in (data.sequences(), data.sequences().pack(64, seed=seed), data.sequences().pack(64, align=8)):
        made = rows.map(SpanCorruption(TOP, 128, 64, eos=EOS), seed=seed)[:]
        found: list[list[int]] = []
        inputs, targets = parts(made, "inputs_", "inputs"), parts(made, "targets_", "targets")
        for text, spans in zip(inputs, targets, strict=True):
            assert text.pop() == spans.pop() == EOS
            answers: dict[int, list[int]] = {}
            for token in spans:
                if token > 900:
                    answers[token] = []
                else:
                    answers[max(answers) - len(answers) + 1].append(token)
            assert [token for token in text if token > 900] == [TOP - i for i in range(sum(t > 900 for t in text))]
            found.append([word for token in text for word in (answers[token] if token > 900 else [token])])
        assert sorted(found) == sorted(words)


def decoded(text: list[int]) -> tuple[str, list[int], tuple[int, int]]:
    """Order, tokens and cuts of a text with a filled middle."""
    if PRE not in text:
        return "", text, (0, 0)
    middle = text.index(MID)
    if text[1] == SUF:  # SPM, in which prefix and middle are one run of tokens, or PSM without a prefix
        return "SPM", text[middle + 1 :] + text[2:middle], (0, len(text[middle + 1 :]))
    suffix = text.index(SUF)
    prefix, rest, filled = text[1:suffix], text[suffix + 1 : middle], text[middle + 1 :]
    return "PSM", prefix + filled + rest, (len(prefix), len(prefix) + len(filled))


@pytest.mark.parametrize("seed", range(3))
def test_filled_texts_are_the_texts_in_another_order(seed: int) -> None:
    data, words = texts(seed, 300)
    packs = data.sequences().pack(64 - 3 * 8, max_sequences=8, seed=seed)
    for rows in (data.sequences(), packs):
        made = parts(rows.map(FillInTheMiddle(PRE, SUF, MID, 64), seed=seed)[:])
        orders, texts_, _ = zip(*map(decoded, made), strict=True)
        assert sorted(texts_) == sorted(words)
        share = Counter(orders)
        assert abs(share[""] - 150) < 40
        assert abs(share["PSM"] - 75) < 35
        assert abs(share["SPM"] - 75) < 35


def test_cuts_are_uniform() -> None:
    n = 9000
    data = penstock.from_arrays({"tokens": np.tile([10, 11], n)}, [2] * n).sequences()
    made = data.map(FillInTheMiddle(PRE, SUF, MID, 5, rate=1, spm_rate=0), seed=1)[:]["tokens"].tolist()
    counts = Counter(decoded(text)[2] for text in made)
    wanted = {(a, b): n * (1 if a == b else 2) / 9 for a in range(3) for b in range(a, 3)}  # two draws of 0, 1 or 2
    assert counts.keys() == wanted.keys()
    assert sum((counts[cut] - each) ** 2 / each for cut, each in wanted.items()) < 21  # chi-square, 5 degrees, 0.1 %


def test_a_prefix_has_1_token_to_all_but_one() -> None:
    data, _ = texts(5, 200)
    rows = data.with_column("loss_mask", lambda episode: episode.columns["tokens"] % 3 > 0).sequences().pack(64)
    batch = rows.map(RandomPrefix(), seed=3)[:]
    plain = rows[:]
    lengths: Counter[int] = Counter()
    for n, segments in enumerate(batch["segment_ids"]):
        for number in range(1, segments.max() + 1):
            place = np.flatnonzero(segments == number)
            prefix = int(batch["prefix_mask"][n, place].sum())
            assert batch["prefix_mask"][n, place[:prefix]].all()
            assert 1 <= prefix < len(place) or (len(place) == 1 and prefix == 0)
            if len(place) > 4:
                lengths[4 * (prefix - 1) // (len(place) - 1)] += 1
    assert not batch["prefix_mask"][batch["segment_ids"] == 0].any()
    assert np.array_equal(batch["loss_mask"], plain["loss_mask"].astype(bool) & ~batch["prefix_mask"])
    assert len(lengths) == 4
    assert min(lengths.values()) > 20


@pytest.mark.parametrize("fn", [FillInTheMiddle(PRE, SUF, MID, 64), SpanCorruption(TOP, 96, 48), RandomPrefix()])
def test_samples_are_independent_of_batches_and_resume_exactly(fn: Any) -> None:
    data, _ = texts(6)
    rows = data.sequences().pack(40, max_sequences=8, seed=0).map(fn, seed=2).shuffle(seed=1).repeat(2)
    whole = [sample for batch in rows.loader(batch_size=5) for sample in rows_of(batch)]
    assert [sample for batch in rows.loader(batch_size=3) for sample in rows_of(batch)] == whole
    loader = rows.loader(batch_size=5)
    batches = iter(loader)
    seen = [sample for _ in range(3) for sample in rows_of(next(batches))]
    resumed = rows.loader(batch_size=5)
    resumed.load_state_dict(loader.state_dict())
    assert seen + [sample for batch in resumed for sample in rows_of(batch)] == whole
    half = len(whole) // 2
    assert sorted(whole[:half]) != sorted(whole[half:])  # another epoch has other draws
    other = data.sequences().pack(40, max_sequences=8, seed=0).map(fn, seed=3)
    assert rows.fingerprint != other.fingerprint


def rows_of(batch: Any) -> list[list[list[int]]]:
    return [[array[i].tolist() for array in batch.flat.values()] for i in range(batch.n)]


def test_wrong_use_is_refused() -> None:
    data, _ = texts(7)
    packs = data.sequences().pack(64)
    fill = FillInTheMiddle(PRE, SUF, MID, 64)
    with pytest.raises(ArgumentError, match="seed=0"):
        packs.map(fill)[:1]
    with pytest.raises(SpecError, match="max_sequences"):
        packs.map(FillInTheMiddle(PRE, SUF, MID, 64, rate=1), seed=0)[:]
    with pytest.raises(SpecError, match=r"got \['extra'\].*select_columns"):
        data.with_column("extra", lambda episode: episode.columns["tokens"]).sequences().map(fill, seed=0)[:1]
    with pytest.raises(SpecError, match="segment_ids"):
        data.windows(4, pad="zero").map(lambda columns: {"tokens": columns["tokens"]}).map(fill, seed=0)[:1]
    with pytest.raises(SpecError, match="targets in a row"):
        packs.map(SpanCorruption(TOP, 128, 3), seed=0)[:]
    small = penstock.from_arrays({"tokens": np.arange(9, dtype="uint8")}, [9]).sequences()
    for wide in (FillInTheMiddle(PRE, SUF, MID, 64, rate=1), SpanCorruption(TOP, 128, 64)):
        with pytest.raises(SpecError, match=r"uint8 can hold.*int32"):
            small.map(wide, seed=0)[:]
    for wrong in ({"rate": 1.5}, {"length": 0}, {"spm_rate": -0.1}):
        with pytest.raises(PlanError):
            FillInTheMiddle(**{"prefix_token": 1, "suffix_token": 2, "middle_token": 3, "length": 5, **wrong})
    for wrong in ({"noise_density": 0}, {"noise_density": 1}, {"mean_noise_span_length": 0.5}, {"inputs_length": 2}):
        with pytest.raises(PlanError):
            SpanCorruption(**{"sentinel": TOP, "inputs_length": 9, **wrong})


@pytest.mark.parametrize("seed", range(3))
def test_a_role_mask_is_what_a_loop_over_each_conversation_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start, end = [1, 2], [3] if seed else [3, 1]
    lengths = rng.integers(1, 30, 80).tolist()
    tokens = rng.integers(0, 4, sum(lengths))  # many turns, also without an end and cut by the end of an episode
    data = penstock.from_arrays({"tokens": tokens}, lengths)
    data = data.with_column("loss_mask", penstock.columns.role_mask(start, end))
    for episode in data:
        words, inside, wanted = episode.columns["tokens"].tolist(), False, []
        for i in range(len(words)):
            if words[max(i - len(end), 0) : i] == end:
                inside = False
            if words[max(i - len(start), 0) : i] == start:
                inside = True
            wanted.append(inside)
        assert episode.columns["loss_mask"].tolist() == wanted
    with pytest.raises(ArgumentError, match="start and end"):
        penstock.columns.role_mask([], [1])
