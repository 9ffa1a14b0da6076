"""Live data of any source that grows: Minari episodes, appended to while they are read."""

from __future__ import annotations

from collections import Counter
from itertools import chain, islice, pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.core.episode import Episode
from penstock.errors import FormatError, SpecError
from penstock.formats.columns import FORMAT as COLUMNS
from penstock.formats.minari import FORMAT as MINARI
from penstock_live import source_chunks
from penstock_live.account import SourceGone
from penstock_live.catalog import ChunkCatalog
from penstock_live.chunk_loader import ChunkLoader
from penstock_live.hooks import ChunkFunctions
from penstock_live.intake import Intake
from penstock_live.journal import Arrival, Journal
from penstock_live.open_source import OpenSource
from penstock_live.pipeline import LiveOptions, LivePipeline
from penstock_live.source_chunks import EpisodeInlet, RowLayout
from penstock_live.splitter import ChunkSourceSplitter
from tests.formats.minari.conftest import simple_spec

SPEC = simple_spec()
FORMATS = [MINARI, COLUMNS]


def episode(e: int) -> Episode:
    """Episode `e`, whose actions say which step they are, and whose rewards which episode."""
    steps = 1 + e * 5 % 7
    columns: dict[str, Any] = {
        "observations": np.zeros((steps + 1, *SPEC["observations"].shape), SPEC["observations"].dtype),
        "actions": np.arange(steps),
        "rewards": np.full(steps, float(e)),
        "terminations": np.arange(steps) == steps - 1,
        "truncations": np.zeros(steps, bool),
    }
    return Episode(SPEC, columns)


def steps_of(episodes: Any) -> Counter[tuple[int, int, bool]]:
    return Counter(
        (int(r), int(a), bool(t))
        for e in episodes
        for r, a, t in zip(*(episode(e).columns[c] for c in ("rewards", "actions", "terminations")), strict=True)
    )


def listed(batch: dict[str, Any]) -> list[tuple[int, int, bool]]:
    columns = (batch[c].tolist() for c in ("rewards", "actions", "terminations"))
    return [(int(r), int(a), bool(t)) for r, a, t in zip(*columns, strict=True)]


def pipeline(path: Path, form: Any, journal: Journal | None = None, **options: Any) -> LivePipeline:
    inlet = EpisodeInlet(form.open(path), ["rewards", "actions", "terminations"])
    chosen: dict[str, Any] = {"reservoir": 8, "batch_size": 5, "threads": 2, "draws": 1, **options}
    replay = chosen.pop("replay", None)
    return LivePipeline(inlet, LiveOptions(**chosen), decode=inlet.layout.decode, journal=journal, replay=replay)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("seed", [0, 3])
def test_episodes_that_are_appended_join_the_pass_and_a_journal_replays_it(
    tmp_path: Path, form: Any, seed: int
) -> None:
    path, journal, got = tmp_path / "grown-v0", Journal(), list[Any]()
    with form.create(path, SPEC, {}) as writer:
        writer.write_all([episode(e) for e in range(40)])
    options: dict[str, Any] = {"passes": 1, "seed": seed}
    with pipeline(path, form, journal, follow="manual", **options) as live:
        for batch in live:
            got.append(listed(batch))
            if len(got) in (1, 2):
                with form.append(path) as writer:
                    writer.write_all([episode(e) for e in range(34 + len(got) * 6, 40 + len(got) * 6)])
                assert live.poll() == 1
                assert live.poll() == 0
    assert Counter(chain.from_iterable(got)) == steps_of(range(52))
    for threads in (1, 5):
        with pipeline(path, form, replay=journal.moves(), threads=threads, **options) as again:
            assert [listed(batch) for batch in again] == got


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_over_episodes_goes_on_from_its_state_though_more_were_appended(tmp_path: Path, form: Any) -> None:
    path = tmp_path / "grown-v0"
    with form.create(path, SPEC, {}) as writer:
        writer.write_all([episode(e) for e in range(12)])
    options: dict[str, Any] = {"window": 10, "follow": "manual", "passes": 1}
    with pipeline(path, form, **options) as first:
        early = [frame for _ in range(3) for frame in listed(next(first))]
        state = first.state_dict()
    with form.append(path) as writer:
        writer.write(episode(12))
    again = pipeline(path, form, **{**options})
    again.load_state_dict(state)
    with again:
        late = [frame for batch in again for frame in listed(batch)]
    got = Counter(early + late)
    if not state["join"]["open"]:  # threads had read ahead to the end of the pass, which nothing joins
        assert got == steps_of(range(2, 12))
        return
    # The window holds the newest ten: episode 2 leaves when episode 12 comes, unless it had been drawn before.
    assert got in (steps_of(range(2, 13)), steps_of(range(3, 13)))


