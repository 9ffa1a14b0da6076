"""Native demonstrations of benchmarks that are fuzzed."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.targets import Target, copy_of, dataset


def targets() -> Iterator[Target]:
    """All kinds of native demonstrations of benchmarks."""
    for kind, place in (
        *(("dm_control", "ilr/native/dm_control"), ("minerl", "ilr/native/minecraft")),
        *(("procgen", "ilr/native/procgen"), ("atari", "ilr/native/atari")),
    ):
        yield Target("native", kind, copy_of(place), dataset("native"))
    for name in ("magical_0", "dm_control"):
        yield Target("native", f"pickle {name}", copy_of(f"ilr/pickles/{name}.pkl.gz"), dataset("native"))
