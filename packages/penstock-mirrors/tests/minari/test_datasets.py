"""Datasets of the compatible API: every release's files, growing, filtering, splitting, combining."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from penstock.errors import DataError, FormatError
from penstock_mirrors import minari
from penstock_mirrors.minari import DataCollector, MinariDataset
from penstock_mirrors.minari.data_collector import EpisodeBuffer
from penstock_mirrors.minari.dataset.minari_storage import MinariStorage
from penstock_mirrors.minari.serialization import deserialize_space, serialize_space

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "minari"
FORMATS = ("hdf5", "arrow", "parquet")
BOX = spaces.Box(-1, 1, (3,), np.float64)
IMAGE = spaces.Box(0, 255, (33, 32, 4), np.uint8)

Collect = Callable[..., MinariDataset]
FromBuffers = Callable[..., MinariDataset]
Buffers = Callable[..., list[EpisodeBuffer]]


@pytest.mark.parametrize("dataset", sorted(GOLDEN.glob("*/*-v*")), ids=lambda p: f"{p.parent.name}-{p.name}")
def test_files_of_every_release_load(dataset: Path, root: Path) -> None:
    shutil.copytree(dataset, root / dataset.name)
    assert dataset.name in minari.list_local_datasets(compatible_minari_version=True)
    loaded = minari.load_dataset(dataset.name)
    episodes = list(loaded)
    assert [episode.id for episode in episodes] == list(range(len(loaded)))
    assert loaded.total_steps == sum(map(len, episodes))
    assert loaded.spec.dataset_id == dataset.name
    assert loaded.observation_space.contains(_row(loaded[0].observations, 0))


def _row(values: Any, i: int) -> Any:
    if isinstance(values, dict):
        return {key: _row(value, i) for key, value in values.items()}
    return tuple(_row(value, i) for value in values) if isinstance(values, tuple) else values[i]


def test_a_dataset_of_0_4_keeps_its_infos_state_and_environment(root: Path) -> None:
    shutil.copytree(GOLDEN / "0.4.2" / "cartpole-old-v1", root / "cartpole-old-v1")
    dataset = minari.load_dataset("cartpole-old-v1")
    assert dataset[0].infos.keys() | dataset[0].extras.keys() >= {"state"}
    assert dataset.env_spec is not None
    assert dataset.recover_environment().spec == dataset.env_spec


@pytest.mark.parametrize("data_format", FORMATS)
def test_images_are_lossless_by_default(from_buffers: FromBuffers, buffers: Buffers, data_format: str) -> None:
    made = buffers(IMAGE)
    dataset = from_buffers("image/test-v0", IMAGE, made, data_format=data_format)
    for episode, buffer in zip(dataset, made, strict=True):
        np.testing.assert_array_equal(episode.observations, np.stack(buffer.observations))
    assert dataset.storage.metadata["jpeg_encoding"] is False


def test_images_lose_detail_on_request(from_buffers: FromBuffers, buffers: Buffers) -> None:
    space = spaces.Box(0, 255, (33, 32, 3), np.uint8)
    dataset = from_buffers("image/test-v0", space, buffers(space), jpeg_encoding=True)
    assert dataset.storage.metadata["jpeg_encoding"] is True
    assert dataset[0].observations.shape == (4, 33, 32, 3)


@pytest.mark.parametrize("data_format", FORMATS)
def test_buffers_are_appended_with_their_metadata(
    from_buffers: FromBuffers, buffers: Buffers, data_format: str
) -> None:
    dataset = from_buffers("box/test-v0", BOX, data_format=data_format)
    dataset.update_dataset_from_buffer(buffers(BOX, 3, first=7))
    assert [m["seed"] for m in dataset.storage.get_episode_metadata(range(5))] == [0, 1, 7, 8, 9]
    assert dataset.storage.get_episode_metadata([4])[0]["options"] == {"level": {"number": 2}}
    assert minari.load_dataset("box/test-v0").total_steps == 15


@pytest.mark.parametrize("data_format", FORMATS)
def test_infos_stay_readable_through_append_and_combine(collect: Collect, play: Any, data_format: str) -> None:
    first = collect("box/one-v0", record_infos=True, data_format=data_format)
    env = DataCollector(gymnasium.make("Counting-v0"), record_infos=True, data_format="hdf5")
    play(env, 1)
    env.add_to_dataset(first)
    second = collect("box/two-v0", record_infos=True)
    combined = minari.combine_datasets([first, second], "box/both-v0")
    assert [episode.infos["t"].tolist() for episode in combined] == [[0, 1, 2, 3]] * 5
    assert combined[4].infos["name"].tolist()[-1] == "step 3"


def test_combining_keeps_what_is_known_and_honours_filters(collect: Collect) -> None:
    scores = {"ref_min_score": 0.0, "ref_max_score": 3.0, "requirements": ["numpy>=2"]}
    one = collect("box/one-v0", 3, author="a", **scores)
    two = collect("box/two-v0", 2, seed=50, author="b", **scores)
    kept = one.filter_episodes(lambda episode: episode.id != 1)
    combined = minari.combine_datasets([kept, two], "brand/new/both-v0")
    metadata = combined.storage.metadata
    assert [m["seed"] for m in combined.storage.get_episode_metadata(range(4))] == [5, 7, 50, 51]
    assert combined.storage.get_episode_metadata([0])[0]["rewards_sum"] == 3
    assert metadata["author"] == {"a", "b"}
    assert (metadata["description"], metadata["requirements"]) == ("a test", ["numpy>=2"])
    assert minari.get_normalized_score(combined, [0, 1.5, 3]).tolist() == [0, 0.5, 1]
    assert combined.combined_datasets == ["box/one-v0", "box/two-v0"]
    assert combined.recover_environment(eval_env=True).spec == gymnasium.spec("CartPole-v1")
    assert minari.namespace.list_local_namespaces() == ["box", "brand", "brand/new"]


def test_combining_does_not_encode_anew(from_buffers: FromBuffers, buffers: Buffers) -> None:
    space = spaces.Box(0, 255, (33, 32, 3), np.uint8)
    lossy = from_buffers("image/lossy-v0", space, buffers(space), jpeg_encoding=True)
    exact = from_buffers("image/exact-v0", space, buffers(space))
    combined = minari.combine_datasets([lossy, exact], "image/both-v0")
    for episode, part in zip(combined, [*lossy, *exact], strict=True):
        np.testing.assert_array_equal(episode.observations, part.observations)


def test_datasets_that_differ_are_not_combined(collect: Collect, from_buffers: FromBuffers) -> None:
    one, other = collect("box/one-v0"), from_buffers("box/other-v0", BOX)
    with pytest.raises(DataError, match="spaces"):
        minari.combine_datasets([one, other], "box/both-v0")
    with pytest.raises(DataError, match="at least one"):
        minari.combine_datasets([], "box/both-v0")
    assert set(minari.list_local_datasets()) == {"box/one-v0", "box/other-v0"}


def test_views_keep_metadata_and_count_without_reading(collect: Collect) -> None:
    dataset = collect("box/test-v0", 6)
    parts = minari.split_dataset(dataset, [1, 3], seed=1)
    assert [len(part) for part in parts] == [1, 3]
    assert parts[1].total_steps == parts[1].spec.total_steps == 9
    assert set(parts[0].episode_indices) & set(parts[1].episode_indices) == set()
    assert parts[1].sample_episodes(3)[0].total_steps == 3
    assert (dataset[-1].id, parts[1][0].id) == (5, parts[1].episode_indices[0])
    with pytest.raises(ValueError, match="sum"):
        minari.split_dataset(dataset, [4, 3])
    with pytest.raises(IndexError):
        dataset[6]
    with pytest.raises(TypeError):
        dataset[0:2]  # type: ignore[index]


def test_two_open_datasets_see_each_others_episodes(collect: Collect, buffers: Buffers) -> None:
    mine = collect("box/test-v0")
    theirs = minari.load_dataset("box/test-v0")
    made = [EpisodeBuffer(observations=np.zeros((2, 2)), actions=[0], rewards=[1], terminations=[1], truncations=[0])]
    theirs.update_dataset_from_buffer(made)
    mine.update_dataset_from_buffer(made)
    assert mine.storage.total_episodes == theirs.storage.total_episodes == 4
    assert mine.episode_indices.tolist() == [0, 1, 3]
    assert [len(e) for e in theirs.iterate_episodes(range(4))] == [3, 3, 1, 1]


@pytest.mark.parametrize("data_format", FORMATS)
def test_long_episodes_come_back_whole(data_format: str) -> None:
    steps = 40_000
    column = np.arange(steps + 1, dtype=np.float32)
    flags = np.zeros(steps, bool)
    made = [
        EpisodeBuffer(observations=column + e, actions=flags, rewards=flags, terminations=flags, truncations=flags)
        for e in range(2)
    ]
    storage = MinariStorage.new(
        minari.storage.get_dataset_path("long") / "data",
        spaces.Box(-np.inf, np.inf, ()),
        spaces.Discrete(2),
        data_format=data_format,
    )
    storage.update_episodes(made)
    second = next(iter(storage.get_episodes([1])))
    np.testing.assert_array_equal(second["observations"], column + 1)


def test_values_that_do_not_fit_are_refused_and_nothing_is_left(from_buffers: FromBuffers, root: Path) -> None:
    good = {"rewards": [0.0], "terminations": [False], "truncations": [True]}
    bad = [
        EpisodeBuffer(observations=np.zeros((2, 4)), actions=[0], **good),
        EpisodeBuffer(observations=np.zeros((3, 3)), actions=[0], **good),
        EpisodeBuffer(observations=np.zeros((2, 3)), actions=[0.5], **good),
        EpisodeBuffer(id=4, observations=np.zeros((2, 3)), actions=[0], **good),
        EpisodeBuffer(observations=np.zeros((2, 3)), actions=[0], infos={"a": [[1], [1, 2]]}, **good),
        EpisodeBuffer(observations={"a": np.zeros((2, 3))}, actions=[0], **good),
    ]
    for buffer in bad:
        with pytest.raises(DataError):
            from_buffers("box/test-v0", BOX, [buffer])
    assert minari.list_local_datasets() == {}
    assert [path.name for path in root.iterdir() if path.name != "box"] == []


def test_lists_of_dicts_are_dicts_of_lists(from_buffers: FromBuffers) -> None:
    space = spaces.Dict({"a": spaces.Discrete(9), "b": spaces.Tuple((spaces.Text(4), spaces.Discrete(9)))})
    observations = [{"a": 1, "b": ("x", 2)}, {"a": 3, "b": ("yz", 4)}]
    buffer = EpisodeBuffer(observations=observations, actions=[0], rewards=[0], terminations=[1], truncations=[0])
    found = from_buffers("nested/test-v0", space, [buffer])[0].observations
    assert found["a"].tolist() == [1, 3]
    assert found["b"][0] == ["x", "yz"]
    assert found["b"][1].tolist() == [2, 4]


class Mission(gymnasium.Space[str]):
    """A space of text that the standard does not have."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return f"go to {self.np_random.integers(100)}"

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and x.startswith("go to ")


