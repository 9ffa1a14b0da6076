"""Each kind of finding is planted into clean data, in memory and in every format that can store it, and is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import penstock
from penstock.core.spaces import Box
from penstock.doctor.examine import MESSAGES, examine, leaks
from penstock.formats.base.findings import finding_kinds
from penstock.formats.base.format import named
from penstock.formats.memory import MemorySource

LENGTHS = [60, 90, 75, 60, 80]
SPEC = penstock.Spec(
    {
        "observations/state": penstock.Field(np.dtype("f4"), (3,), "boundary"),
        "observations/camera": penstock.Field(np.dtype("u1"), (12, 12, 3), "boundary"),
        "observations/time": penstock.Field(np.dtype("i8"), (), "boundary"),
        "next_observations/state": penstock.Field(np.dtype("f4"), (3,)),
        "actions": penstock.Field(np.dtype("f4"), (2,)),
        "rewards": penstock.Field(np.dtype("f8")),
        "terminations": penstock.Field(np.dtype("?")),
        "truncations": penstock.Field(np.dtype("?")),
        "timestamps": penstock.Field(np.dtype("f8")),
    },
    action_space=Box(np.full(2, -50.0), np.full(2, 50.0), np.dtype("f4")),
)
Values = dict[str, np.ndarray]


def clean(seed: int = 0) -> list[Values]:
    """Episodes of a smooth random walk, as a robot would record them."""
    rng = np.random.default_rng(seed)
    episodes: list[Values] = []
    for n in LENGTHS:
        state = np.cumsum(rng.normal(size=(n + 1, 3)), 0).astype("f4")
        truncations = np.zeros(n, "?")
        truncations[-1] = True
        episodes.append(
            {
                "observations/state": state,
                "observations/camera": rng.integers(0, 255, (n + 1, 12, 12, 3), np.uint8),
                "observations/time": np.arange(n + 1) * 100_000_000,  # nanoseconds
                "next_observations/state": state[1:].copy(),
                "actions": np.cumsum(rng.normal(size=(n, 2)), 0).clip(-40, 40).astype("f4"),
                "rewards": rng.normal(size=n),
                "terminations": np.zeros(n, "?"),
                "truncations": truncations,
                "timestamps": 1e3 + np.arange(n) * 0.1,
            }
        )
    return episodes


def cut(episode: Values, n: int) -> Values:
    """The first `n` steps."""
    return {path: rows[: n + (SPEC[path].align == "boundary")] for path, rows in episode.items()}


def change(e: int, path: str, rows: object, value: object) -> Callable[[list[Values]], list[Values]]:
    def planted(episodes: list[Values]) -> list[Values]:
        episodes[e][path][rows] = value
        return episodes

    return planted


def frozen(path: str) -> Callable[[list[Values]], list[Values]]:
    def planted(episodes: list[Values]) -> list[Values]:
        episodes[1][path][20:80] = episodes[1][path][20]
        if path == "observations/state":
            episodes[1]["next_observations/state"][:] = episodes[1][path][1:]
        return episodes

    return planted


def still(first: int, last: int) -> Callable[[list[Values]], list[Values]]:
    def planted(episodes: list[Values]) -> list[Values]:
        episode = episodes[2]
        for path in ("observations/state", "actions"):
            rows = np.arange(len(episode[path]))[first:last]
            episode[path][rows] = episode[path][rows[0]]
        episode["next_observations/state"][:] = episode["observations/state"][1:]
        return episodes

    return planted


def nearly(episodes: list[Values]) -> list[Values]:
    episodes[3] = {path: rows.copy() for path, rows in episodes[0].items()}
    episodes[3]["rewards"][5] += 1e-6
    return episodes


def stuck(path: str) -> Callable[[list[Values]], list[Values]]:
    """Some rows are repeated, then the value is where it would have been: it jumps."""

    def planted(episodes: list[Values]) -> list[Values]:
        episode = episodes[1]
        rows = episode[path]
        if rows.dtype == np.uint8:  # pictures that get lighter from step to step
            rows[:] = np.arange(12)[:, None, None] * 9 + np.arange(len(rows))[:, None, None, None]
        rows[30:45] = rows[30]
        if rows.dtype == np.float32:
            rows[45:] += 30
            episode["next_observations/state"][:] = rows[1:]
        return episodes

    return planted


def clipped(episodes: list[Values]) -> list[Values]:
    episodes[2]["actions"][::2] = 50
    episodes[2]["actions"][1::2] = -50
    episodes[2]["actions"][3] = 0
    return episodes


# name -> what is planted, and the episode in which it must be found
PLANTS: dict[str, tuple[Callable[[list[Values]], list[Values]], int]] = {
    "nan": (change(1, "observations/state", (7, 1), np.nan), 1),
    "infinite": (change(2, "rewards", 3, np.inf), 2),
    "outside-space": (change(0, "actions", 4, 51.0), 0),
    "early-end": (change(2, "terminations", 30, True), 2),
    "no-end": (change(3, "truncations", -1, False), 3),
    "no-steps": (lambda episodes: [cut(episodes[0], 0), *episodes[1:]], 0),
    "one-step": (lambda episodes: [*episodes[:4], cut(episodes[4], 1)], 4),
    "next-observation": (change(1, "next_observations/state", 9, 5.0), 1),
    "time-backward": (change(2, "timestamps", slice(40, 41), 1000.05), 2),
    "time-repeats": (change(0, "timestamps", slice(7, 8), 1000.6), 0),
    "time-gap": (change(3, "timestamps", slice(50, 60), 1e3 + np.arange(150, 160) * 0.1), 3),
    "time-rate": (change(4, "timestamps", slice(None), 1e3 + np.arange(80) * 0.2), 4),
    "time-drift": (change(1, "timestamps", slice(None), 1e3 + np.arange(90) * 0.1018), 1),
    "time-precision": (change(1, "timestamps", slice(None), 1e15 + np.arange(90) * 1.0), 1),
    "frozen-sensor": (frozen("observations/state"), 1),
    "frozen-picture": (frozen("observations/camera"), 1),
    "blank-picture": (change(0, "observations/camera", slice(10, 14), 0), 0),
    "constant-actions": (change(3, "actions", slice(None), 0.5), 3),
    "clipped-actions": (clipped, 2),
    "action-jump": (change(4, "actions", slice(33, 34), 49.0), 4),
    "idle-start": (still(0, 25), 2),
    "idle-end": (still(-25, None), 2),  # pyright: ignore[reportArgumentType]
    "duplicate-episode": (lambda episodes: [*episodes[:3], episodes[0], episodes[4]], 3),
    "near-duplicate": (nearly, 3),
}
ALSO = {  # other findings that are true of the planted data
    "nan": {"next-observation"},
    "outside-space": {"action-jump"},
    "one-step": {"no-end"},
    "time-backward": {"time-gap"},
    "clipped-actions": {"action-jump"},
    "time-precision": {"time-rate"},
}


def source_of(episodes: list[Values]) -> MemorySource:
    offsets = np.cumsum([0, *(len(episode["rewards"]) for episode in episodes)])
    columns = {path: np.concatenate([episode[path] for episode in episodes]) for path in SPEC}
    return MemorySource(SPEC, columns, offsets)


def stored(episodes: list[Values], path: Path, format: str) -> Path:
    with named(format).create(path, SPEC) as writer:
        for e, episode in enumerate(episodes):
            writer.write(penstock.Episode(SPEC, episode, e))
    return path


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["sensor", "picture"])
def test_a_short_stop_counts_if_the_value_jumps(name: str, seed: int) -> None:
    path = "observations/state" if name == "sensor" else "observations/camera"
    found = examine(source_of(stuck(path)(clean(seed))), deep=True, progress=False).findings
    assert [(f.name, f.column, f.episodes, f.rows) for f in found] == [(f"frozen-{name}", path, (1,), (31,))]
    strict = penstock.curation.CheckThresholds(stuck_steps=40)
    assert examine(source_of(stuck(path)(clean(seed))), deep=True, thresholds=strict).findings == ()


def test_every_finding_of_values_is_planted() -> None:
    assert PLANTS.keys() | {"wrong-return"} == MESSAGES.keys()
    assert MESSAGES.keys() < finding_kinds().keys()


@pytest.mark.parametrize("seed", range(5))
def test_clean_data_have_no_findings(seed: int) -> None:
    assert examine(source_of(clean(seed)), deep=True).findings == ()


@pytest.mark.parametrize("name", PLANTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_planted(name: str, seed: int) -> None:
    plant, episode = PLANTS[name]
    findings = {f.name: f for f in examine(source_of(plant(clean(seed))), deep=True, progress=False).findings}
    assert findings.keys() - ALSO.get(name, set()) == {name}
    assert episode in findings[name].episodes
    assert len(findings[name].rows) == len(findings[name].episodes)


STORED = ("no-end", "early-end", "time-gap", "frozen-sensor", "duplicate-episode", "idle-start")


@pytest.mark.parametrize("format", ["columns", "minari"])
@pytest.mark.parametrize("name", STORED)
def test_planted_in_files(name: str, format: str, tmp_path: Path) -> None:
    plant, _ = PLANTS[name]
    sound = penstock.check(stored(clean(), tmp_path / "sound-v0", format), deep=True)
    assert sound.findings == ()
    report = penstock.check(stored(plant(clean()), tmp_path / "planted-v0", format), deep=True)
    assert {finding.name for finding in report.findings} == {name}


def test_the_report_does_not_depend_on_threads() -> None:
    episodes = clean(3)
    for name in ("nan", "time-gap", "frozen-picture", "clipped-actions"):
        episodes = PLANTS[name][0](episodes)
    one, many = (examine(source_of(episodes), deep=True, threads=threads) for threads in (0, 3))
    assert one.findings == many.findings
    assert (one.digests == many.digests).all()
    for name, values in one.measures.flat.items():
        np.testing.assert_array_equal(values, many.measures[name])


def test_without_deep_pictures_are_not_read() -> None:
    findings = examine(source_of(PLANTS["blank-picture"][0](clean()))).findings
    assert [(finding.level, finding.name) for finding in findings] == [("note", "partial")]
    assert "observations/camera" in findings[0].message


def test_episodes_in_two_datasets_are_found() -> None:
    train = examine(source_of(clean(0)), deep=True)
    test = examine(source_of([*clean(1)[:2], clean(0)[3]]), deep=True)
    found = list(leaks({"train": train, "test": test}))
    assert [(name, finding.name, finding.episodes) for name, finding in found] == [("test", "leak", (2,))]
    assert "its episode 3" in found[0][1].message
    assert list(leaks({"train": train, "test": examine(source_of(clean(1)), deep=True)})) == []


def test_columns_of_tables_are_known_by_their_usual_names() -> None:
    names = {"observations/state": "observation.state", "actions": "action", "rewards": "reward"}
    episodes = PLANTS["nan"][0](PLANTS["action-jump"][0](clean()))
    columns = {new: np.concatenate([e[old][: len(e["rewards"])] for e in episodes]) for old, new in names.items()}
    data = penstock.from_arrays(columns, lengths=LENGTHS)
    report = examine(data.source, deep=True, progress=False)
    assert {(f.name, f.column) for f in report.findings} == {("nan", "observation.state"), ("action-jump", "action")}
    assert {"return", "jerk"} <= report.measures.flat.keys()


def test_thresholds_change_what_is_found() -> None:
    episodes = PLANTS["time-gap"][0](clean())
    loose = penstock.curation.CheckThresholds(gap_factor=1e4, drift_steps=1e4)
    assert examine(source_of(episodes), deep=True, thresholds=loose).findings == ()
    with pytest.raises(penstock.errors.ArgumentError, match="gap_factor"):
        penstock.check(source_of(episodes), thresholds={"gap_facto": 2})
    with pytest.raises(penstock.errors.ArgumentError, match="at least 0"):
        penstock.curation.CheckThresholds(gap_factor=-1.0)


def test_stored_returns_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with named("columns").create(path, SPEC) as writer:
        for e, episode in enumerate(clean()):
            total = float(episode["rewards"].sum()) + (e == 2)
            writer.write(penstock.Episode(SPEC, episode, e, {"total_reward": total}))
    findings = penstock.check(path, deep=True).findings
    assert [(finding.name, finding.column, finding.episodes) for finding in findings] == [
        ("wrong-return", "total_reward", (2,))
    ]


def test_episodes_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    class Broken(MemorySource):
        def read_array(self, column, selection, out):  # pyright: ignore
            start = int(selection.start[0])
            if column == "rewards" and start < LENGTHS[0] + LENGTHS[1] <= start + int(selection.length[0]):
                raise penstock.errors.FormatError("expected rewards, got rust")
            super().read_array(column, selection, out)

    inner = source_of(PLANTS["nan"][0](clean()))
    source = Broken(SPEC, {path: inner.read([path], _all(inner, path))[path][0] for path in SPEC}, inner.offsets)
    findings = {finding.name: finding for finding in examine(source, deep=True).findings}
    assert findings["unreadable"].episodes == (1,)
    assert "rust" in findings["unreadable"].message
    # What is planted into another column of the episode that cannot be read whole.
    assert findings["nan"].episodes == (1,)
    assert findings.keys() == {"unreadable", *(finding.name for finding in examine(inner, deep=True).findings)}


def _all(source: MemorySource, path: str) -> penstock.transforms.Selection:
    rows = source.rows(SPEC[path].align)
    one = np.ones(1, np.int64)
    count = int(rows[-1])
    return penstock.transforms.Selection(one * 0, one * 0, one * count, one * 0, (1, count))


def with_statistics(change: dict[str, object]) -> MemorySource:
    plain = source_of(clean())
    columns = {path: plain.read([path], _all(plain, path))[path][0] for path in SPEC}
    actions = columns["actions"]
    entry = {"min": actions.min(0), "max": actions.max(0), "mean": actions.mean(0), "count": [len(actions)]}
    return MemorySource(SPEC, columns, plain.offsets, {"statistics": {"actions": {**entry, **change}}})


@pytest.mark.parametrize("name", ["min", "max", "mean", "count"])
def test_stored_statistics_are_compared(name: str) -> None:
    assert examine(with_statistics({}), deep=True).findings == ()
    (found,) = examine(with_statistics({name: np.full(1 if name == "count" else 2, 77.0)}), deep=True).findings
    assert (found.name, found.column) == ("wrong-statistics", "actions")
    assert f"the stored {name} is 77.0" in found.message
    assert examine(with_statistics({name: "many"}), deep=True).findings == ()


def test_a_dtype_narrower_than_its_space_is_named() -> None:
    space = Box(np.full(2, -50.0), np.full(2, 50.0), np.dtype("f8"))
    fields = {"actions": penstock.Field(np.dtype("f4"), (2,))}
    source = MemorySource(
        penstock.Spec(fields, action_space=space), {"actions": clean()[0]["actions"]}, np.array([0, 60])
    )
    assert [finding.name for finding in examine(source, deep=True).findings] == ["narrow-dtype"]


@pytest.mark.parametrize(("dtype", "step"), [("f8", 0.1), ("i8", 100_000_000)])
def test_a_stated_rate_is_of_clocks_in_seconds(dtype: str, step: float) -> None:
    spec = penstock.Spec({"timestamps": penstock.Field(np.dtype(dtype))})
    columns = {"timestamps": (np.arange(40) * step).astype(dtype)}
    for fps, wrong in ((10, False), (20, dtype == "f8")):
        source = MemorySource(spec, columns, np.array([0, 20, 40]), {"fps": fps})
        assert [finding.name for finding in examine(source, deep=True).findings] == ["time-rate"] * wrong


@pytest.mark.parametrize("count", [1, 2])
def test_a_finding_of_the_format_hides_only_one_of_the_same_place(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(PLANTS["nan"][0](clean()), tmp_path / "data", "columns")
    (values,) = (each for each in penstock.check(path, deep=True).findings if each.name == "nan")
    known = [penstock.formats.Finding("nan", place, "expected numbers") for place in ("spec", values.where)]
    monkeypatch.setattr(type(named("columns")), "check", lambda self, path: iter(known[:count]))
    found = [each.where for each in penstock.check(path, deep=True).findings if each.name == "nan"]
    assert found == ["spec", values.where]
