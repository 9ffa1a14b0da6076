"""`penstock demo`: from environments to a trained policy and back, through the public names alone."""

from penstock.errors import require

for _module in ("gymnasium", "torch"):
    require(_module, "demo")
