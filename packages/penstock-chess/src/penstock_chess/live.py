"""`chess_pipeline`: the live stages put together for training games of Leela Chess Zero."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import FloatArray
from penstock.errors import DataError, PlanError
from penstock.plan.weights import Weight
from penstock_chess.archiving import ArchiveInlet, ArchivingLoader, GameArchive
from penstock_chess.changed import encode_changed
from penstock_chess.chunk_stages import ChunkRescorer, ChunkValidator, RecordRescorer
from penstock_chess.compact import encode
from penstock_chess.formats.archive import FORMAT as ARCHIVE
from penstock_chess.formats.archive import ArchiveSource
from penstock_chess.formats.lc0 import FRAME, Missing, open_chunks
from penstock_chess.rescore import Rescorer
from penstock_chess.tensors import ChessTensors
from penstock_chess.validate import REFERENCE, Fault
from penstock_live.chunk_sources import ChunkSourceLoader, Inlet
from penstock_live.directory import FilePathProvider, Watch
from penstock_live.hooks import ChunkFunctions, ChunkStages, Frames, Transform
from penstock_live.journal import Journal, Move
from penstock_live.pipeline import LiveOptions, LivePipeline
from penstock_live.splitter import ChunkSourceSplitter, SplitPart


@dataclass(frozen=True)
class DiffFocus:
    """Weights of positions: the more the search and the network differ, the greater.

    The weight is `min(((q_weight |best_q - orig_q| + policy_kld) / (q_weight + pol_scale) * alpha + beta) ** gamma,
    tau)`, and `default_weight` if the network's value is unknown. A negative result, or NaN, becomes 0.

    Source: position sampling of Leela Chess Zero's loader.

    Args:
        q_weight: Factor of the difference of values. The default is 0.
        pol_scale: Divisor of the difference of policies, in nats. The sum with `q_weight` must not be 0. The default is
            1.
        alpha: Factor of the mean. The default is 1.
        beta: Summand of the mean. The default is 0.
        gamma: Exponent. The default is 1.
        tau: Largest weight. The default is 1.
        default_weight: Weight of positions without `orig_q`, 0 or more. The default is 1.

    Raises:
        DataError: `q_weight` and `pol_scale` sum to zero, or `default_weight` is negative.

    Example:
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
    archive: str | os.PathLike[str] | None = None,
) -> Inlet:
    """Open the games below a directory, or of an archive, which may grow meanwhile.

    `chess_pipeline` does this itself. Call it to build a pipeline of several folders or outputs, together with
    `chess_hooks`.

    Args:
        directory: Folder of `.gz` chunks and tar files, searched recursively; or an archive, whose frames are read
            alone: options about files have no meaning there.
        watch: How new files are found: `"auto"`, `"native"`, `"poll"`, or `"off"` for a finished directory. With
            `"off"` every file counts; otherwise files that were written just now wait. The default is `"auto"`.
        settle: Seconds without a change after which a file counts as complete. The default is 2.
        missing_st: Short-term values of records of version 6: `"zero"` (the default) or `"nan"`.
        verify: Whether each game is unpacked completely and its checksum compared. The default is False.
        as_stored: Whether records stay as they are in the files, which is faster. The functions of the pipeline must
            then read none of their fields. The default is False.
        threads: Threads that open files; 0 opens them in the caller. The default is 1.
        archive: Archive to which each game is added when it is read for the first time, as it is in its file. The
            archive is created if it does not exist. The default is None: none.

    Returns:
        The files of games, as input of a `Stream`.

    Raises:
        FormatError: The directory does not exist.
        LockedError: Another live run archives to `archive`.
        PlanError: An option is out of range, or it is about files and games are in an archive.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from penstock_chess.formats.lc0 import packed_chunk
        >>> from penstock_live.options import Stream
        >>> folders = [tempfile.mkdtemp() for _ in range(2)]
        >>> games = np.zeros((8, 8396), np.uint8)
        >>> games.view(FRAME)["version"], games.view(FRAME)["input_format"] = 7, 1
        >>> for folder in folders:
        ...     _ = Path(folder, "training.1.gz").write_bytes(packed_chunk(games))
        >>> streams = [Stream(chess_inlet(f, watch="off"), weight) for f, weight in zip(folders, (3, 1))]
        >>> options = LiveOptions(reservoir=0, batch_size=8, follow=False, references=True)
        >>> with LivePipeline(streams, options, hooks=chess_hooks(), decode=ChessTensors().decode) as batches:
        ...     (next(batches)["chunk"] >> 48).tolist()  # the stream of each position
        [0, 0, 1, 0, 0, 0, 1, 0]
    """
    if ARCHIVE.recognises(Path(directory)):
        if missing_st != "zero" or verify or archive is not None:
            raise PlanError("expected files with missing_st, verify or archive, got an archive; leave them out")
        return ArchiveInlet(ArchiveSource(Path(directory)))
    provider = FilePathProvider(directory, watch=watch, settle=settle)
    opener = functools.partial(open_chunks, missing_st=missing_st, verify=verify, as_stored=as_stored)
    if archive is not None:
        return ArchivingLoader(provider, opener, threads, GameArchive(Path(archive), missing_st))
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
    """Return the functions by which a pipeline reads games: check, rescore, weigh, and encode as compact rows.

    The `decode` of `ChessTensors` expands the rows. The stages count games, so each pipeline needs its own functions.

    Args:
        rescorer: Corrects the targets of each game. The default is None: targets stay.
        validate: Faults for which a game is left out; True stands for `REFERENCE`. The default is False: no check.
        weights: Weights of positions. The default is None: positions are equally likely.
        missing_st: Short-term values of records of version 6: `"zero"` (the default) or `"nan"`.
        verify: Whether each game is unpacked completely and its checksum compared. The default is False.
        as_stored: Whether the inlet yields records as stored. Games then stay as they were read, and a `light` rescorer
            changes only the positions that are wanted. The default is False.

    Returns:
        The functions, as `hooks` of a `LivePipeline`.

    Raises:
        PlanError: `as_stored` together with `validate`, `weights` or a rescorer that is not `light`.

    Example:
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
    archive: str | os.PathLike[str] | None = None,
    journal: Journal | str | os.PathLike[str] | None = None,
    replay: Sequence[Move] | None = None,
    **options: Any,
) -> LivePipeline:
    """Load batches of positions of the newest games below a directory, which may grow meanwhile.

    Returns once the newest games are indexed. If games are neither checked nor weighed, each game is unpacked only as
    far as the last position that is wanted. Damage behind it is not noticed, unless `verify` is set.

    Args:
        directory: Folder of `.gz` chunks and tar files, searched recursively; or an archive, from which each frame is
            read alone.
        tensors: Arrays of a batch. The default is `ChessTensors()`: planes, probabilities and values in float32.
        rescorer: Checks each game and corrects its targets. The default is None: targets stay.
        validate: Faults for which a game is left out before it is rescored; True stands for `REFERENCE`, the faults
            that the original rescorer rejects. The default is False: records only have to be readable.
        weights: Weights of positions. They need `count`, or `hanse_gamma`, which draws games by their weight. The
            default is None.
        split: Weights of the parts of all games; a hash assigns games to parts, forever. The default is None: no parts.
        part: The part to load: `split=[9, 1]` and `part=1` load one tenth. The default is 0.
        watch: How new files are found: `"auto"`, `"native"`, `"poll"` or `"off"`. The default is `"auto"`.
        settle: Seconds without a change after which a file counts as complete. The default is 2.
        missing_st: Short-term values of records of version 6: `"zero"` (the default) or `"nan"`.
        verify: Whether each game is unpacked completely and its checksum compared. The default is False.
        archive: Archive to which each game is added when it is read for the first time, as it is in its file. It is
            created if it does not exist, and may be read meanwhile. The default is None: none.
        journal: File, or journal, that records each move of the window. The default is None.
        replay: Moves of a journal to repeat. The default is None.
        options: Options of `LiveOptions`: `window` (games), `rate` or `count` (positions taken at each use of a game),
            `reservoir` (positions that are mixed), `batch_size`, `seed`, `follow` and others.

    Returns:
        An iterator over batches, and a context manager that ends its threads.

    Raises:
        FormatError: The directory does not exist.
        LockedError: Another live run archives to `archive`.
        PlanError: An option is unknown or out of range, weights have no effect, or `part` is set without `split`.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from penstock_chess.formats.lc0 import packed_chunk
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
    inlet = chess_inlet(directory, watch=watch, settle=settle, archive=archive, **how)
    decode = (tensors or ChessTensors()).decode
    return LivePipeline(_part(inlet, split, part), chosen, hooks=hooks, decode=decode, journal=journal, replay=replay)


def _part(inlet: Inlet, split: Sequence[Weight] | None, part: int) -> Inlet | SplitPart:
    """All games, or a part of them."""
    if split is not None:
        return SplitPart(inlet, ChunkSourceSplitter(split), part)
    if part != 0:
        raise PlanError(f"expected a split to take part {part} of, got none")
    return inlet
