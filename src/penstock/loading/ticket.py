"""`Ticket`: an id of 16 bytes for the rows of a batch. `Batch`: columns with a ticket."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.columns import Columns
from penstock.errors import StateError

FORM = struct.Struct(">QI4s")  # first position, positions, digest of the plan
HEX = re.compile("[0-9a-fA-F]*")
MOST = (1 << 32) - 1
LAST = (1 << 62) - 1


@dataclass(frozen=True)
class Ticket:
    """Id of the rows of a batch: the positions `position : position + count` of one plan.

    Positions count the samples of the dataset's order from its first epoch on. As bytes, a ticket is position (8),
    count (4) and digest (4), big-endian. It prints as 32 hexadecimal digits.

    Args:
        position: First position, 0 to 2^62 - 1.
        count: Number of positions, 0 to 2^32 - 1.
        digest: First 8 hexadecimal digits of the plan's fingerprint.

    Raises:
        StateError: A value is out of range.

    Example:
        >>> ticket = Ticket(4096, 64, "0123abcd")
        >>> str(ticket), Ticket.parse(str(ticket)) == ticket
        ('0000000000001000000000400123abcd', True)
    """

    position: int
    count: int
    digest: str

    def __post_init__(self) -> None:
        numbers = (type(self.position), type(self.count), type(self.digest)) == (int, int, str)
        if not (numbers and 0 <= self.position <= LAST and 0 <= self.count <= MOST and _is_hex(self.digest, 8)):
            raise StateError(
                f"expected a ticket of a position below 2^62, a count below 2^32 and 8 hexadecimal digits, "
                f"got {self.position}, {self.count} and {self.digest!r}"
            )

    def __bytes__(self) -> bytes:
        return FORM.pack(self.position, self.count, bytes.fromhex(self.digest))

    def __str__(self) -> str:
        return bytes(self).hex()

    @property
    def stop(self) -> int:
        """Position after the last."""
        return self.position + self.count

    @classmethod
    def parse(cls, ticket: Ticket | str | bytes) -> Ticket:
        """Make a ticket from its digits or bytes.

        Args:
            ticket: 32 hexadecimal digits, 16 bytes, or a ticket.

        Raises:
            StateError: The value is not a ticket.
        """
        if isinstance(ticket, Ticket):
            return ticket
        data: Any = ticket
        if isinstance(data, str):
            text = data.strip()
            if not _is_hex(text, 2 * FORM.size):
                raise StateError(
                    f"expected a ticket of {2 * FORM.size} hexadecimal digits, got {text!r}; copy it whole"
                )
            data = bytes.fromhex(text)
        if not isinstance(data, bytes) or len(data) != FORM.size:
            raise StateError(f"expected a ticket of {FORM.size} bytes or {2 * FORM.size} digits, got {data!r}")
        position, count, digest = FORM.unpack(data)
        return cls(position, count, digest.hex())


class Batch(Columns):
    """`Columns` with the batch ticket of their rows.

    Args:
        tree: Arrays by path, as for `Columns`.
        n: Number of rows. The default is the length of the first array.
        ticket: The ticket. The default is None: the rows have no positions.
        weight: Weight of the share of this rank. The default is 1.

    Attributes:
        weight: Rows of this rank, divided by the mean of all ranks: 1 if they have equally many, 0 without rows. If
            each rank multiplies the mean of its losses by it, their average is the mean of the whole batch.

    Example:
        >>> Batch.of(Columns({"x": [1, 2]}), Ticket(0, 2, "0123abcd")).ticket.count
        2
    """

    __slots__ = ("_ticket", "weight")

    _ticket: Ticket | None
    weight: float

    def __init__(
        self, tree: Mapping[str, Any], n: int | None = None, *, ticket: Ticket | None = None, weight: float = 1.0
    ) -> None:
        super().__init__(tree, n)
        self._ticket = ticket
        self.weight = weight

    @classmethod
    def of(cls, columns: Columns, ticket: Ticket | None, weight: float = 1.0) -> Batch:
        """Return columns with a ticket.

        Args:
            columns: The columns.
            ticket: The ticket, or None if the rows have no positions.
            weight: Weight of the share of this rank. The default is 1.
        """
        batch = cls.__new__(cls)
        batch.flat = columns.flat
        batch.n = columns.n
        batch._ticket = ticket
        batch.weight = weight
        return batch

    @property
    def has_ticket(self) -> bool:
        """Whether the rows have positions."""
        return self._ticket is not None

    @property
    def ticket(self) -> Ticket:
        """Ticket of the rows.

        Raises:
            StateError: It is a block of an `IterDataset`, whose rows have no positions.
        """
        if self._ticket is None:
            raise StateError(
                "expected a batch of a MapDataset, got a block of an IterDataset, whose rows have no position and no "
                "ticket; where filters and packs are planned, batches have one"
            )
        return self._ticket


def _is_hex(text: str, digits: int) -> bool:
    return len(text) == digits and HEX.fullmatch(text) is not None