HOOKS = {
    "no functions": ChunkFunctions(),
    "transform": ChunkFunctions(transform=lambda frames, name: frames if len(frames) else 1 / 0),
    "weights": ChunkFunctions(weights=lambda frames: np.ones(len(frames)) / frames.any()),
    "encode": ChunkFunctions(encode=lambda frames, places: frames[places] if len(frames) else 1 / 0),
}


@pytest.mark.parametrize("hooks", HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize(
    "options",
    [{}, {"rate": "1/2", "passes": 2}, {"count": 1, "ahead": 1, "passes": 2}, {"hanse_gamma": 0.0}, {"threads": 2}],
    ids=str,
)
def test_episodes_without_steps_are_read_and_no_damage(hooks: ChunkFunctions, options: dict[str, Any]) -> None:
    lengths = [0, 2] * 150
    source = penstock.from_arrays({"x": np.arange(1, 301)}, lengths).source
    inlet = EpisodeInlet(source, ["x"])
    chosen: dict[str, Any] = {
        "reservoir": 10,
        "batch_size": 20,
        "follow": False,
        "threads": 0,
        "max_lost": 0,
        **options,
    }
    with LivePipeline(inlet, LiveOptions(**chosen), hooks=hooks, decode=inlet.layout.decode) as live:
        values = [int(x) for batch in live for x in batch["x"]]
    assert sorted(values) == list(range(1, 301))
    account = live.account()
    assert (account["expected"], account["read"], account["failed"]) == (300, 300, 0)


def test_layouts_pack_and_unpack_any_arrays() -> None:
    source = penstock.from_arrays(
        {"a": np.arange(12, dtype="i2").reshape(6, 2), "b": np.arange(6) % 2 == 0, "c": np.linspace(0, 1, 6)}, [6]
    ).source
    layout = RowLayout(source.spec, ["c", "a", "b"])
    columns = {name: source.episode(0).columns[name] for name in ("c", "a", "b")}
    rows = layout.pack(columns)
    assert rows.shape == (6, layout.width) == (6, 13)
    kept: dict[str, Any] = {name: np.empty_like(values) for name, values in columns.items()}
    for out in (None, kept):
        for name, values in layout.decode(rows, out).items():
            np.testing.assert_array_equal(values, columns[name])
            assert values.dtype == columns[name].dtype
    np.testing.assert_array_equal(kept["a"], columns["a"])


def test_columns_that_are_not_one_row_a_step_are_refused() -> None:
    for columns in (["observations"], []):
        with pytest.raises(SpecError, match="arrays with a row a step"):
            RowLayout(SPEC, columns)


def test_episodes_that_are_not_there_are_gone() -> None:
    inlet = EpisodeInlet(penstock.from_arrays({"r": np.arange(3.0)}, [2, 1]).source, ["r"])
    with pytest.raises(SourceGone, match="a source of 2 episodes"):
        inlet.open(Arrival("episodes 1:3", "000000000001", 2))


@pytest.mark.parametrize("part", [0, 1])
def test_a_part_of_the_episodes_is_resumed(part: int) -> None:
    source = penstock.from_arrays({"rewards": np.arange(120.0)}, [3] * 40).source

    def pipeline() -> LivePipeline:
        inlet = EpisodeInlet(source, ["rewards"])
        options = LiveOptions(reservoir=5, batch_size=6, follow=False)
        return LivePipeline(ChunkSourceSplitter([1, 1]).split(inlet)[part], options, decode=inlet.layout.decode)

    with pipeline() as whole:
        states, batches = [whole.state_dict()], list[Any]()
        for batch in whole:
            batches.append(batch["rewards"].tolist())
            states.append(whole.state_dict())
    for i, state in enumerate(states):
        with pipeline() as again:
            again.load_state_dict(state)
            assert [batch["rewards"].tolist() for batch in again] == batches[i:]


@pytest.mark.parametrize("steps", [[12], [5, 12], [1, 2, 7, 12]])
def test_parts_of_episodes_are_the_same_however_they_came(tmp_path: Path, steps: list[int]) -> None:
    splitter, path = ChunkSourceSplitter([2, 1]), tmp_path / "data"
    with COLUMNS.create(path, SPEC, {}) as writer:
        writer.write_all([episode(e) for e in range(steps[0])])
    inlet = EpisodeInlet(COLUMNS.open(path), ["rewards"])
    options = LiveOptions(reservoir=0, batch_size=64, follow="manual", window=100)
    parts = [LivePipeline(part, options, decode=inlet.layout.decode) for part in splitter.split(inlet)]
    with parts[0], parts[1]:
        parts[0].poll()
        for last in steps[1:]:
            with COLUMNS.append(path) as writer:
                writer.write_all([episode(e) for e in range(len(inlet.source), last)])
            parts[0].poll()
        part_of = splitter.parts("episodes", 12)
        for i, part in enumerate(parts):  # passes are endless: threads may draw many before the last episodes arrive
            expected, seen = set(np.flatnonzero(part_of == i).tolist()), set[int]()
            for batch in islice(part, 5000):
                seen.update(batch["rewards"].astype(int).tolist())
                if seen >= expected:
                    break
            assert seen == expected


@pytest.mark.parametrize("encode", [None, lambda frames, places: frames[places, ::-1].copy()], ids=["rows", "encoded"])
@pytest.mark.parametrize(
    "options",
    [{}, {"rate": "2/3"}, {"rate": "1/8"}, {"count": 1}, {"count": 9, "ahead": 1}, {"count": 1, "hanse_gamma": 1.0}],
    ids=str,
)
def test_frames_of_all_draws_are_read_in_one_call_and_are_those_of_single_episodes(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], encode: Any
) -> None:
    monkeypatch.setattr(source_chunks, "TOGETHER", 100 * 16)
    lengths = [1 + e * 5 % 17 for e in range(200)]
    steps = np.arange(sum(lengths), dtype=np.float64)
    calls: list[int] = []

    class Counted(EpisodeInlet):
        def rows(self, steps: Any) -> Any:
            calls.extend([len(steps)] if len(steps) else [])  # without steps, lengths alone are asked for
            return super().rows(steps)

    def batches(draws: int) -> list[Any]:
        inlet = Counted(penstock.from_arrays({"a": steps, "b": -steps}, lengths).source, ["a", "b"])
        chosen = LiveOptions(
            **{"reservoir": 50, "batch_size": 64, "follow": False, "passes": 3, "threads": 0, "seed": 4},
            **{"draws": draws, "references": True, **options},
        )
        with LivePipeline(inlet, chosen, hooks=ChunkFunctions(encode=encode)) as live:
            return [[batch[name].tolist() for name in ("rows", "chunk", "place")] for batch in live]

    together = batches(32)
    reads, taken = len(calls), sum(calls)
    assert reads < taken / 32 + 30
    assert max(calls) <= 100 or encode is None
    calls.clear()
    monkeypatch.setattr(ChunkLoader, "gather", lambda *_: None)
    assert batches(1) == together
    assert len(calls) > 300


