"""The scripts in `examples/` run, and give what they say."""

from __future__ import annotations

import importlib
import json
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import penstock
from tests.locations.server import serving

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def transforms() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / "transforms.py"))


def test_the_script_prints_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "transforms.py"), run_name="__main__")
    made, shapes, same = capsys.readouterr().out.splitlines()
    assert " at 0x" not in made  # it is part of a fingerprint
    assert shapes.startswith("(64, 3, 32, 32) (64, 3, 32, 32) [")
    assert same == "other batches and threads, the same images: True"


@pytest.mark.parametrize("seed", [0, 1])
def test_crops_and_flips_are_those_of_one_image_at_a_time(transforms: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    images, keys = rng.integers(0, 256, (40, 2, 6, 7), np.uint8), rng.integers(0, 1 << 64, 40, np.uint64)
    moved = transforms["CropAndFlip"](2, "x")(penstock.Columns({"x": images}), keys)["x"]
    padded = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="edge")
    ways = [(top, left, step) for top in range(5) for left in range(5) for step in (1, -1)]
    found = [
        [
            n
            for n, (y, x, step) in enumerate(ways)
            if np.array_equal(moved[i], padded[i, :, y : y + 6, x : x + 7][..., ::step])
        ]
        for i in range(40)
    ]
    assert [len(which) for which in found] == [1] * 40
    assert len({which[0] for which in found}) > 20  # 40 draws of 50 ways


def test_a_transform_that_draws_from_torch_is_seeded_by_the_row(transforms: dict[str, Any]) -> None:
    data = penstock.from_arrays({"x": np.zeros((30, 4), np.float32)}, lengths=[30]).steps()

    def noise(row: torch.Tensor) -> torch.Tensor:
        return row + torch.rand(4)

    def rows(seed: int, batch_size: int, threads: int) -> Any:
        noisy = data.map(transforms["Seeded"](noise, "x"), seed=seed)
        return np.concatenate([b["x"] for b in noisy.loader(batch_size, threads=threads)])

    before = torch.random.get_rng_state()
    one = rows(0, 7, 0)
    assert torch.equal(before, torch.random.get_rng_state())
    assert len(np.unique(one, axis=0)) == 30
    np.testing.assert_array_equal(one, rows(0, 30, 3))
    assert not np.array_equal(one, rows(1, 7, 0))


def test_a_decision_transformer_learns_from_returns(tmp_path: Path) -> None:
    script = runpy.run_path(str(EXAMPLES / "decision_transformer.py"))
    script["record"](str(tmp_path / "few"), 6)
    windows = script["samples"](str(tmp_path / "few"))
    batch = windows[:]
    last = batch["returns_to_go"][:, -1]
    assert sorted(last.tolist()) == sorted(
        float(n) for episode in penstock.open(tmp_path / "few") for n in range(1, len(episode) + 1)
    )
    assert batch["mask"].sum(axis=1).tolist() == np.minimum(batch["timesteps"][:, -1] + 1, 20).tolist()
    losses, reached = script["run"](tmp_path, recorded=8, updates=14, wanted=(20.0,), played=1)
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    assert reached[0] >= 1


def test_a_language_model_learns_from_packed_rows_of_three_corpora() -> None:
    script = runpy.run_path(str(EXAMPLES / "language_model.py"))
    corpora = {name: some[:200] for name, some in script["texts"]().items()}
    assert all(len(some) > 50 for some in corpora.values())
    mixed, held_out = script["rows"](corpora)
    assert np.bincount(mixed[:100]["source"]).tolist() == [50, 25, 25]
    batch = mixed[:32]
    model, losses = script["train"](mixed, 12)
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) - 1  # bits
    assert max(script["test"](model, held_out, 8).values()) < 7  # 8 bits a byte are a guess

    texts = {name: torch.from_numpy(batch[name].astype(np.int64)) for name in ("tokens", "positions", "segment_ids")}
    first = texts["segment_ids"][:, :1] == texts["segment_ids"]
    others = {**texts, "tokens": torch.where(first, texts["tokens"], 0)}
    with torch.no_grad():
        seen, changed = model(*texts.values()), model(*others.values())
    torch.testing.assert_close(seen[first], changed[first])  # bytes of other texts change nothing
    assert not torch.equal(seen, changed)