@pytest.fixture
def mission() -> Iterator[None]:
    serialize_space.register(Mission)(lambda space, to_string=True: '{"type": "Mission"}' if to_string else MISSION)
    deserialize_space.register("Mission")(lambda data: Mission())
    yield
    deserialize_space.registry.pop("Mission")


MISSION = {"type": "Mission"}


@pytest.mark.parametrize("data_format", FORMATS)
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.usefixtures("mission")
def test_spaces_of_ones_own_are_stored(
    from_buffers: FromBuffers, buffers: Buffers, data_format: str, nested: bool
) -> None:
    space: Any = spaces.Dict({"m": Mission(), "t": spaces.Tuple((spaces.Discrete(3),))}) if nested else Mission()
    made = buffers(space)
    dataset = from_buffers("mission/test-v0", space, made, data_format=data_format)
    again = minari.load_dataset("mission/test-v0")
    again.update_dataset_from_buffer(buffers(space, 1))
    assert isinstance(again.observation_space["m"] if nested else again.observation_space, Mission)
    for held in (dataset, again):
        found, wanted = held[1].observations, made[1].observations
        assert (found["m"], found["t"][0].tolist()) == (wanted["m"], wanted["t"][0]) if nested else found == wanted
    assert len(again) == 3


def test_metadata_that_describes_the_data_stays(collect: Collect) -> None:
    storage = collect("box/test-v0").storage
    with pytest.raises(ValueError, match="You are not allowed to update values for dataset_id"):
        storage.update_metadata({"dataset_id": "x-v0"})
    storage.update_metadata({"author": {"c"}, "mine": [1, 2]})
    assert (storage.metadata["author"], storage.metadata["mine"]) == ({"c"}, [1, 2])
    with pytest.raises(ValueError, match="different lengths"):
        storage.update_episode_metadata([{"a": 1}])
    storage.update_episode_metadata([{"a": 1}], [1])
    assert [m.get("a") for m in storage.get_episode_metadata([0, 1])] == [None, 1]


