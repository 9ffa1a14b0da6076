"""The benchmark `magical`: imitation with and without distribution shift, a robot that pushes shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from penstock.core.spaces import Dict, Discrete, Space
from penstock.errors import DataError, suggestion
from penstock_imitation.envs.benchmark import Benchmark, Context, Factory, demand, image_space
from penstock_imitation.envs.config import EnvConfig

if TYPE_CHECKING:
    import gymnasium

NATIVE = 384
SMALL = 96
ACTIONS = 18
HOW = (
    "its dependencies, as its authors pinned them, cannot be met on today's Python, so it takes two lines: "
    "pip install 'penstock-imitation[magical]'; pip install --no-deps "
    "--no-build-isolation magical-il==0.0.1a4 gym==0.17.3 pymunk==5.6.0 pyglet==1.5.31"
)

# Variants of a task: a demonstration's, and tests that move it away from there.
_EVERY = ("Demo", "TestJitter", "TestColour", "TestDynamics", "TestAll")
_MORE = {
    "MoveToCorner": ("TestShape",),
    "MoveToRegion": ("TestLayout",),
    "MatchRegions": ("TestShape", "TestLayout", "TestCountPlus"),
    "MakeLine": ("TestShape", "TestLayout", "TestCountPlus"),
    "FixColour": ("TestShape", "TestLayout", "TestCountPlus"),
    "FindDupe": ("TestShape", "TestLayout", "TestCountPlus"),
    "ClusterColour": ("TestShape", "TestLayout", "TestCountPlus"),
    "ClusterShape": ("TestShape", "TestLayout", "TestCountPlus"),
}
_FULL = {f"{task}-{variant}-v0" for task, more in _MORE.items() for variant in (*_EVERY, *more)}
_TASKS = {**{task: f"{task}-Demo-v0" for task in _MORE}, **{name: name for name in sorted(_FULL)}}


@dataclass(frozen=True)
class Preproc:
    """How many of the last pictures of each view are stacked, in which order of axes, and whether views stay apart."""

    views: Mapping[str, int]
    layout: Literal["HWC", "CHW"] = "HWC"
    apart: bool = False
    small: bool = True


PREPROCS: dict[str | None, Preproc] = {
    "LoRes3EA": Preproc({"allo": 1, "ego": 3}),
    "LoRes4E": Preproc({"ego": 4}),
    "LoRes4A": Preproc({"allo": 4}),
    "LoResStack": Preproc({"allo": 4, "ego": 4}, apart=True),
    "LoResCHW4E": Preproc({"ego": 4}, layout="CHW"),
    None: Preproc({"allo": 1, "ego": 1}, apart=True, small=False),
}


class Magical(Benchmark):
    """A task is `MoveToRegion` (its demonstrations' variant) or a full name such as `MoveToRegion-TestAll-v0`.

    Observations are uint8, by `magical_preproc`: `LoResCHW4E` `[12, 96, 96]` (4 pictures of the robot's own view),
    `LoRes4E` the same as `[96, 96, 12]`, `LoRes4A` (4 from above), `LoRes3EA` (1 from above, then 3 of the robot's
    view), `LoResStack` (a dict of `allo` and `ego`), or None: a dict of single pictures `[384, 384, 3]`. Oldest picture
    first; before an episode's first picture stands the same again. Rewards are 0; the last info has the `eval_score`.
    An episode has a fixed number of steps and is scored at their end: it terminates there, as MAGICAL says itself (its
    infos' `TimeLimit.truncated` is False).
    """

    name: ClassVar[str] = "magical"
    context: ClassVar[Context] = "spawn"

    def tasks(self) -> tuple[str, ...]:
        """Eight short names, and the full names of all variants."""
        return tuple(_TASKS)

    def spaces(self, config: EnvConfig) -> tuple[Space, Space]:
        """The preprocessor's observations, and 18 actions."""
        full_name(config.task_name)
        wanted = preproc(config.magical_preproc)
        size = SMALL if wanted.small else NATIVE
        parts = {view: image_space(size, size, 3 * depth) for view, depth in wanted.views.items()}
        channels = 3 * sum(wanted.views.values())
        whole = image_space(channels, size, size) if wanted.layout == "CHW" else image_space(size, size, channels)
        return Dict(parts) if wanted.apart else whole, Discrete(ACTIONS)

    def factory(self, config: EnvConfig) -> Callable[[], gymnasium.Env[Any, Any]]:
        """Raises `DataError` for an unknown task or preprocessor, `MissingExtraError` without MAGICAL."""
        self.spaces(config)
        demand(["magical", "gym", "pymunk", "pyglet", "cffi", "six", "requests", "gymnasium"], HOW)
        return Factory("penstock_imitation.envs.magical_env:build", config)


def full_name(task: str) -> str:
    """The name that MAGICAL knows a task by."""
    if task not in _TASKS:
        raise DataError(
            f"unknown task {task!r} of the benchmark 'magical'{suggestion(task, _TASKS)}; expected one of "
            f"{', '.join(_MORE)}, alone or as in 'MoveToRegion-TestAll-v0'; the preprocessor is env_cfg.magical_preproc"
        )
    return _TASKS[task]


def preproc(name: str | None) -> Preproc:
    if name not in PREPROCS:
        known = [known for known in PREPROCS if known is not None]
        raise DataError(
            f"unknown env_cfg.magical_preproc {name!r}{suggestion(str(name), known)}; "
            f"expected {', '.join(known)} or None"
        )
    return PREPROCS[name]
