"""HighwayHash of 64 bits (Alakuijala, Cox and Wassenberg, 2016), with the key of Riegeli files.

The state is four lanes of four 64-bit words. Each packet of 32 bytes is added, multiplied across lanes and shuffled by
bytes; sums and products wrap around. The last packet is padded in a way that depends on its length. The caller owns
the data. Reference: the portable code of the authors, github.com/google/highwayhash.
"""

from __future__ import annotations

import numpy as np

from penstock.core.arrays import ByteArray, UInt64Array, read_only
from penstock.kernels.jit import helper, kernel

KEY = read_only(np.frombuffer(b"Riegeli/records\nRiegeli/records\n", "<u8"))
_START = (
    *(0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3),
    *(0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377),
)


def highway_hash(data: ByteArray) -> int:
    """Return the HighwayHash of bytes under the key of Riegeli."""
    state = np.empty((4, 4), np.uint64)  # v0, v1, mul0, mul1
    state[2:] = np.array(_START, np.uint64).reshape(2, 4)
    state[0] = state[2] ^ KEY
    state[1] = state[3] ^ (KEY >> np.uint64(32) | KEY << np.uint64(32))
    whole = len(data) // 32 * 32
    _add_packets(state, data[:whole])
    rest = data[whole:]
    size = len(rest)
    if size:
        packet = np.zeros(32, np.uint8)
        packet[: size & ~3] = rest[: size & ~3]
        if size & 16:
            packet[28:] = rest[-4:]
        elif size & 3:
            tail = rest[size & ~3 :]
            packet[16:19] = tail[[0, (size & 3) >> 1, (size & 3) - 1]]
        _pad(state, np.uint64(size))
        _add_packets(state, read_only(packet))
    for _ in range(4):
        lanes = state[0][[2, 3, 0, 1]]
        _add_packets(state, read_only((lanes >> np.uint64(32) | lanes << np.uint64(32)).view(np.uint8)))
    return sum(int(word) for word in state[:, 0]) & 0xFFFFFFFFFFFFFFFF


def _pad(state: UInt64Array, size: np.uint64) -> None:
    """Mix the number of the last bytes into the state."""
    state[0] += (size << np.uint64(32)) + size
    halves = state[1].view(np.uint32)
    turn = np.uint32(size)
    halves[:] = halves << turn | halves >> (np.uint32(32) - turn)


@helper
def _merge(state: UInt64Array, row: int, into: int, lane: int) -> None:
    """Shuffle the bytes of two words of a row, and add them to two words of another."""
    a, b = state[row, lane], state[row, lane + 1]
    low = ((a & np.uint64(0xFF000000)) | (b & np.uint64(0xFF00000000))) >> np.uint64(24)
    low |= ((a & np.uint64(0xFF0000000000)) | (b & np.uint64(0xFF000000000000))) >> np.uint64(16)
    low |= (a & np.uint64(0xFF0000)) | ((a & np.uint64(0xFF00)) << np.uint64(32))
    low |= ((b & np.uint64(0xFF00000000000000)) >> np.uint64(8)) | (a << np.uint64(56))
    high = ((b & np.uint64(0xFF000000)) | (a & np.uint64(0xFF00000000))) >> np.uint64(24)
    high |= (b & np.uint64(0xFF0000)) | ((b & np.uint64(0xFF0000000000)) >> np.uint64(16))
    high |= ((b & np.uint64(0xFF00)) << np.uint64(24)) | ((a & np.uint64(0xFF000000000000)) >> np.uint64(8))
    high |= ((b & np.uint64(0xFF)) << np.uint64(48)) | (a & np.uint64(0xFF00000000000000))
    state[into, lane] += low
    state[into, lane + 1] += high


@kernel("u8[2C] u1[1Cr]")
def _add_packets(state: UInt64Array, data: ByteArray) -> None:
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for packet_start in range(0, len(data), 32):
        for i in range(4):
            lane = np.uint64(0)
            for k in range(8):
                lane |= np.uint64(data[packet_start + 8 * i + k]) << np.uint64(8 * k)
            state[1, i] += state[2, i] + lane
            state[2, i] ^= (state[1, i] & low) * (state[0, i] >> shift)
            state[0, i] += state[3, i]
            state[3, i] ^= (state[0, i] & low) * (state[1, i] >> shift)
        _merge(state, 1, 0, 0)
        _merge(state, 1, 0, 2)
        _merge(state, 0, 1, 0)
        _merge(state, 0, 1, 2)
