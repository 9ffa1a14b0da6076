"""Arguments of a wrong type, unknown columns, formats and options: the message says what to do."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.errors import ArgumentError, PenstockError, PlanError, SpecError, UnknownFormatError, closest, suggestion
from penstock.formats.base.format import available
from penstock.plan.pack import Pack
from tests.packages import of_installed

SOURCES = sorted(Path(penstock.__file__).parent.rglob("*.py"))


@pytest.fixture(scope="module")
def data() -> penstock.EpisodeDataset:
    columns = {"observations": {"image": np.zeros((8, 2)), "state": np.zeros((8, 3))}, "rewards": np.zeros(6)}
    return penstock.from_arrays(columns, lengths=[4, 2])


@pytest.mark.parametrize("index", ["rewards", 1.5, [0.5], np.zeros((1, 1), int), None])
def test_episodes_are_read_and_chosen_by_numbers(data: Any, index: object) -> None:
    with pytest.raises(ArgumentError, match=r"expected numbers of episodes, got .*data\[\[4, 2\]\]"):
        data[index]


def test_an_index_chooses_episodes_as_of_a_list(data: Any) -> None:
    assert [len(data[i]) for i in (0, np.int32(1), -1)] == [4, 2, 2]
    whole = penstock.from_arrays({"x": np.arange(10)}, lengths=[1, 2, 3, 4])
    for index in (slice(1, 3), slice(None, None, -1), slice(9, 12), slice(-2, None), [3, 0, 3], [-1], np.arange(2), []):
        wanted = np.arange(4)[np.asarray(index, int) if isinstance(index, list) else index].tolist()
        assert whole[index].table()["id"].tolist() == wanted
    mask = [True, False, False, True]
    assert whole[mask].table()["id"].tolist() == whole[np.array(mask)].table()["id"].tolist() == [0, 3]
    assert whole.filter(mask).table()["id"].tolist() == [0, 3]
    with pytest.raises(PlanError, match=r"a mask of one bool for each episode \(4\), got an array of bool\[2\]"):
        whole.filter([True, False])
    with pytest.raises(IndexError, match="expected a mask of 4 episodes, got one of 2"):
        whole[[True, False]]


@pytest.mark.parametrize("index", ["0", [0.5], 1.5, [[0, 1]]])
def test_samples_are_read_by_integers(data: Any, index: object) -> None:
    with pytest.raises(ArgumentError, match="expected integers or a slice, got"):
        data.steps()[index]


def test_transforms_go_where_they_belong(data: Any) -> None:
    with pytest.raises(
        ArgumentError, match=r"such as Where or Windows, or a Curation, got Shuffle\(.*; steps\(\), windows"
    ):
        data.apply(penstock.transforms.Shuffle(0))
    with pytest.raises(ArgumentError, match=r"a transform of the order, such as Shuffle, got 3; map\(\) applies"):
        data.steps().apply(3)
    with pytest.raises(ArgumentError, match="expected a function of columns, got 3"):
        data.steps().map(3)
    with pytest.raises(IndexError, match="expected episodes within 0:2, got 1:8"):
        data[[1, 7]]


def test_a_function_of_where_gets_all_episodes(data: Any) -> None:
    with pytest.raises(PlanError, match=r"one boolean an episode \(2\), got bool\[\]; it gets the columns of all"):
        data.filter(lambda episode: len(episode) > 1)
    assert len(data.filter(lambda table: table["total_steps"] > 2)) == 1
    assert len(data.filter("1 > 0")) == 2  # one value for all


def test_a_function_of_map_returns_columns(data: Any) -> None:
    with pytest.raises(SpecError, match=r"expected columns by name from .* got NoneType; return a dict"):
        data.steps().map(lambda columns: None)[0]


def test_an_empty_dataset_says_why(data: Any) -> None:
    with pytest.raises(IndexError, match="expected positions within 0:0, got 0:1; no episode is as long as 9 steps"):
        data.windows(9)[0]


@pytest.mark.parametrize("name", ["actions", "rewards", "infos/x"])
def test_columns_of_steps_have_no_row_more(name: str) -> None:
    columns = {name: np.zeros(3)}
    if name == "infos/x":
        assert penstock.from_arrays(columns, lengths=[2]).spec[name].align == "boundary"
        return
    with pytest.raises(SpecError, match=f"expected {name} as 2 step rows"):
        penstock.from_arrays(columns, lengths=[2])
    assert penstock.from_arrays(columns, lengths=[2], align={name: "boundary"}).spec[name].align == "boundary"


@pytest.mark.parametrize("location", [None, 3, iter(["a"])])
def test_a_location_is_a_path_or_a_list(location: Any) -> None:
    with pytest.raises(ArgumentError, match="expected a path, a URL, a pattern or a list of them, got"):
        penstock.open(location)


def test_a_missing_path_has_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "cartpole").mkdir()
    with pytest.raises(FileNotFoundError, match=r"nothing at .*cartpol; did you mean 'cartpole'\?"):
        penstock.open(tmp_path / "cartpol")


def test_a_loader_and_a_mix_take_samples(data: Any) -> None:
    makes: list[Any] = [penstock.Loader, lambda given, _: penstock.mix([given])]
    for make in makes:
        with pytest.raises(ArgumentError, match=r"got EpisodeDataset; make samples .* with steps\(\), windows"):
            make(data, 4)
        with pytest.raises(ArgumentError, match=r"got list; penstock\.open and penstock\.from_arrays"):
            make([1, 2], 4)


def test_unknown_options_of_formats_are_named_with_those_that_there_are(tmp_path: Path, data: Any) -> None:
    path = penstock.convert(data, tmp_path / "columns").out
    with pytest.raises(
        ArgumentError, match=r"the format 'columns' has no option 'foo'; its options are \['episodes', 'first'\]"
    ):
        penstock.open(path, foo=1)
    with pytest.raises(ArgumentError, match=r"no option 'episode'; did you mean 'episodes'\?"):
        penstock.open(path, episode=1)


@pytest.mark.parametrize("name", of_installed(["columns", "demos", "lc0", "webdataset"]))
def test_every_format_refuses_unknown_options_in_the_same_words(name: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", observations=np.zeros((3, 2)), actions=np.zeros(2), dones=np.ones(2, bool))
    with pytest.raises(ArgumentError, match=r"^the (format|kind) '\w+' has no option 'speeed'; "):
        available()[name].open(tmp_path / "a.npz", speeed=1)


def test_minari_names_its_options_and_their_values(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"expected infos in .* and cache .*'info': 'skip'.*did you mean 'infos'"):
        available()["minari"].open(tmp_path, info="skip")


def test_unknown_columns_and_formats_have_a_suggestion(data: Any, tmp_path: Path) -> None:
    batch = data.steps()[:2]
    for read in (lambda: batch["observation/image"], lambda: data.spec["image"], lambda: data.spec.paths("imagee")):
        with pytest.raises(KeyError, match="did you mean 'observations/image'"):
            read()
    with pytest.raises(SpecError, match="did you mean 'rewards'"):
        data.steps().select_columns("reward")
    with pytest.raises(PlanError, match="did you mean 'rewards'"):
        data.windows(2, columns={"reward": (0, 1)})
    with pytest.raises(PlanError, match="did you mean 'rewards'"):
        data.sequences().select_columns("rewards").pack({"reward": 4})
    with pytest.raises(UnknownFormatError, match="got 'colunms'; did you mean 'columns'"):
        penstock.open(tmp_path, format="colunms")


def test_tables_of_sequences_need_a_width_where_epochs_differ(data: Any) -> None:
    packs = data.sequences().shuffle(seed=3).pack(6, marks=("cu_seqlens",))
    assert packs[:]["cu_seqlens"].shape[1] == 3
    with pytest.raises(PlanError, match=r"width of \['cu_seqlens'\] .*; add max_sequences=N to pack\(\)"):
        data.sequences().pack(6, marks=("cu_seqlens",), repack=True)
    assert data.sequences().pack(6, marks=("cu_seqlens",), repack=True, max_sequences=2)[:].n


def test_pack_shows_the_options_of_its_transform() -> None:
    method = inspect.signature(penstock.MapDataset.pack).parameters
    transform = inspect.signature(Pack).parameters
    assert [*method][1:] == [*transform]
    assert {name: p.default for name, p in method.items() if name != "self"} == {
        name: p.default for name, p in transform.items()
    }


def test_all_options_of_pack_arrive(data: Any) -> None:
    options: dict[str, Any] = {"method": "first_fit", "overlong": "split", "open_bins": 3, "align": 2, "seed": 5}
    packs = data.sequences().select_columns("rewards")
    assert packs.pack(4, **options).fingerprint == packs.apply(Pack(4, **options)).fingerprint


def test_similar_names() -> None:
    assert closest("Taks_Name", ["task_name", "benchmark"]) == "task_name"
    assert closest("image", ["state", "a/image", "b/image"]) == "a/image"
    assert closest("xyz", ["task_name"]) is None
    assert suggestion("xyz", []) == ""
    assert issubclass(ArgumentError, PenstockError)
    assert issubclass(ArgumentError, TypeError)


def test_similar_names_are_looked_for_in_one_place() -> None:
    importing = [
        file.name
        for file in SOURCES
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Import) and any(alias.name == "difflib" for alias in node.names)
    ]
    assert importing == ["errors.py"]


def test_derived_outputs_stay_whatever_is_selected(data: Any) -> None:
    windows = data.windows(2, pad="zero", columns={"rewards": ("rewards", 0, 3)})
    for chosen in (("rewards",), ("rewards", "rewards_mask")):
        assert list(windows.select_columns(*chosen)[:1].flat) == ["rewards", "mask", "rewards_mask"]


def test_arguments_of_statistics(data: Any) -> None:
    with pytest.raises(ArgumentError, match=r"got 'rewards'; write \['rewards'\]"):
        penstock.statistics(data, "rewards")
    with pytest.raises(ArgumentError, match="a label for each episode, got 3"):
        penstock.statistics(data, by=3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="expected threads >= 0, got -1; 0 works in the caller"):
        penstock.statistics(data, threads=-1)


@pytest.mark.parametrize("name", ["samples", "sampler", "ratio"])
def test_arguments_of_a_replay(name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"expected {name} as in penstock.*, got 'prioritized'"):
        penstock.Replay(None, 100, **{name: "prioritized"})  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"expected an episode as in .*, got \{'x': 1\}"):
        penstock.Replay(None, 100).write({"x": 1})  # type: ignore[arg-type]


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a list of arrays": (lambda _: penstock.from_arrays([{"x": 1}], [1]), "got list; penstock.from_records takes"),  # type: ignore[arg-type]
    "lengths as text": (lambda _: penstock.from_arrays({"x": np.zeros(3)}, "3"), r"lengths=\[2, 3\], got '3'"),  # type: ignore[arg-type]
    "steps of an episode": (lambda data: list(data[0]), r"got 0; episode\['observations/image'\]\[0\] is a value"),
    "one =": (lambda data: data.filter("return = 3"), "got 'return = 3'; == compares"),
    "shuffle=": (lambda data: data.steps().loader(2, shuffle=True), r"no argument 'shuffle'; use shuffle\(seed=0\)"),
    "num_workers=": (lambda data: data.steps().loader(2, num_workers=2), "no argument 'num_workers'; use threads="),
    "a file as state": (
        lambda data: data.steps().loader(2).load_state_dict("state.json"),
        r"expected the dict of state_dict\(\) of a Loader, got 'state.json'",
    ),
    "no state": (lambda data: data.steps().loader(2).load_state_dict(None), "of a Loader, got None"),
    "rename": (lambda data: data.steps().rename_columns({}), r"use loader\(rename="),
    "statistics": (lambda data: data.statistics(), r"use penstock\.statistics\(data\)"),
    "windows of steps": (lambda data: data.steps().windows(2), r"windows\(n\) of the episodes, before steps\(\)"),
    "a name as environment": (
        lambda _: penstock.rollout("CartPole-v1", episodes=1),  # type: ignore[arg-type]
        r"gymnasium\.make\('CartPole-v1'\)",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_newcomers_write_is_answered(data: Any, wrong: str) -> None:
    call, message = WRONG[wrong]
    with pytest.raises((PenstockError, AttributeError, TypeError), match=message):
        call(data)
