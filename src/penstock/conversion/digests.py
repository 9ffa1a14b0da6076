"""Digests of columns, by which a certificate compares datasets.

Each column of each episode has a digest of its values in a canonical form: little-endian, C-contiguous, with dtype and
row shape; ragged rows with their lengths. A certificate has one digest for each column, of the digests of its episodes.
To name what differs later, it also has the first 4 bytes of the digest of each episode, or of the digests of each range
of episodes, of at most `RANGES` ranges: so a column takes 22 kB at most, however many episodes there are.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import ByteArray
from penstock.core.ragged import Array, Ragged
from penstock.core.text import counted

DIGEST_BYTES = 16
START_BYTES = 4  # of the digest of each episode, or range of episodes, in a certificate
RANGES = 4096  # of episodes at most


def digest(values: Array) -> bytes:
    """Return the digest of a column of one episode in its canonical form, 16 bytes."""
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    if isinstance(values, Ragged):
        state.update(np.ascontiguousarray(values.lengths, "<i8").tobytes())
        values = values.values
    plain = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    state.update(f"{plain.dtype.str} {plain.shape}".encode())
    state.update(plain.tobytes() if plain.size < 1 << 16 else plain.reshape(-1).view(np.uint8).data)
    return state.digest()


@dataclass(frozen=True, eq=False)
class ColumnDigests:
    """Digests of one column of a dataset.

    Args:
        whole: 16 bytes, the digest of the digests of all episodes.
        starts: `[ranges, 4]` uint8, the first bytes of the digest of each range of episodes.
        episodes: Episodes of a range; the last one may have fewer. The default is 1: each episode has a digest.

    Example:
        >>> found = ColumnDigests.of([digest(np.zeros(2)), digest(np.ones(3))])
        >>> len(found.whole), found.starts.shape, ColumnDigests.from_json(found.to_json()).whole == found.whole
        (16, (2, 4), True)
    """

    whole: bytes
    starts: ByteArray
    episodes: int = 1

    @classmethod
    def of(cls, digests: Sequence[bytes]) -> ColumnDigests:
        """Make one from the digests of the episodes.

        Args:
            digests: Result of `digest` for each episode.
        """
        return cls.joined(b"".join(digests))

    @classmethod
    def joined(cls, digests: bytes | bytearray, episodes: int | None = None) -> ColumnDigests:
        """Make one from the digests of the episodes, one behind the other.

        Args:
            digests: 16 bytes an episode.
            episodes: Episodes of a range. The default is None: as few as make `RANGES` ranges at most.
        """
        whole = hashlib.blake2b(digests, digest_size=DIGEST_BYTES).digest()
        episodes = episodes or max(-(-len(digests) // (RANGES * DIGEST_BYTES)), 1)
        rows = np.frombuffer(bytes(digests), np.uint8).reshape(-1, DIGEST_BYTES)
        if episodes > 1:
            step = episodes * DIGEST_BYTES
            ranges = (digests[first : first + step] for first in range(0, len(digests), step))
            of_ranges = b"".join(hashlib.blake2b(each, digest_size=DIGEST_BYTES).digest() for each in ranges)
            rows = np.frombuffer(of_ranges, np.uint8).reshape(-1, DIGEST_BYTES)
        return cls(whole, rows[:, :START_BYTES].copy(), episodes)

    def difference(self, other: ColumnDigests) -> str:
        """Return which episodes have other digests, in words.

        Args:
            other: Digests of as many episodes.
        """
        places = np.flatnonzero((self.starts != other.starts).any(axis=1)).tolist()
        if not places:
            return "an episode"
        if self.episodes == 1:
            return f"{counted(len(places), 'episode')}, the first is {places[0]}"
        first = places[0] * self.episodes
        ranges = f"{counted(len(places), 'range')} of {self.episodes} episodes"
        return f"{ranges}, the first is episodes {first} to {first + self.episodes - 1}"

    def to_json(self) -> dict[str, Any]:
        """Return plain data: the digest in hexadecimal digits, and the first bytes as base64."""
        stated = {"digest": self.whole.hex(), "episodes": base64.b64encode(self.starts.tobytes()).decode()}
        return stated if self.episodes == 1 else {**stated, "episodes_of_a_range": self.episodes}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ColumnDigests:
        """Make one from the output of `to_json`.

        Args:
            data: Output of `to_json`.

        Raises:
            ValueError: A range has no episode.
        """
        starts = np.frombuffer(base64.b64decode(data["episodes"]), np.uint8).reshape(-1, START_BYTES)
        episodes = int(data.get("episodes_of_a_range", 1))
        if episodes < 1:
            raise ValueError(f"expected ranges of at least one episode, got {episodes}")
        return cls(bytes.fromhex(data["digest"]), starts, episodes)
