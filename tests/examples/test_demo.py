"""The demo's road, shortened, and each of its parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import penstock
from examples.demo import story
from examples.demo.__main__ import demo
from examples.demo.learner import STRIP, Clone, Player, strips
from examples.demo.report import tables
from examples.demo.road import Result, travel
from examples.demo.tasks import TASKS
from examples.demo.training import Training, digest, samples
from penstock.core.spec import Field, Spec
from penstock.errors import SpecError

CARTPOLE, PENDULUM, PONG, CHASE = (task.quick() for task in TASKS)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    folder = tmp_path_factory.mktemp("demo")
    return [travel(task, folder) for task in (CARTPOLE, CHASE)]


def test_every_check_holds(results: list[Result]) -> None:
    for result in results:
        assert list(result.checks.values()) == [True] * 3


def test_the_straight_run_saw_every_batch(results: list[Result]) -> None:
    cartpole = results[0]
    with penstock.open(cartpole.recorded.path) as data:
        assert cartpole.episodes == len(data) == 4
        assert len(cartpole.straight.losses) == len(samples(CARTPOLE, data)) // 128
    assert len(set(cartpole.straight.digests)) == len(cartpole.straight.digests)


def test_both_datasets_hold_the_same_episodes(results: list[Result]) -> None:
    for result in results:
        with penstock.open(result.recorded.path) as one, penstock.open(result.recorded.copy) as other:
            np.testing.assert_array_equal(one[0].observations, other[0].observations)
            np.testing.assert_array_equal(one[-1].actions, other[-1].actions)


def test_the_report(results: list[Result], tmp_path: Path) -> None:
    story.draw(results[-1], tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert tables(results)
    assert results[0].to_json()["returns"]["expert"]["mean"] == 500


def test_the_samples_of_pixels_are_stacks_that_repeat_the_first(results: list[Result]) -> None:
    with penstock.open(results[1].recorded.path) as data:
        first = data.windows(1, pad="repeat", columns={"observations": (-1, 1)})[0]
        np.testing.assert_array_equal(first["observations"][0], first["observations"][1])
        np.testing.assert_array_equal(first["observations"][1], data[0].observations[0])


def test_returns_during_training_begin_before_it_and_end_after_it(results: list[Result]) -> None:
    chase = results[-1]
    batches = [batch for batch, _ in chase.curve]
    assert batches == sorted(batches)
    assert batches[0] == 0
    assert chase.curve[-1] == (len(chase.straight.losses), np.mean(chase.clone))


def test_an_episode_of_the_agent_has_a_picture_and_two_places_for_each_observation(results: list[Result]) -> None:
    played = story.play(results[-1], seed=4, render=True)
    assert len(played.frames) == len(played.agent) == len(played.target) > 1
    np.testing.assert_array_equal(played.agent, story.play(results[-1], seed=4).agent)


def test_experts_are_experts() -> None:
    for task, least in ((CARTPOLE, 500), (PENDULUM, 1000)):
        env = task.make()
        assert min(penstock.rollout(env, task.expert(env), episodes=2, seed=3).returns) >= least


def test_pong_is_pixels_for_its_expert_and_its_learner() -> None:
    env = PONG.make()
    played = penstock.rollout(env, PONG.expert(env), episodes=1, seed=3)
    assert played.returns[0] >= -6
    spec = Spec({"observations": Field(np.dtype("u1"), (80, 80), "boundary")}, None, penstock.spaces.Discrete(6))
    seen = np.stack([env.reset(seed=1)[0]] * PONG.history)
    assert Clone(spec, PONG.history)(torch.from_numpy(seen[None])).shape == (1, 6)


def test_a_saved_training_goes_on_where_it_was(results: list[Result], tmp_path: Path) -> None:
    path = results[0].recorded.path
    whole = Training(CARTPOLE, path).run(4)
    first, second = Training(CARTPOLE, path), Training(CARTPOLE, path)
    first.run(1)
    first.save(tmp_path / "state.pt")
    second.load(tmp_path / "state.pt")
    rest = second.run(3)
    assert rest.losses == whole.losses[1:]
    assert rest.weights == whole.weights


def test_a_player_fills_its_history_with_the_first_observation() -> None:
    spec = Spec({"observations": Field(np.dtype("f4"), (2,), "boundary")}, None, penstock.spaces.Discrete(3))
    player = Player(Clone(spec, 3), 3)
    assert player(np.ones(2, "f4")) in range(3)
    player(np.zeros(2, "f4"))
    assert [seen.tolist() for seen in player.recent] == [[1, 1], [1, 1], [0, 0]]
    player.reset()
    assert not player.recent


def test_other_action_spaces_are_refused() -> None:
    spec = Spec({"observations": Field(np.dtype("f4"), (2,))}, None, penstock.spaces.MultiBinary(2))
    with pytest.raises(SpecError, match="a Discrete or a Box action space"):
        Clone(spec, 1)


def test_strips_keep_the_brightest_pixel() -> None:
    images = torch.full((1, 1, 2, 2 * STRIP), 87, dtype=torch.uint8)
    images[0, 0, 1, STRIP + 3] = 87 + 64
    assert strips(images).tolist() == [[[[0, 0], [0, 1]]]]


def test_digests_see_names_and_bytes() -> None:
    assert digest({"a": np.zeros(2)}) == digest({"a": np.zeros(2)}) != digest({"b": np.zeros(2)})


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(FileExistsError):
        demo(tmp_path, quick=True)
    assert list(tmp_path.iterdir()) == []
