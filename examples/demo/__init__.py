"""`python -m examples.demo`: from environments to a trained policy and back, through public names only."""

from penstock.errors import require

for _module in ("gymnasium", "torch"):
    require(_module, "demo")