def test_a_language_model_learns_from_groups_of_its_completions() -> None:
    script = runpy.run_path(str(EXAMPLES / "grpo.py"))
    assert script["reward"]([3, 1, 10], [1, 3, 11]) == 1.0
    assert script["reward"]([3, 1, 10], [1, 11]) == pytest.approx(1 / 3)
    assert script["reward"]([3, 1, 13], [12, 4, 4, 11]) == 1.0  # with the answer of the tool
    assert script["reward"]([3, 1, 13], [4, 11]) == 1.0
    torch.manual_seed(2)
    policy, sampler = script["Policy"](), penstock.replay.GroupSampler(4)
    replay = penstock.Replay(None, 1000, samples=penstock.replay.Completions(32, pack=True), sampler=sampler)
    recorder = penstock.replay.CompletionRecorder(replay, 4)
    recorder.add_prompt([5, 13])
    while recorder.pending:
        script["sample"](policy, recorder, 0, 3)
    batch = replay.sample(4)
    called = (batch["tokens"] == 12) & batch["completion_mask"]
    assert called.any()
    assert not batch["completion_mask"][:, 1:][called[:, :-1]].any()  # answers of the tool
    assert batch["rewards"][called].max() == np.float32(0.2)
    sampled = torch.from_numpy(batch["completion_mask"])
    tokens, positions, segments = (
        torch.from_numpy(batch[name].astype(np.int64)) for name in ("tokens", "positions", "segment_ids")
    )
    with torch.no_grad():
        scores = policy(tokens, positions, segments)[:, :-1].gather(2, tokens[:, 1:, None])[:, :, 0]
    torch.testing.assert_close(scores[sampled[:, 1:]], torch.from_numpy(batch["log_probs"])[sampled])
    optimizer, losses = torch.optim.AdamW(policy.parameters(), lr=1e-3), list[float]()
    for _ in range(4):
        loss = script["loss_of"](policy, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.01
    curve, trained = script["train"](2)
    assert len(curve) == 2
    assert trained.refresh().drawn >= 2 * 8


def test_a_q_network_learns_from_its_own_steps_and_a_dataset(tmp_path: Path) -> None:
    script = runpy.run_path(str(EXAMPLES / "dqn.py"))
    data = script["record"](tmp_path / "few", 4)
    offline = data.transitions(n_step=script["N_STEP"], gamma=script["GAMMA"])[:]
    assert len(offline["rewards"]) == sum(len(episode) for episode in data)
    cells = np.argmax(offline["observations"], axis=1)
    later = np.argmax(offline["next_observations"], axis=1)
    assert np.abs(later - cells).max() <= 3  # of three steps
    assert np.array_equal(offline["discounts"] == 0, offline["terminations"])
    torch.manual_seed(0)
    online, target = script["network"](), script["network"]()
    optimizer, losses = torch.optim.Adam(online.parameters(), lr=1e-2), list[float]()
    for _ in range(20):
        loss = (script["errors_of"](online, target, offline) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert len(script["train"](tmp_path, 4)) == 4


def test_a_mix_of_four_robots_is_killed_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Video comes from a web server. A run that was killed ends as one that was not, with exact shares."""
    path = str(EXAMPLES / "robot_mix.py")
    script = runpy.run_path(path)
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    lerobot = script["DATA"] / script["PLACES"]["lerobot"][0]
    files = [file for file in lerobot.rglob("*") if file.is_file()]
    with serving({f"robot/{file.relative_to(lerobot)}": file.read_bytes() for file in files}) as site:
        url, checkpoint = f"{site.url}/robot", tmp_path / "run.pt"
        command = [sys.executable, path, "--url", url, "--updates", "5", "--checkpoint", str(checkpoint)]
        assert subprocess.run([*command, "--die-at", "3"], check=False).returncode == -signal.SIGKILL
        assert len(torch.load(checkpoint)["losses"]) == 3
        subprocess.run(command, check=True, capture_output=True)
        policy, losses, counts = script["train"](script["mixed"](script["DATA"], url), 5, tmp_path / "whole.pt")
        assert any(request.name.endswith(".mp4") for request in site.seen)
    resumed = torch.load(checkpoint)
    assert (resumed["losses"], resumed["counts"]) == (losses, counts)
    assert counts == [100 * share for share in script["SHARES"].values()]
    assert all(torch.equal(resumed["policy"][name], value) for name, value in policy.state_dict().items())


def test_embeddings_of_pictures_are_added_to_a_lerobot_dataset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, path = Path(__file__).parent / "golden" / "lerobot" / "v3_video", str(EXAMPLES / "embed.py")
    monkeypatch.setattr(sys, "argv", [path, str(data), str(tmp_path / "out")])
    state = torch.random.get_rng_state()
    runpy.run_path(path, run_name="__main__")
    assert torch.equal(state, torch.random.get_rng_state())
    said = capsys.readouterr().out
    assert said == "4 episodes, 109 steps, lerobot\na batch: (32, 64)\nequal to the network: True\n"
    info = json.loads((tmp_path / "out/meta/info.json").read_text())
    assert info["features"]["observation.embedding"]["shape"] == [64]
    assert not any("images" in name for name in info["features"])


def test_a_policy_that_is_better_than_its_data(tmp_path: Path) -> None:
    script = runpy.run_path(str(EXAMPLES / "iql.py"))
    data = script["record"](tmp_path / "few", 3)
    stats = penstock.statistics(data)
    losses, returns = script["train"](data, updates=30, every=30, played=1)
    for name in ("critics", "clone"):
        assert np.mean([each[name] for each in losses[-5:]]) < np.mean([each[name] for each in losses[:5]])
    assert all(-2000 < each < 0 for each in returns[0])

    learner = script["Learner"]()
    bias = {name: getattr(learner, name)[-2].bias for name in ("value", "policy", "clone")}
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.zero_()
        for critic in learner.slow:  # values of 1 and -1, by the sign of the action
            critic[0].weight[:2, 3] = torch.tensor([1.0, -1.0])
            critic[2].weight[:2, :2] = torch.eye(2)
            critic[4].weight[0, :2] = torch.tensor([1.0, -1.0])
    actions = torch.tensor([[1.0], [-1.0]]).repeat(8, 1)
    zeros = torch.zeros(16, 3)
    batch = {"observations": zeros, "next_observations": zeros, "actions": actions}
    batch |= {"rewards": torch.zeros(16), "terminations": torch.ones(16, dtype=torch.bool)}
    optimizer = torch.optim.SGD(bias.values(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        sum(learner.losses(batch).values()).backward()
        optimizer.step()
    assert bias["clone"].item() == pytest.approx(0, abs=0.01)  # the mean action
    assert bias["policy"].item() > 0.9  # the better action
    assert bias["value"].item() == pytest.approx(0.6, abs=0.01)  # the expectile 0.8 of -1 and 1
    assert script["play"](learner.policy, stats, 1) < 0


def test_a_diffusion_policy_draws_one_of_two_ways(tmp_path: Path) -> None:
    script = runpy.run_path(str(EXAMPLES / "diffusion_policy.py"))
    data = script["record"](tmp_path / "few", 6)
    assert all(script["arrived"](episode.observations[-1]) for episode in data)
    stats, windows = penstock.statistics(data), script["chunks"](data)
    batch = windows[:]
    assert batch["observations"].shape[1:] == (2, 2)
    assert batch["actions"].shape[1:] == (8, 2)
    np.testing.assert_allclose(batch["observations"][1:, 0], batch["observations"][:-1, 1] * 1, atol=3)
    windows = windows.map(penstock.normalize(stats, ["observations", "actions"], "min_max"))
    for levels in (1, 5):
        policy = script["Policy"](levels)
        losses = script["train"](policy, windows, 25)
        assert np.mean(losses[-5:]) < np.mean(losses[:5])
        paths, reached = script["play"](policy, stats, 3)
        assert paths.shape == (41, 3, 2)
        assert reached.shape == (3,)

    class Knowing(script["Policy"]):  # a network that always finds the nearest of two chunks
        def forward(self, seen: torch.Tensor, noisy: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
            return torch.where(noisy.mean((1, 2), keepdim=True) > 0, 0.5, -0.5).expand(noisy.shape)

    drawn = Knowing(40).act(torch.zeros(200, 2, 2))
    torch.testing.assert_close(drawn.abs(), torch.full((200, 8, 2), 0.5))
    assert 60 < (drawn[:, 0, 0] > 0).sum() < 140  # both ways, and one way in a chunk
    assert (drawn == drawn[:, :1, :1]).all()


def test_two_processes_are_killed_and_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    ddp = importlib.import_module("ddp")
    ddp.record(tmp_path / "pendulum", 2)
    killed = ddp.launch(2, tmp_path, "killed", 25, kill_at=13)
    done = len(killed["losses"])
    assert done == 10  # its last checkpoint
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    ddp.train(0, 1, tmp_path, "killed", 25)
    resumed = torch.load(tmp_path / "killed.pt")
    assert resumed["losses"][:done] == killed["losses"]
    assert len(resumed["losses"]) == 25
    wanted = ddp.samples(tmp_path / "pendulum", 25)[:]
    rows = torch.from_numpy(np.stack([wanted["episodes"], wanted["timesteps"]], 1))
    assert ddp.digest(resumed["rows"]) == ddp.digest([rows])
    assert ddp.digest(resumed["rows"]) != ddp.digest([rows.flip(0)])


def test_a_policy_in_jax_infers_speeds_from_positions(tmp_path: Path) -> None:
    script = runpy.run_path(str(EXAMPLES / "jax_policy.py"))
    data = script["record"](tmp_path / "few", 4)
    scale = penstock.normalize(penstock.statistics(data, ["observations"]), ["observations"])
    windows = script["windows"](data, 3)
    first = windows[0]["observations"]
    assert np.array_equal(first, np.tile(data[0].observations[0], (3, 1)))
    parameters, losses = script["train"](windows.map(scale), 3, 60)
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.01
    changed = windows[:4]["observations"].copy()
    changed[..., 1::2] += 1  # speeds, which the policy does not see
    seen = (script["scores"](parameters, each) for each in (windows[:4]["observations"], changed))
    np.testing.assert_array_equal(*seen)
    assert script["play"](parameters, scale, 3, 1) >= 1
