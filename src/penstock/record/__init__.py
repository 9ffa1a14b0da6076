"""From environments to episodes: collectors for single and vectorised environments, their hooks and a driver."""

from penstock.errors import require

require("gymnasium", "gymnasium")
