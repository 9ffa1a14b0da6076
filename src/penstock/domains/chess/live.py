"""`chess_pipeline`: the live stages put together for training games of Leela Chess Zero."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import FloatArray
from penstock.domains.chess.changed import encode_changed
from penstock.domains.chess.chunk_stages import ChunkRescorer, ChunkValidator, RecordRescorer
from penstock.domains.chess.compact import encode
from penstock.domains.chess.rescore import Rescorer
from penstock.domains.chess.tensors import ChessTensors
from penstock.domains.chess.validate import REFERENCE, Fault
from penstock.errors import DataError, PlanError
from penstock.formats.lc0 import FRAME, Missing, open_chunks
from penstock.live.chunk_sources import ChunkSourceLoader
from penstock.live.chunk_stages import ChunkStages, Transform
from penstock.live.directory import FilePathProvider, Watch
from penstock.live.hooks import ChunkFunctions, Frames
from penstock.live.journal import Journal, Move
from penstock.live.pipeline import LiveOptions, LivePipeline
from penstock.live.splitter import ChunkSourceSplitter, SplitPart
from penstock.plan.weights import Weight


@dataclass(frozen=True)
class DiffFocus:
    """Weights of positions: the more search and network differ, the greater.

    `min(((q_weight |best_q - orig_q| + policy_kld) / (q_weight + pol_scale) * alpha + beta) ** gamma, tau)`, and
    `default_weight` where the network's value is not known. What that makes negative or no number weighs nothing.
    Source: position sampling of Leela Chess Zero's loader. Raises `DataError` for two weights that sum to zero.

    >>> frames = np.zeros((2, 8396), np.uint8)
    >>> frames.view(FRAME)["best_q"][:, 0] = 0.0, 0.5
    >>> DiffFocus(q_weight=3.0, pol_scale=1.0)(frames).tolist()
    [0.0, 0.375]
    """

    q_weight: float = 0.0
    pol_scale: float = 1.0
    alpha: float = 1.0
    beta: float = 0.0
    gamma: float = 1.0
    tau: float = 1.0
    default_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.q_weight + self.pol_scale == 0 or self.default_weight < 0:
            raise DataError(f"expected weights above zero together, and a default of zero or more, got {self}")

    def __call__(self, frames: Frames) -> FloatArray:
        """`[n]` weight of each position of `frames` `[n, 8396]`."""
        records: Any = np.ascontiguousarray(frames).view(FRAME)[:, 0]
        best, orig, kld = (records[name].astype(np.float64) for name in ("best_q", "orig_q", "policy_kld"))
        mean = (self.q_weight * np.abs(best - orig) + kld) / (self.q_weight + self.pol_scale)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            weights = np.minimum((mean * self.alpha + self.beta) ** self.gamma, self.tau)
        weights = np.maximum(np.nan_to_num(weights, nan=0.0, neginf=0.0), 0.0)
        return np.where(np.isnan(orig), self.default_weight, weights)


def chess_inlet(
    directory: str | os.PathLike[str],
    *,
    watch: Watch = "auto",
    settle: float = 2.0,
    missing_st: Missing = "zero",
    verify: bool = False,
    as_stored: bool = False,
    threads: int = 1,
) -> ChunkSourceLoader:
    """The games below a directory, which may grow meanwhile, for pipelines that are put together by hand, with
    `chess_hooks`. Arguments are as in `chess_pipeline`; of a directory that is finished (`follow=False`), every file
    is taken as it is with `watch="off"`, else files that were written just now are left out. `as_stored` gives records
    as they are in the files, which is quicker, and needs hooks that look at none.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.formats.lc0 import packed_chunk
    >>> from penstock.live.options import Stream
    >>> folders = [tempfile.mkdtemp() for _ in range(2)]
    >>> games = np.zeros((8, 8396), np.uint8)
    >>> games.view(FRAME)["version"], games.view(FRAME)["input_format"] = 7, 1
    >>> for folder in folders:
    ...     _ = Path(folder, "training.1.gz").write_bytes(packed_chunk(games))
    >>> streams = [Stream(chess_inlet(f, watch="off"), weight) for f, weight in zip(folders, (3, 1))]
    >>> options = LiveOptions(reservoir=0, batch_size=8, follow=False, references=True)
    >>> with LivePipeline(streams, options, hooks=chess_hooks(), decode=ChessTensors().decode) as batches:
    ...     (next(batches)["chunk"] >> 48).tolist()  # of which stream each position is
    [0, 0, 1, 0, 0, 0, 1, 0]
    """
    provider = FilePathProvider(directory, watch=watch, settle=settle)
    opener = functools.partial(open_chunks, missing_st=missing_st, verify=verify, as_stored=as_stored)
    return ChunkSourceLoader(provider, opener, threads)


def chess_hooks(
    *,
    rescorer: Rescorer | None = None,
    validate: bool | Set[Fault] = False,
    weights: DiffFocus | None = None,
    missing_st: Missing = "zero",
    verify: bool = False,
    as_stored: bool = False,
) -> ChunkFunctions:
    """What games mean to a pipeline: checked, rescored, weighed, and kept as compact rows, which the `decode` of
    `ChessTensors` expands. Arguments are as in `chess_pipeline`; a set of stages for each pipeline that counts. With
    `as_stored`, for an inlet that gives records so, a rescorer leaves games as they were read, and what changes is
    combined with the positions that are wanted: nothing but a `light` rescorer may look at them.

    >>> chess_hooks(validate=True).transform.metrics()[0].name
    'chunk_validator'
    """
    stages: list[tuple[str, Transform]] = []
    if as_stored and rescorer is not None:
        if validate is not False or weights is not None or not rescorer.light:
            message = "expected as_stored without validate, weights, or a rescorer that is not light, got one of them"
            raise PlanError(message)
        transform = ChunkStages([("chunk_rescorer", RecordRescorer(rescorer))])
        return ChunkFunctions(transform, None, encode_changed, unverified=not verify)
    if validate is not False:
        stages.append(("chunk_validator", ChunkValidator(REFERENCE if validate is True else validate)))
    if rescorer is not None:
        stages.append(("chunk_rescorer", ChunkRescorer(rescorer)))
    transform = ChunkStages(stages) if stages else None
    return ChunkFunctions(transform, weights, functools.partial(encode, missing_st=missing_st), unverified=not verify)


def chess_pipeline(
    directory: str | os.PathLike[str],
    *,
    tensors: ChessTensors | None = None,
    rescorer: Rescorer | None = None,
    validate: bool | Set[Fault] = False,
    weights: DiffFocus | None = None,
    split: Sequence[Weight] | None = None,
    part: int = 0,
    watch: Watch = "auto",
    settle: float = 2.0,
    missing_st: Missing = "zero",
    verify: bool = False,
    journal: Journal | str | os.PathLike[str] | None = None,
    replay: Sequence[Move] | None = None,
    **options: Any,
) -> LivePipeline:
    """Batches of positions of the newest games below a directory, which may grow meanwhile.

    `options` are as in `penstock.live.pipeline.LiveOptions`: `window` games; `rate` or `count`, the positions taken at
    each use of a game; `reservoir`, the positions that are mixed; `batch_size`, `seed`, `follow` and others. The
    positions become the arrays that `tensors` says. A `rescorer` checks each game and corrects its targets. `validate`
    leaves out games with faults, the faults that it names or the original rescorer's, before they are rescored (by
    default nothing is checked but that records can be read).

    `weights` of positions go with `count`, and with `hanse_gamma`, which draws games by their weight. `split` and
    `part` choose a share of all games by a hash that is the same for ever, as `[9, 1]` and 1 for a tenth. `journal`
    records what the window did, `replay` repeats it. `watch` and `settle` as in
    `penstock.live.directory.FilePathProvider`, `missing_st` as in `penstock.formats.lc0.open_chunks`.

    Where nothing is checked or weighed, a game is unpacked no further than to the last position that is wanted: its
    checksum is not compared, and damage behind goes unseen, unless `verify` has it unpacked whole. For several folders
    or outputs: see `chess_inlet`. Begins once the newest games are indexed. Raises `FormatError` for a missing
    directory, `PlanError` for other options.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from penstock.formats.lc0 import packed_chunk
    >>> folder = tempfile.mkdtemp()
    >>> games = np.zeros((5, 8396), np.uint8)
    >>> games.view(FRAME)["version"], games.view(FRAME)["input_format"] = 7, 1
    >>> _ = Path(folder, "training.1.gz").write_bytes(packed_chunk(games))
    >>> with chess_pipeline(folder, follow=False, batch_size=3) as batches:
    ...     [batch["planes"].shape for batch in batches]
    [(3, 112, 8, 8), (2, 112, 8, 8)]
    """
    chosen = LiveOptions(**options)
    if weights is not None and chosen.count is None and chosen.hanse_gamma is None:
        raise PlanError("expected a count, or hanse_gamma, with weights of positions, got none: they have no effect")
    # Records whose whole frames are not needed become compact rows without becoming frames in between.
    stored = validate is False and weights is None and (rescorer is None or rescorer.light)
    how: dict[str, Any] = {"missing_st": missing_st, "verify": verify, "as_stored": stored}
    hooks = chess_hooks(rescorer=rescorer, validate=validate, weights=weights, **how)
    watch, how["threads"] = "off" if chosen.follow is False else watch, 1 if chosen.threads is None else chosen.threads
    inlet = chess_inlet(directory, watch=watch, settle=settle, **how)
    decode = (tensors or ChessTensors()).decode
    return LivePipeline(_part(inlet, split, part), chosen, hooks=hooks, decode=decode, journal=journal, replay=replay)


def _part(inlet: ChunkSourceLoader, split: Sequence[Weight] | None, part: int) -> ChunkSourceLoader | SplitPart:
    """All games, or a part of them."""
    if split is not None:
        return SplitPart(inlet, ChunkSourceSplitter(split), part)
    if part != 0:
        raise PlanError(f"expected a split to take part {part} of, got none")
    return inlet
