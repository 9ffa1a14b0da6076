"""`GroupSampler`: draw whole groups of completions, with a bound on the age of the policy that sampled them.

A group is ready when all completions of its prompt have arrived. It leaves when it was drawn `max_uses` times, when one
of its completions leaves the store, or when its oldest token is from a policy more than `max_staleness` versions ago.
A draw is a function of the key, the number of the draw, and the arrivals, versions and draws before it. Cost: some
microseconds for each ready group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from penstock.core.arrays import IntArray
from penstock.core.episode import Episode
from penstock.errors import PlanError, SpecError, StateError
from penstock.plan.transform import require_int
from penstock.replay.completions import group_advantages
from penstock.replay.samplers import Drawing, Drawn, ReplaySampler, State

Order = Literal["oldest", "newest", "random", "advantage"]


@dataclass(frozen=True)
class GroupSampler(ReplaySampler):
    """Draw the completions of whole prompts, with a limit on staleness.

    The learner calls `Replay.set_policy_version` after each update. A group whose oldest token was sampled more than
    `max_staleness` versions before is never drawn. A batch has no group twice.

    Args:
        num_generations: Completions of a prompt, at least 1.
        max_staleness: Most versions between the policy that sampled a token and the policy that learns from it, 0 or
            more. The default is None: no limit.
        max_uses: How often a group is drawn. The default is 1. None: as long as it is in memory.
        order: Which groups come first. `"oldest"` (the default), `"newest"`, `"random"`, or `"advantage"`: at random,
            in proportion to the mean of `|advantage|`, not divided by the standard deviation.
        drop_equal_rewards: Whether to leave out groups whose completions all have the same return, from which
            group-relative methods learn nothing. The default is False.
        balance_tasks: Whether tasks take turns: of `n` drawn groups, all tasks with enough ready groups have equally
            many, up to one. `order` says which group of a task comes first. The default is False.

    Raises:
        PlanError: A number is out of range, or `order` is unknown.

    Example:
        >>> GroupSampler(8, max_staleness=2).max_uses
        1
    """

    num_generations: int
    max_staleness: int | None = None
    max_uses: int | None = 1
    order: Order = "oldest"
    drop_equal_rewards: bool = False
    balance_tasks: bool = False

    def __post_init__(self) -> None:
        require_int(self, "num_generations", 1)
        if self.max_staleness is not None:
            require_int(self, "max_staleness", 0)
        if self.max_uses is not None:
            require_int(self, "max_uses", 1)
        if self.order not in ("oldest", "newest", "random", "advantage"):
            raise PlanError(f"expected order to be 'oldest', 'newest', 'random' or 'advantage', got {self.order!r}")

    @override
    def start(self, key: np.uint64) -> Drawing:
        return _GroupDrawing(key, self)


@dataclass
class _PromptGroup:
    """Completions of one prompt: anchors, tokens and returns, and the oldest version of a token."""

    version: int
    anchors: list[int] = field(default_factory=list[int])
    lengths: list[int] = field(default_factory=list[int])
    returns: list[float] = field(default_factory=list[float])
    uses: int = 0
    task: int = 0

    @property
    def weight(self) -> float:
        """Mean of `|advantage|`, and a little so that it can be drawn."""
        away = group_advantages(np.array(self.returns), np.zeros(len(self.returns), np.int64), scale_rewards=False)
        return float(np.abs(away).mean()) + 1e-9


class _GroupDrawing(Drawing):
    def __init__(self, key: np.uint64, sampler: GroupSampler) -> None:
        super().__init__(key)
        self._sampler = sampler
        self._version = 0
        self._unfinished: dict[int, _PromptGroup] = {}  # by the number of the prompt
        self._ready: dict[int, _PromptGroup] = {}  # by the first anchor, in the order in which groups were complete
        self._dropped = {"stale": 0, "equal_rewards": 0}

    @property
    @override
    def dropped(self) -> Mapping[str, int]:
        return dict(self._dropped)

    @override
    def observe(self, anchor: int, episode: Episode) -> None:
        number = int(np.asarray(episode.columns["group"])[0])
        task = _task_of(episode) if self._sampler.balance_tasks else 0
        group = self._unfinished.setdefault(number, _PromptGroup(1 << 62, task=task))
        group.anchors.append(anchor)
        group.lengths.append(len(episode))
        group.returns.append(float(np.asarray(episode.columns["rewards"]).sum(dtype=np.float64)))
        group.version = min(group.version, int(np.asarray(episode.columns["versions"]).min()))
        if len(group.anchors) < self._sampler.num_generations:
            return
        del self._unfinished[number]
        if self._is_stale(group):
            self._dropped["stale"] += 1
        elif self._sampler.drop_equal_rewards and len(set(group.returns)) == 1:
            self._dropped["equal_rewards"] += 1
        else:
            self._ready[group.anchors[0]] = group

    @override
    def arrive(self, lo: int, hi: int) -> None:
        if lo > self.lo:
            self._ready = {first: group for first, group in self._ready.items() if first >= lo}
            self._unfinished = {n: group for n, group in self._unfinished.items() if group.anchors[0] >= lo}
        super().arrive(lo, hi)

    @override
    def set_version(self, version: int) -> None:
        if version < self._version:
            raise PlanError(f"expected a policy version of at least {self._version}, the last one, got {version}")
        self._version = version
        stale = [first for first, group in self._ready.items() if self._is_stale(group)]
        for first in stale:
            del self._ready[first]
        self._dropped["stale"] += len(stale)

    @override
    def has(self, n: int) -> bool:
        return n <= len(self._ready) * self._sampler.num_generations

    @override
    def draw(self, number: int, n: int) -> Drawn:
        size = self._sampler.num_generations
        if n % size:
            raise PlanError(f"expected a multiple of num_generations={size} completions, got {n}")
        if not self.has(n):
            raise self._too_few(f"{n // size} groups")
        return self._take(self._ordered(number)[: n // size])

    @override
    def draw_within(self, number: int, cost: Callable[[IntArray], int], most: int) -> Drawn:
        lengths: list[int] = []
        chosen: list[_PromptGroup] = []
        for group in self._ordered(number):
            if cost(np.array(lengths + group.lengths)) > most:
                break
            lengths += group.lengths
            chosen.append(group)
        if not chosen and self._ready:
            least = cost(np.array(self._ordered(number)[0].lengths))
            raise PlanError(f"expected max_tokens of at least one group, which takes {least}, got {most}")
        if not chosen:
            raise self._too_few("a group")
        return self._take(chosen)

    @override
    def state(self) -> State:
        used = np.array([group.uses for group in self._ready.values()], np.int64)
        ready = np.array(list(self._ready), np.int64)
        return {"version": self._version, "ready": ready, "uses": used, **self._dropped}

    @override
    def restore(self, state: Mapping[str, Any]) -> None:
        self._version = int(state["version"])
        groups = dict(self._ready)
        firsts: list[int] = np.asarray(state["ready"], np.int64).tolist()
        if not set(firsts) <= set(groups):
            raise StateError(f"expected the groups of the state among {len(groups)} in the store, got others")
        self._ready = {first: groups[first] for first in firsts}
        for group, uses in zip(self._ready.values(), np.asarray(state["uses"], np.int64).tolist(), strict=True):
            group.uses = uses
        self._dropped = {name: int(state[name]) for name in self._dropped}

    def _is_stale(self, group: _PromptGroup) -> bool:
        most = self._sampler.max_staleness
        return most is not None and self._version - group.version > most

    def _ordered(self, number: int) -> list[_PromptGroup]:
        """All ready groups, the first to draw first."""
        groups = self._by_order(number)
        if not self._sampler.balance_tasks:
            return groups
        count = Counter[int]()
        turns: list[int] = []  # of each group: how many of its task come before it
        for group in groups:
            turns.append(count[group.task])
            count[group.task] += 1
        return [groups[i] for i in np.argsort(turns, kind="stable")]

    def _by_order(self, number: int) -> list[_PromptGroup]:
        groups = list(self._ready.values())
        if self._sampler.order == "oldest":
            return groups
        if self._sampler.order == "newest":
            return groups[::-1]
        bits = np.random.Philox(key=np.array([self.key, number], np.uint64)).random_raw(len(groups))
        # Exponential times at rates in proportion to the weights: the earliest are a draw without replacement.
        times = -np.log1p(-((bits >> np.uint64(11)) * 2.0**-53))
        if self._sampler.order == "advantage":
            times = times / np.array([group.weight for group in groups])
        return [groups[i] for i in np.argsort(times, kind="stable")]

    def _take(self, groups: list[_PromptGroup]) -> Drawn:
        for group in groups:
            group.uses += 1
            if group.uses == self._sampler.max_uses:
                del self._ready[group.anchors[0]]
        return Drawn(np.array([anchor for group in groups for anchor in group.anchors], np.int64))

    def _too_few(self, wanted: str) -> PlanError:
        return PlanError(
            f"expected {wanted} to draw, got {len(self._ready)} ready; {len(self._unfinished)} prompts have unfinished "
            f"completions, and {self._dropped['stale']} groups were older than max_staleness="
            f"{self._sampler.max_staleness}; collect more, or ask refresh().may_sample first"
        )


def _task_of(episode: Episode) -> int:
    if "task" not in episode.columns:
        raise SpecError(
            f"expected a column 'task' for balance_tasks=True, got {list(episode.columns)}; write with a "
            "CompletionRecorder, and begin a new folder for it"
        )
    return int(np.asarray(episode.columns["task"])[0])
