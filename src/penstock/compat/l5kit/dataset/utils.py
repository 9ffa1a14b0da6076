"""How long agents must be there to make samples."""

from penstock.domains.driving.mask import MIN_FUTURE as AGENT_MIN_FRAME_FUTURE
from penstock.domains.driving.mask import MIN_HISTORY as AGENT_MIN_FRAME_HISTORY

__all__ = ["AGENT_MIN_FRAME_FUTURE", "AGENT_MIN_FRAME_HISTORY"]
