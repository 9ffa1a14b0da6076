"""`LiveOptions`: options of a live run; `Stream`: one of several inlets that are joined."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from penstock.errors import PlanError
from penstock.flow.queue import Overflow
from penstock.plan.weights import Weight
from penstock_live.account import MaxLost, check_max_lost
from penstock_live.chunk_sources import Inlet
from penstock_live.hooks import ChunkFunctions
from penstock_live.join import Stop
from penstock_live.journal import Journal, Move
from penstock_live.seeds import key
from penstock_live.splitter import SplitPart


@dataclass(frozen=True)
class LiveOptions:
    """Options of a live run.

    These options decide the order: `window`, the number of newest chunks to draw from; `rate` or `count`, the positions
    taken at each use of a chunk (see `ChunkUnpacker`; with neither, all); `hanse_gamma`, `None` to disable hanse
    sampling; `reservoir`, the number of frames to shuffle, 0 to disable; `batch_size`; `seed`; `passes` over the window
    (`None`: endless if the run follows its files, else one); `drop_last`; `stop`, the end of several joined streams:
    `"drain"` continues until all streams are used up, `"first_exhausted"` ends with the first.

    `follow=True` takes new files in a thread; `False` takes only files that exist at the start; `"manual"` takes new
    files when `LivePipeline.poll` is called.

    `overflow` applies when more than `prefetch` batches wait for the consumer: `"block"` pauses, `"drop_new"` drops the
    newest batch, and `"keep_newest"` drops the oldest. With the last two, the consumer's speed decides which batches it
    gets.

    `max_lost` is how many chunks may be lost to damage (torn or failed, see `penstock_live.account.ChunkAccount`)
    before the run stops: a number, or a fraction of the chunks read so far (at least 1,000 are assumed). `None`
    disables the limit.

    These options do not change the order: `threads`, for reading and for decoding each (`None`: the number of cores, at
    most 4; 0 reads and decodes in the thread that asks for a batch, however long that takes, and requires finished data
    and `overflow="block"`); `draws` that are read together, more where each costs little; `prefetch`, in batches;
    `nbytes`, the limit in bytes of waiting frames and of waiting batches, each; `references`, whether batches name
    their frames; `ahead`, the number of later uses of a chunk whose positions are cached when the chunk is read, in at
    most `store_bytes` (for a small `count`: a chunk is then read once in `ahead + 1` uses).

    Args:
        window: Number of newest chunks to draw from. The default is 100,000.
        rate: Share of positions of each use of a chunk. The default is None: all, or `count`.
        count: Positions of each use of a chunk. The default is None: all, or `rate`.
        hanse_gamma: Exponent of `HanseSampling`. The default None disables it.
        reservoir: Frames to shuffle, 0 to disable. The default is 1,000,000.
        batch_size: Frames of a batch. The default is 1024.
        seed: 0 to 2^64 - 1. The default is 0.
        passes: Passes over the window. The default is None: endless if the run follows its files, else one.
        drop_last: Whether to drop a short last batch. The default is False.
        max_lost: Most chunks lost to damage, a number or a fraction, or None. The default is 0.1.
        stop: End of joined streams: `"drain"` or `"first_exhausted"`. The default is `"drain"`.
        follow: Whether to take new files: True, False or `"manual"`. The default is True.
        overflow: `"block"`, `"drop_new"` or `"keep_newest"`. The default is `"block"`.
        threads: Threads for reading, and the same number for decoding. The default None chooses; 0 works in the caller.
        draws: Draws that are read together. The default is 16.
        prefetch: Batches that wait for the consumer at most. The default is 4.
        nbytes: Limit in bytes of waiting frames, and of waiting batches. The default is 256 MiB.
        references: Whether batches name their frames. The default is False.
        ahead: Later uses of a chunk whose positions are cached. The default is 0.
        store_bytes: Limit in bytes of that cache. The default is 1 GiB.

    Raises:
        PlanError: An option is out of range, or two do not fit together.

    Example:
        >>> LiveOptions(window=1000, rate="1/8", follow=False).batch_size
        1024
    """

    window: int = 100_000
    rate: float | str | None = None
    count: int | None = None
    hanse_gamma: float | None = None
    reservoir: int = 1_000_000
    batch_size: int = 1024
    seed: int = 0
    passes: int | None = None
    drop_last: bool = False
    max_lost: MaxLost = 0.1
    stop: Stop = "drain"
    follow: bool | Literal["manual"] = True
    overflow: Overflow = "block"
    threads: int | None = None
    draws: int = 16
    prefetch: int = 4
    nbytes: int = 256 << 20
    references: bool = False
    ahead: int = 0
    store_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        check_max_lost(self.max_lost)
        if self.threads is not None and self.threads < 0:
            raise PlanError(f"expected threads of zero or more, or None to choose, got {self.threads}")
        if self.threads == 0 and self.overflow != "block":
            raise PlanError(
                f"expected overflow='block' with threads=0, got {self.overflow!r}: a pipeline that drops batches runs "
                "ahead of its consumer, in a thread; give threads=None"
            )

    def decides(self) -> dict[str, Any]:
        """Return the options that decide the order, for states."""
        free = {
            "max_lost",
            "threads",
            "draws",
            "prefetch",
            "nbytes",
            "references",
            "follow",
            "overflow",
            "ahead",
            "store_bytes",
        }
        named = {name: value for name, value in asdict(self).items() if name not in free}
        return {**named, "rate": str(self.share)}

    @property
    def share(self) -> Fraction | None:
        """Exact rate; one if neither rate nor count is given."""
        if self.rate is None:
            return Fraction(1) if self.count is None else None
        return Fraction(str(self.rate))


@dataclass(frozen=True, eq=False)
class Stream:
    """One of several inlets whose positions are joined; `weight` is its share of the positions.

    A stream has its own window and its own journal, or the path of one. Options that are None are taken from the
    pipeline; `rate` and `count` go together. With `in_turn`, there is no window: the stream reads all chunks of one
    source, each once, then of the next (see `SimpleChunkExtractor`). `name` identifies its stages in the metrics.

    Args:
        inlet: Origin of the sources of chunks, or a part of a split inlet.
        weight: Share of the positions, in any scale. The default is 1.
        name: Name of its stages in the metrics. The default is its number.
        window: As in `LiveOptions`. The default None takes the option of the pipeline.
        rate: As `window`.
        count: As `window`.
        hanse_gamma: As `window`.
        passes: As `window`.
        ahead: As `window`.
        store_bytes: As `window`.
        in_turn: Whether to read the sources in turn, without a window. The default is False.
        hooks: Functions of the domain. The default None takes the functions of the pipeline.
        journal: Journal or the path of one, to which moves of the window are written. The default None writes none.
        replay: Moves of an earlier run, to repeat it. The default None repeats nothing.

    Raises:
        PlanError: An option does not apply to `in_turn`.

    Example:
        >>> import penstock
        >>> from penstock_live import EpisodeInlet
        >>> source = penstock.from_arrays({"rewards": [0.0, 1.0]}, lengths=[2]).source
        >>> Stream(EpisodeInlet(source, ["rewards"]), weight=3, name="new").weight
        3
    """

    inlet: Inlet | SplitPart
    weight: Weight = 1
    name: str = ""
    window: int | None = None
    rate: float | str | None = None
    count: int | None = None
    hanse_gamma: float | None = None
    passes: int | None = None
    ahead: int | None = None
    store_bytes: int | None = None
    in_turn: bool = False
    hooks: ChunkFunctions | None = None
    journal: Journal | str | os.PathLike[str] | None = None
    replay: Sequence[Move] | None = None

    def options(self, common: LiveOptions, place: int) -> LiveOptions:
        """Return the options of the stream with this index.

        Args:
            common: Options of the pipeline.
            place: Index of the stream.
        """
        names = ("window", "hanse_gamma", "passes", "ahead", "store_bytes")
        own: dict[str, Any] = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.rate is not None or self.count is not None:
            own |= {"rate": self.rate, "count": self.count}
        chosen = replace(common, **own)
        if self.in_turn and (chosen.hanse_gamma is not None or chosen.passes not in (None, 1) or chosen.ahead):
            raise PlanError(f"expected one pass, and neither hanse_gamma nor ahead, for sources in turn, got {chosen}")
        # The first is as it would be alone.
        return chosen if place == 0 else replace(chosen, seed=int(key(common.seed, f"stream {place}")))
