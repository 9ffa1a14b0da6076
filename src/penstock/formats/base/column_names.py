"""Names of arrays in files of others, by the column that they are here. `ends` has the names of marks of ends."""

from __future__ import annotations

from collections.abc import Mapping

# Of the groups of a column, the first of which a file has a name counts.
COLUMN_NAMES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "observations": (("observations", "observation", "obs"), ("states", "state")),
    "next_observations": (("next_observations", "next_observation", "next_obs", "obs2"), ("next_states", "next_state")),
    "actions": (("actions", "action", "acts", "act", "acs"),),
    "rewards": (("rewards", "reward", "rews", "rew"),),
}
