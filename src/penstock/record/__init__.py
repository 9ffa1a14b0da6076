"""Record episodes from environments: collectors for single and vectorised environments, hooks, and rollouts."""

from penstock.errors import require

require("gymnasium", "gymnasium")
