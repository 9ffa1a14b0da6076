"""The public names and arguments of lerobot 0.6.1, as `inspect.signature` gave them there, against those here."""

# pyright: basic

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import penstock_mirrors.lerobot

ROOT = Path(__file__).parents[4]
NAMES: dict[str, dict[str, Any]] = json.loads((ROOT / "tests/golden/lerobot/names.json").read_text())
PAGE = (ROOT / "docs/mirrors/lerobot.md").read_text()

# Names that are left out; the page has the reasons.
LEFT_OUT = {
    "LeRobotDatasetMetadata": {"save_episode", "save_episode_tasks"},
    "StreamingLeRobotDataset": {"make_frame"},
}


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_here_or_on_the_page(name: str) -> None:
    mirrored = getattr(penstock_mirrors.lerobot, name)
    missing = {each for each in NAMES[name] if not hasattr(mirrored, each)}
    assert missing == LEFT_OUT.get(name, set())
    for each in missing:
        assert f"`{each}`" in PAGE or f".{each}`" in PAGE, each


@pytest.mark.parametrize("name", NAMES)
def test_arguments_have_the_original_order_and_defaults(name: str) -> None:
    mirrored = getattr(penstock_mirrors.lerobot, name)
    for each, arguments in NAMES[name].items():
        if each in LEFT_OUT.get(name, set()):
            continue
        value = inspect.getattr_static(mirrored, each)
        if arguments == "property":
            assert isinstance(value, property) or not callable(value), each
            continue
        written = [
            f"{'**' if p.kind is p.VAR_KEYWORD else ''}{p.name}{'' if p.default is p.empty else f'={p.default!r}'}"
            for p in inspect.signature(getattr(mirrored, each)).parameters.values()
            if p.name != "self"
        ]
        extra = written[len(arguments) :]
        assert written[: len(arguments)] == arguments, each
        assert all("=" in argument for argument in extra), f"{each}: {extra}"
