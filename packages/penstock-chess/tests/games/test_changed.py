"""Games that are rescored as they were read: the rows of positions are those of whole frames that were rescored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import PlanError
from penstock_chess.changed import changed, encode_changed
from penstock_chess.chunk_stages import RecordRescorer
from penstock_chess.compact import encode
from penstock_chess.formats.lc0 import FRAME, open_chunks
from penstock_chess.live import chess_hooks, chess_pipeline
from penstock_chess.rescore import Changes, RejectedChunk, Rescorer
from penstock_chess.tensors import ChessTensors
from penstock_chess.validate import EVERY

SETTINGS: list[dict[str, Any]] = [{}, {"theta": 0.5, "deblunder_threshold": 0.1, "deblunder_width": 0.06}]
FILES = ("gz/training.700001.gz", "v7/training.700027.gz", "old/v4.gz", "formats/fmt3_training.700000.gz")


def loaded(path: Path, as_stored: bool, missing: Any = "zero") -> Any:
    source = open_chunks(path, as_stored=as_stored, missing_st=missing)
    assert source is not None
    return source.load(0)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("missing", ["zero", "nan"])
def test_rows_are_those_of_rescored_frames(golden: Path, name: str, settings: dict[str, Any], missing: Any) -> None:
    rescorer = Rescorer(**settings)
    frames = rescorer(loaded(golden / name, False, missing))
    records = loaded(golden / name, True, missing)
    before = records.copy()
    changes = rescorer.changes(records)
    assert not isinstance(frames, RejectedChunk)
    assert isinstance(changes, Changes)
    assert np.array_equal(records, before)
    places = np.arange(len(frames))[::-1]
    assert encode_changed(changed(records, changes), places).blobs() == encode(frames, places).blobs()


def test_positions_of_several_games_are_of_their_own(golden: Path) -> None:
    rescorer, parts, wanted = Rescorer(), list[Any](), list[bytes]()
    for name in FILES:
        records = loaded(golden / name, True)
        parts.append(RecordRescorer(rescorer)(records, name)[3:6])
        frames = rescorer(loaded(golden / name, False))
        assert not isinstance(frames, RejectedChunk)
        wanted += encode(frames[3:6]).blobs()
    order = np.array([11, 0, 4, 1, 1, 8])
    assert encode_changed(np.concatenate(parts), order).blobs() == [wanted[i] for i in order]


def test_games_with_faults_are_refused_as_frames_are(golden: Path) -> None:
    frames = loaded(golden / FILES[0], False)
    frames.view(FRAME)["root_q"][7] = 2
    assert Rescorer().changes(frames) == Rescorer()(frames)
    assert Rescorer().changes(frames[:0]) == Rescorer()(frames[:0])


@pytest.mark.parametrize("settings", [{"dist_temp": 1.2}, {"dist_offset": 0.1}, {"new_input_format": 3}])
def test_what_changes_more_is_not_light(settings: dict[str, Any]) -> None:
    assert Rescorer().light
    assert not Rescorer(**settings).light
    assert not Rescorer(errors=EVERY).light
    with pytest.raises(PlanError, match="not light"):
        chess_hooks(rescorer=Rescorer(**settings), as_stored=True)


@pytest.mark.parametrize("options", [{"rate": 1}, {"count": 1}, {"count": 2, "ahead": 4, "passes": 3}])
def test_pipelines_give_the_same_whichever_way(golden: Path, options: dict[str, Any]) -> None:
    def batches(**how: Any) -> list[dict[str, Any]]:
        rescorer = Rescorer(**SETTINGS[1])
        fixed: dict[str, Any] = {"follow": False, "reservoir": 0, "batch_size": 16, "references": True}
        with chess_pipeline(golden / "gz", rescorer=rescorer, **fixed, **options, **how) as run:
            return [{name: array.copy() for name, array in batch.items()} for batch in run]

    found, wanted = batches(tensors=ChessTensors("bits")), batches(tensors=ChessTensors("bits"), validate=True)
    assert len(found) == len(wanted) > 0
    for one, other in zip(found, wanted, strict=True):
        for name in other:
            np.testing.assert_array_equal(one[name], other[name], name)
