"""`ReplayStatus`: counts of a replay at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.replay.run import ReplayRun


@dataclass(frozen=True)
class ReplayStatus:
    """How a replay stands. `Replay.refresh` makes it.

    Args:
        samples: Samples in memory.
        steps: Steps that arrived.
        episodes: Episodes that arrived, also open ones and ones that left; with a path, the episodes of the folder.
        drawn: Samples that were drawn.
        expired: Priority updates of samples that had left.
        dropped: Groups of completions that are never drawn, by reason: see `GroupSampler`.
        nbytes: Bytes of the rows in memory and the tables of episodes and samples, without the sum tree.
        may_insert: Whether the ratio allows more steps.

    Example:
        >>> import numpy as np, penstock
        >>> ratio = penstock.replay.SampleRatio(1.0, min_size=3, wait="report")
        >>> replay = penstock.Replay(None, 100, ratio=ratio)
        >>> replay.refresh().may_sample(1)
        False
        >>> replay.write(penstock.from_arrays({"rewards": np.arange(4.0)}, lengths=[4])[0])
        0
        >>> replay.refresh().may_sample(1), replay.refresh().may_sample(9)
        (True, False)
    """

    samples: int
    steps: int
    episodes: int
    drawn: int
    expired: int
    dropped: Mapping[str, int]
    nbytes: int
    may_insert: bool
    _run: ReplayRun = field(repr=False, compare=False)

    @classmethod
    def of(cls, run: ReplayRun) -> ReplayStatus:
        """Return the status of a replay after it has taken in what is new.

        Args:
            run: The replay.
        """
        with run.lock:
            run.pull()
            contents = run.contents
            lo, hi = contents.anchors
            counts = hi - lo, contents.extent[1], contents.episodes, run.drawn, contents.expired
            nbytes = 0 if contents.store is None else contents.store.nbytes
            return cls(*counts, contents.drawing.dropped, nbytes, run.may_insert(), run)

    def may_sample(self, n: int) -> bool:
        """Return whether `Replay.sample(n)` would draw at once, by the ratio and the samples in memory.

        Args:
            n: Number of samples.
        """
        ratio = self._run.options.ratio
        return self._run.contents.drawing.has(n) and (ratio is None or ratio.may_sample(self.steps, self.drawn, n))