class OneByOne(EpisodeInlet):
    """Each episode is a source."""

    def begin(self, wanted: int) -> list[OpenSource]:
        (opened,) = super().begin(wanted)
        first, last = int(opened.arrival.key), len(self.source)
        return [self.open(Arrival(f"episodes {e}:{e + 1}", f"{e:012d}", 1)) for e in range(first, last)]


@pytest.mark.parametrize("part", [None, 0])
def test_frames_of_many_sources_are_read_in_one_call_also_by_a_resumed_run(
    monkeypatch: pytest.MonkeyPatch, part: int | None
) -> None:
    source = penstock.from_arrays({"x": np.arange(300)}, [3] * 100).source
    options = LiveOptions(reservoir=10, batch_size=20, count=1, follow=False, passes=9, threads=0, draws=8)
    groups: list[int] = []
    acquire_some = ChunkCatalog.acquire_some

    def counted(self: ChunkCatalog, numbers: Any) -> Any:
        groups.append(len(numbers))
        return acquire_some(self, numbers)

    def pipeline(inlet: EpisodeInlet) -> LivePipeline:
        given = inlet if part is None else ChunkSourceSplitter([1, 1]).split(inlet)[part]
        return LivePipeline(given, options, decode=inlet.layout.decode)

    monkeypatch.setattr(ChunkCatalog, "acquire_some", counted)
    monkeypatch.setattr(ChunkLoader, "choose", None)
    with pipeline(EpisodeInlet(source, ["x"])) as whole:
        wanted = [batch["x"].tolist() for batch in whole]
    with pipeline(OneByOne(source, ["x"])) as run:
        loader = iter(run)
        found = [next(loader)["x"].tolist() for _ in range(7)]
        state = run.state_dict()
    assert found == wanted[:7]
    assert (groups == []) == (part is None)
    monkeypatch.undo()
    monkeypatch.setattr(ChunkCatalog, "acquire_some", counted)
    groups.clear()
    with pipeline(OneByOne(source, ["x"])) as again:
        again.load_state_dict(state)
        assert [batch["x"].tolist() for batch in again] == wanted[7:]
    assert part is not None or len(groups) < 3  # until all sources are open


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_chunks_are_found_in_their_table_in_whatever_order_sources_are_opened(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    inlet = EpisodeInlet(penstock.from_arrays({"x": np.arange(10)}, [1] * 10).source, ["x"])
    catalog, cuts = ChunkCatalog(Intake.of(inlet)), [0, 2, 5, 6, 10]
    for first, last in pairwise(cuts):
        catalog.place(first + 5, Arrival(f"episodes {first}:{last}", f"{first:012d}", last - first))
    for i in order:
        numbers = np.arange(cuts[i + 1] + 4, cuts[i] + 4, -1)
        for _ in range(2):
            table, chunks = catalog.in_table(numbers) or (None, None)
            assert (table, chunks.tolist()) == (inlet, (numbers - 5).tolist())
    monkeypatch.setattr(catalog, "acquire_some", None)
    _, chunks = catalog.in_table(np.arange(5, 15)) or (None, None)
    assert chunks.tolist() == list(range(10))


def test_frames_that_cannot_be_read_together_are_read_alone_and_counted() -> None:
    class Damaged(EpisodeInlet):
        def rows(self, steps: Any) -> Any:
            if 7 in steps:
                raise FormatError("expected step 7, got damage")
            return super().rows(steps)

    inlet = Damaged(penstock.from_arrays({"x": np.arange(60)}, [3] * 20).source, ["x"])
    options = LiveOptions(reservoir=0, batch_size=60, follow=False, threads=0)
    with LivePipeline(inlet, options, decode=inlet.layout.decode) as live:
        (batch,) = live
    assert sorted(batch["x"].tolist()) == [x for x in range(60) if x not in (6, 7, 8)]
    assert live.account()["failed"] == 1


def test_an_error_of_an_encoder_names_its_episode() -> None:
    def encode(frames: Any, places: Any) -> Any:
        return 1 / 0 if (frames.view(np.int64) == 7).any() else frames[places]

    inlet = EpisodeInlet(penstock.from_arrays({"x": np.arange(60)}, [3] * 20).source, ["x"])
    options = LiveOptions(reservoir=0, batch_size=60, follow=False, threads=0)
    with (
        LivePipeline(inlet, options, hooks=ChunkFunctions(encode=encode)) as live,
        pytest.raises(ZeroDivisionError) as raised,
    ):
        list(live)
    assert raised.value.__notes__ == ["raised by a function of the pipeline's hooks, for episodes 0:20#2"]
