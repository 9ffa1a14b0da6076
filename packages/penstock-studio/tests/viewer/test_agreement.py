"""Agreement of two people, against the published example of Cohen's kappa."""

from __future__ import annotations

import pytest

from penstock.data.curation import Curation
from penstock.data.episode_marks import EpisodeMarks
from penstock_studio.viewer.agreement import agreement


def test_kappa_of_a_known_table() -> None:
    """20 and 15 decided alike, 5 and 10 differently: 0.4 (https://en.wikipedia.org/wiki/Cohen%27s_kappa)."""
    one, other = Curation("f", 60), Curation("f", 60)
    votes = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    for number, (first, second) in enumerate(votes):
        one[number], other[number] = EpisodeMarks(excluded=first), EpisodeMarks(excluded=second)
    one[50], other[50] = EpisodeMarks(rating=5), EpisodeMarks(rating=2)
    one[51] = EpisodeMarks(excluded=True)  # by one alone
    found = agreement(one, other)
    assert (found["both"], found["same"], found["rated"], found["distance"]) == (50, 35, 1, 3)
    assert found["kappa"] == pytest.approx(0.4)
    assert found["different"] == list(range(20, 35))


def test_without_a_common_decision_there_is_no_kappa() -> None:
    one, other = Curation("f", 2), Curation("f", 2)
    assert agreement(one, other)["kappa"] is None
    one[0] = other[0] = EpisodeMarks(excluded=True)
    assert agreement(one, other)["kappa"] is None  # chance agrees as well
