"""Games of chess, clean and damaged, for the tests of `check` and `repair`."""

# pyright: basic

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

import penstock
from penstock.containers.tar.writer import END, member
from penstock.formats.base.format import named
from penstock_chess.formats.lc0.source import SPEC
from tests.doctor.damage import BESIDE, GOLDEN, flipped
from tests.doctor.repairs import Damage, Plant, shorten


def lc0(path: Path) -> Path:
    """Four games of three positions."""
    game = {name: np.zeros((3, *field.shape), field.dtype) for name, field in SPEC.fields.items()}
    with named("lc0").create(path, SPEC) as writer:
        for e in range(4):
            columns = {**game, "input_format": np.ones(3, "<u4"), "plies_left": np.full(3, e, "<f4")}
            writer.write(penstock.Episode(SPEC, columns))
    return path


MAKE: dict[str, Callable[[Path], Path]] = {"games.tar": lc0}
DAMAGE: list[Damage] = [("games.tar", "truncated", shorten("", 1024 + 600), 1)]
WRITERS = ["games.tar"]


def chunk(path: Path) -> Path:
    """One training game of chess, compressed."""
    return Path(shutil.copy(GOLDEN / "lc0/gz/training.700001.gz", path))


def chunk_in_folder(path: Path) -> Path:
    """A folder of one training game."""
    path.mkdir()
    chunk(path / "training.1.gz")
    return path


def policy_of(value: float) -> Plant:
    """All probabilities of a game are one value."""

    def planted(path: Path) -> None:
        with penstock.open(path) as data:
            columns = dict(data[0].columns)
        columns["probabilities"] = np.full_like(columns["probabilities"], value)
        path.unlink()
        with named("lc0").create(path, data.spec) as writer:
            writer.write(penstock.Episode(data.spec, columns))

    return planted


def archive_ends_in(raw: bytes) -> Plant:
    """Bytes behind the members of an archive, in place of its end."""

    def planted(path: Path) -> None:
        path.write_bytes(path.read_bytes()[: -len(END)] + raw)

    return planted


def games(path: Path, episodes: list[dict[str, np.ndarray]]) -> None:
    """Chess games that have the length of the episodes, and no more in common with them than a number."""
    with named("lc0").create(path, SPEC) as writer:
        for episode in episodes:
            n = len(episode["rewards"])
            columns = {name: np.zeros((n, *field.shape), field.dtype) for name, field in SPEC.items()}
            columns["input_format"][:] = 3
            columns["plies_left"][:] = 1000 + episode["rewards"]
            writer.write(penstock.Episode(SPEC, columns))


NAMES = {"lc0": "training.tar"}
SPECIAL = {"lc0": games}
FOLLOWS = {("lc0", "near-duplicate"): {"duplicate-episode"}}
FILES: dict[str, list[tuple[Callable[[Path], Path], str, Plant]]] = {
    "lc0": [
        *((MAKE[make], name, plant) for make, name, plant, _ in DAMAGE),
        (chunk, "unreadable", flipped("", -6)),
        (chunk, "invalid-value", policy_of(2.0)),
        (chunk, "nan", policy_of(np.nan)),
        (chunk, "bad-file", shorten("", 100)),
        (MAKE["games.tar"], "damaged-part", archive_ends_in(member("z.gz", b"no game") + END)),
        (MAKE["games.tar"], "behind-the-end", archive_ends_in(END + b"signed by me" * 99)),
        *((chunk_in_folder, *plant) for plant in BESIDE),
    ],
}
