"""One recording that all commands look at, and a way to call them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import gymnasium
import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Answer]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: object) -> Answer:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="penstock")
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Answer(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "cartpole"
    env = penstock.record(gymnasium.make("CartPole-v1"), path, metadata={"author": "me"})
    penstock.rollout(env, episodes=4, seed=0)
    env.close()
    return path


def without_rerun() -> Any:
    """Stands for Rerun, whose tests are in penstock-studio."""
    rerun = MagicMock()
    rerun.RecordingStream.return_value.save.side_effect = lambda path: Path(path).write_bytes(b"recording")
    return rerun
