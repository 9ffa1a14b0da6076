"""Tracks of Waymo's `Scenario` messages: where the value of each field of each state is.

A track has a state a step, `valid` or not, with up to ten small fields; a message has thousands of states, which a loop
of the interpreter would take longer to walk than all else. The kernel notes the byte at which each value begins, so
that NumPy gathers all values of a field at once. The wire format is that of `penstock.kernels.examples`, whose helpers
keep to `begin : end`. The caller owns the arrays. Format: `scenario.proto` of the Waymo Open Dataset.
"""

from __future__ import annotations

from penstock.core.arrays import ByteArray, IntArray, IntScalar
from penstock.kernels.examples import field_at, varint
from penstock.kernels.jit import kernel

FIELDS = 10
"""Fields of a state: x, y, z (float64), length, width, height, heading, velocity x and y (float32), valid."""
DOUBLES, FLOATS = 3, 6


def find_states(data: ByteArray, begin: int, end: int, places: IntArray, head: IntArray) -> int:
    """Fill `places` `[steps, 10]` of a track: the byte of each value, -1 where it is missing; last whether it is valid.

    `head` `[2]` becomes id and type. Returns the number of states, which may be more than `steps`; -1 for a malformed
    track.
    """
    if not 0 <= begin <= end <= len(data) or places.shape[1] != FIELDS or len(head) != 2:
        raise ValueError(f"expected a track within {len(data)} bytes, got {begin}:{end} and {list(places.shape)}")
    return int(_find_states(data, begin, end, places, head))


@kernel("u1[1Cr] i8 i8 i8[2C] i8[1C]")
def _find_states(data: ByteArray, begin: IntScalar, end: IntScalar, places: IntArray, head: IntArray) -> IntScalar:
    count = 0
    offset = begin
    while offset < end:
        tag, first, offset = field_at(data, offset, end)
        if offset < 0:
            return -1
        if tag == 8 or tag == 16:  # id and type, varints
            head[(tag >> 3) - 1] = varint(data, first, offset)[0]
        elif tag == 26:  # a state
            if count < len(places):
                places[count, :9] = -1
                places[count, 9] = 0
                inner = first
                while inner < offset:
                    inside, value, inner = field_at(data, inner, offset)
                    if inner < 0:
                        return -1
                    number, wire = inside >> 3, inside & 7
                    if (wire == 1 and 2 <= number <= 4) or (wire == 5 and 5 <= number <= 10):
                        places[count, number - 2] = value
                    elif wire == 0 and number == 11:
                        places[count, 9] = varint(data, value, inner)[0] != 0
            count += 1
    return count
