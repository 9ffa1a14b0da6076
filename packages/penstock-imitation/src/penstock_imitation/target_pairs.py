"""`TargetPairs`: a context, a target and extra context, for representation learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from typing_extensions import override

from penstock.core.spec import Align
from penstock.errors import PlanError, suggestion
from penstock.plan.anchored import AnchoredPlan, Output
from penstock.plan.base import Plan
from penstock.plan.episodes import Episodes
from penstock.plan.outputs import View
from penstock.plan.transform import SampleTransform, require_int

PairKind = Literal["identity", "temporal", "dynamics", "inverse_dynamics", "action_prediction", "reward_prediction"]
Role = Literal["context", "target", "extra_context"]
What = Literal["now", "later", "actions", "rewards"]

KINDS: dict[PairKind, dict[Role, What]] = {
    "identity": {"context": "now", "target": "now"},
    "temporal": {"context": "now", "target": "later"},
    "dynamics": {"context": "now", "target": "later", "extra_context": "actions"},
    "inverse_dynamics": {"context": "now", "target": "actions", "extra_context": "later"},
    "action_prediction": {"context": "now", "target": "actions"},
    "reward_prediction": {"context": "now", "target": "rewards"},
}
"""What each kind gives: the observation of step `t` or that of `t + k`, and the `k` actions or rewards from `t` on."""

NO_OFFSET: set[PairKind] = {"identity"}


@dataclass(frozen=True)
class TargetPairs(SampleTransform):
    """Pairs of a `context` and a `target`, with an `extra_context` for some kinds. No pair crosses an episode's end.

    With `k = offset`, for every `stride`-th step `t` whose step `t + k` is in the same episode:

    | kind                | context | target              | extra_context |
    |---------------------|---------|---------------------|---------------|
    | `identity`          | obs t   | obs t               |               |
    | `temporal`          | obs t   | obs t + k           |               |
    | `dynamics`          | obs t   | obs t + k           | actions       |
    | `inverse_dynamics`  | obs t   | actions             | obs t + k     |
    | `action_prediction` | obs t   | actions             |               |
    | `reward_prediction` | obs t   | rewards             |               |

    Observations are `[n, ...]`. Actions and rewards of the steps `t : t + k` are `[n, k, ...]`. Dict observations stay
    dicts: `context/<leaf>`. `traj_ts_ids` `[n, 2]` int64 has the number of the episode in its source, and the step
    `t + k` of the target (`t` for `identity`). Outputs share no memory.

    An episode of `T` steps has `T - k` pairs, or `T + 1 - k` with `last` (`identity`: `T`, or `T + 1`). Building the
    plan costs a running sum over episodes, and nothing for each pair.

    Args:
        kind: One of the kinds above.
        offset: `k`, at least 1. The default is 1, and `identity` allows no other.
        last: Whether to include the observation after the last step. The default is False.
        stride: Steps from one pair to the next, at least 1. The default is 1.
        observations: Name of the observation column. The default is `"observations"`.
        actions: Name of the action column. The default is `"actions"`.
        rewards: Name of the reward column. The default is `"rewards"`.

    Raises:
        PlanError: The kind or a column is unknown, a number is out of range, or `last` needs an observation after the
            last step that the dataset does not have.

    Example:
        >>> import numpy as np, penstock
        >>> data = penstock.from_arrays({"observations": np.arange(7), "actions": np.zeros(5, int)}, lengths=[2, 3])
        >>> batch = data.apply(TargetPairs("dynamics"))[:]
        >>> batch["context"].tolist(), batch["target"].tolist(), batch["extra_context"].shape
        ([0, 3, 4], [1, 4, 5], (3, 1))
    """

    kind: PairKind
    offset: int = 1
    last: bool = False
    stride: int = 1
    observations: str = "observations"
    actions: str = "actions"
    rewards: str = "rewards"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            hint = suggestion(str(self.kind), KINDS)
            raise PlanError(f"expected a kind among {list(get_args(PairKind))}, got {self.kind!r}{hint}")
        require_int(self, "offset", 1)
        require_int(self, "stride", 1)
        if self.kind in NO_OFFSET and self.offset != 1:
            raise PlanError(f"expected no offset for kind {self.kind!r}, got {self.offset}; 'temporal' has one")

    @override
    def plan(self, episodes: Episodes) -> Plan:
        outputs: list[Output] = []
        single: set[str] = set()
        for role, what in KINDS[self.kind].items():
            new = self._outputs(role, what, episodes)
            outputs += new
            single.update(name for name, _, _ in new if what in ("now", "later"))
        ahead = 0 if self.kind in NO_OFFSET else self.offset
        # The place of the target also keeps `t + k` inside the episode for those kinds that do not read it.
        place = View("boundary", ahead, ahead + 1, end=int(self.last))
        return AnchoredPlan(
            episodes,
            self,
            outputs,
            places=[("traj_ts_ids", place)],
            squeeze=single,
            stride=self.stride,
            final=self.last,
        )

    def _outputs(self, role: Role, what: What, episodes: Episodes) -> list[Output]:
        """Outputs of one role: a column, or the columns below it with the same names."""
        if what in ("actions", "rewards"):
            prefix = self.actions if what == "actions" else self.rewards
            aligns = self._columns(what, prefix, episodes)
            wrong = {path: align for path, align in aligns.items() if align != "step"}
            if wrong:
                raise PlanError(f"expected {what} with one row a step for {self!r}, got {wrong}")
            return [(role + path[len(prefix) :], path, View("step", 0, self.offset)) for path in aligns]
        aligns = self._columns("observations", self.observations, episodes)
        ends = self.last and (what == "later" or self.kind in NO_OFFSET)
        wrong = {path: a for path, a in aligns.items() if a == "episode" or (ends and a != "boundary")}
        if wrong:
            rows = "T + 1 rows for T steps (align 'boundary')" if ends else "a row a step"
            raise PlanError(f"expected observations with {rows} for {self!r}, got {wrong}")
        lo = self.offset if what == "later" else 0
        return [
            (role + path[len(self.observations) :], path, View(align, lo, lo + 1, end=int(ends)))
            for path, align in aligns.items()
        ]

    def _columns(self, option: str, prefix: str, episodes: Episodes) -> dict[str, Align]:
        try:
            return {path: episodes.aligns[path] for path in episodes.columns(prefix)}
        except PlanError as error:
            raise PlanError(f"{error}, for {self!r}; name the column by {option}=") from None