def test_reference_scores_are_measured(collect: Collect) -> None:
    metadata = collect("box/test-v0", eval_env="Counting-v0", expert_policy=lambda _: 3).storage.metadata
    assert metadata["ref_max_score"] == 9
    assert 0 <= metadata["ref_min_score"] <= 9
    with pytest.raises(ValueError, match="at the same time"):
        collect("box/other-v0", expert_policy=lambda _: 3, ref_max_score=9)
    with pytest.raises(ValueError, match="Reference score"):
        minari.get_normalized_score(collect("box/third-v0"), 1)


def test_an_unknown_release_is_refused(collect: Collect) -> None:
    path = collect("box/test-v0").storage.data_path / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "minari_version": "9.9"}))
    with pytest.raises(FormatError, match=r"9\.9"):
        minari.load_dataset("box/test-v0")
    assert minari.list_local_datasets(compatible_minari_version=True) == {}
    assert list(minari.list_local_datasets()) == ["box/test-v0"]


def test_a_dataset_without_episodes_is_one(about: dict[str, Any]) -> None:
    dataset = DataCollector(gymnasium.make("Counting-v0")).create_dataset("box/empty-v0", **about)
    assert (len(dataset), list(dataset), dataset.total_steps) == (0, [], 0)


def test_missing_facts_are_warned_about(from_buffers: FromBuffers) -> None:
    missing = dict.fromkeys(("algorithm_name", "author", "author_email", "code_permalink", "description", "eval_env"))
    with pytest.warns(UserWarning, match="is set to None") as caught:
        from_buffers("box/test-v0", BOX, **missing)
    told = " ".join(str(warning.message) for warning in caught)
    assert all(f"`{name}` is set to None" in told for name in missing)
