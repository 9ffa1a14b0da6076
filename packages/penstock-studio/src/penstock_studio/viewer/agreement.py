"""How far two people agree who marked the same episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.data.curation import Curation

MOST_LISTED = 200  # episodes that were decided differently


def agreement(one: Curation, other: Curation) -> dict[str, Any]:
    """Return how many episodes both decided to keep or to leave out, how many alike, and Cohen's kappa of it.

    An episode is decided if it is excluded or not; None is no decision. `kappa` is None if chance alone always agrees.
    `distance` is the mean difference of the ratings of the `rated` episodes.
    """
    marks = dict(other.marks())
    pairs = [(number, each, marks[number]) for number, each in one.marks() if number in marks]
    decided = [(n, a.excluded, b.excluded) for n, a, b in pairs if a.excluded is not None and b.excluded is not None]
    votes = np.array([(a, b) for _, a, b in decided], np.bool_).reshape(-1, 2)
    same = int((votes[:, 0] == votes[:, 1]).sum())
    first, second = votes.mean(axis=0) if len(votes) else (0.0, 0.0)
    chance = first * second + (1 - first) * (1 - second)
    ratings = [abs(a.rating - b.rating) for _, a, b in pairs if a.rating is not None and b.rating is not None]
    return {
        "both": len(votes),
        "same": same,
        "kappa": float((same / len(votes) - chance) / (1 - chance)) if len(votes) and chance < 1 else None,
        "rated": len(ratings),
        "distance": float(np.mean(ratings)) if ratings else 0.0,
        "different": [n for n, a, b in decided if a != b][:MOST_LISTED],
    }
