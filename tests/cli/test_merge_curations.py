"""`penstock merge-curations`."""

# pyright: basic

from __future__ import annotations

from pathlib import Path

import penstock
from penstock.curation import Curation, EpisodeMarks
from tests.cli.conftest import Call


def test_files_of_several_people_become_one(call: Call, recording: Path, tmp_path: Path) -> None:
    source = penstock.open(recording).source
    ann, ben, out = (tmp_path / f"{name}.json" for name in ("ann", "ben", "out"))
    with Curation.edit(ann, source) as curation:
        curation[0] = EpisodeMarks(tags={"good"}, rating=4)
        curation[1] = EpisodeMarks(excluded=True)
    with Curation.edit(ben, source) as curation:
        curation[0] = EpisodeMarks(tags={"fast"}, rating=2)
        curation[2] = EpisodeMarks(spans=[(1, 3, "slip")])
    answer = call("merge-curations", ann, ben, "--out", out)
    assert answer.code == 1
    assert "episode 0: rating is 4, then 2; 2 is used" in answer.out
    assert "3 of 4 episodes marked, 1 conflict" in answer.out
    merged = Curation.read(out)
    assert merged[0] == EpisodeMarks(tags={"good", "fast"}, rating=2)
    assert merged[1].excluded
    assert [tuple(span) for span in merged[2].spans] == [(1, 3, "slip")]

    assert call("merge-curations", ann, "--out", out).code == 2  # the file exists
    assert Curation.read(out) == merged
    answer = call("merge-curations", ben, ann, "--out", out, "--data", recording, "--overwrite", "--json")
    assert answer.code == 1
    assert answer.json["marked"] == 3
    assert answer.json["conflicts"] == [{"episode": 0, "mark": "rating", "values": [2, 4]}]
    assert call("merge-curations", ann, "--out", tmp_path / "alone.json").code == 0


def test_files_of_different_datasets_are_refused(call: Call, recording: Path, tmp_path: Path) -> None:
    source = penstock.open(recording).source
    Curation.of(source).save(tmp_path / "a.json")
    Curation("other", len(source)).save(tmp_path / "b.json")
    assert call("merge-curations", tmp_path / "a.json", tmp_path / "b.json", "--out", tmp_path / "c.json").code == 2
    assert not (tmp_path / "c.json").exists()
    assert call("merge-curations", tmp_path / "a.json", "--out", tmp_path / "c.json", "--storage", "a=b").code == 2
