"""The table that datasets print: how many rows, and averages."""

from __future__ import annotations

import numpy as np

from penstock_driving.logs import Logs

_LOOKED_AT = 50  # frames, for how many there are a second


def printed(logs: Logs) -> str:
    """Return a table of one row, in the original's format."""
    scenes, frames, agents, faces = (len(rows) for rows in (logs.scenes, logs.frames, logs.agents, logs.tl_faces))
    rate = 10
    if frames > 1:
        with np.errstate(divide="ignore"):
            rate = float((1e9 / np.diff(logs.frames[:_LOOKED_AT]["timestamp"])).mean())
    values = {
        "Num Scenes": scenes,
        "Num Frames": frames,
        "Num Agents": agents,
        "Num TR lights": faces,
        "Total Time (hr)": frames / max(rate, 1) / 3600,
        "Avg Frames per Scene": frames / max(scenes, 1),
        "Avg Agents per Frame": agents / max(frames, 1),
        "Avg Scene Time (sec)": frames / max(scenes, 1) / rate,
        "Avg Frame frequency": rate,
    }
    texts = {name: f"{value:.2f}" if isinstance(value, float) else str(value) for name, value in values.items()}
    return framed(texts)


def framed(texts: dict[str, str]) -> str:
    """Names above values, with rules."""
    widths = [max(len(name), len(text)) for name, text in texts.items()]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    head, body = (
        "|" + "|".join(f" {_centred(text, width)} " for text, width in zip(row, widths, strict=True)) + "|"
        for row in (texts.keys(), texts.values())
    )
    return "\n".join([rule, head, rule, body, rule])


def _centred(text: str, width: int) -> str:
    """What cannot be halved goes to the right of texts of odd length, to the left of others."""
    left = (width - len(text) + 1 - len(text) % 2) // 2
    return " " * left + text + " " * (width - len(text) - left)
