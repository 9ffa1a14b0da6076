"""PNG and JPEG images that are decoded without Pillow: the same pixels, and the same errors."""

from __future__ import annotations

import io
import itertools
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from penstock.containers import images
from penstock.containers.images import PNG_START, _decode_png, decode, decode_into, encode
from penstock.errors import FormatError

TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
FILTERS = range(5)


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def filtered(pixels, kinds):
    """The bytes of a PNG image before they are compressed, by the definition in the specification."""
    rows = pixels.reshape(len(pixels), -1).astype(pixels.dtype.newbyteorder(">")).view("u1").astype(int)
    size = pixels.shape[2] * pixels.itemsize
    out = b""
    for y, row in enumerate(rows):
        above = rows[y - 1] if y else np.zeros_like(row)
        left, corner = (np.concatenate([np.zeros(size, int), each[:-size]]) for each in (row, above))
        nearest = np.abs(np.stack([left, above, corner]) - (left + above - corner)).argmin(0)
        paeth = np.choose(nearest, [left, above, corner])
        kind = kinds[y % len(kinds)]
        out += bytes([kind, *((row - [0, left, above, (left + above) // 2, paeth][kind]) & 255)])
    return out


def png(pixels, kinds=FILTERS, *, before=(), parts=1, raw=None, interlaced=0, after=b""):
    height, width, channels = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8 * pixels.itemsize, TYPES[channels], 0, 0, interlaced)
    packed = zlib.compress(filtered(pixels, kinds) if raw is None else raw)
    cut = np.linspace(0, len(packed), parts + 1).astype(int)
    data = [chunk(b"IDAT", packed[a:b]) for a, b in itertools.pairwise(cut)]
    return b"".join([PNG_START, chunk(b"IHDR", head), *before, *data, chunk(b"IEND", b""), after])


def noise(shape, dtype="u1"):
    return np.random.default_rng(0).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


@pytest.mark.parametrize(("channels", "dtype"), [*itertools.product(TYPES, ["u1", "u2"])])
def test_all_filters_give_back_the_pixels(channels, dtype):
    pixels = noise((11, 7, channels), dtype)
    for kinds in [*((kind,) for kind in FILTERS), FILTERS, (4, 3, 2, 1, 0)]:
        out = np.zeros_like(pixels)
        assert _decode_png(png(pixels, kinds), out)
        np.testing.assert_array_equal(out, pixels)
        decode_into(png(pixels, kinds), out[::-1])  # not in one piece: through another array
        np.testing.assert_array_equal(out[::-1], pixels)


@pytest.mark.parametrize(
    "options",
    [{"parts": 3}, {"before": [chunk(b"tEXt", b"a\0b")]}, {"after": b"more"}, {"kinds": (0,)}],
    ids=["parts", "text", "behind", "plain"],
)
def test_usual_files_are_read_here_and_as_pillow_reads_them(options):
    pixels = noise((9, 8, 3))
    blob, out = png(pixels, **options), np.zeros_like(pixels)
    assert _decode_png(blob, out)
    np.testing.assert_array_equal(out, pixels)
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(blob))), pixels)


@pytest.mark.parametrize(
    "options",
    [
        {"before": [chunk(b"tRNS", bytes(6))]},
        {"before": [chunk(b"PLTE", bytes(6))]},
        {"interlaced": 1},
        {"raw": bytes(9 * 25 - 1)},
        {"raw": bytes(9 * 25 + 1)},
        {"raw": b"\5" + bytes(9 * 25 - 1)},
    ],
    ids=["transparent", "palette", "interlaced", "short", "long", "filter"],
)
def test_unusual_files_are_what_pillow_says_they_are(options, monkeypatch):
    blob = png(noise((9, 8, 3)), **options)
    found = read(blob)
    assert not _decode_png(blob, np.zeros((9, 8, 3), np.uint8))
    monkeypatch.setattr(images, "_quickly", lambda *_: None)
    assert found == read(blob)


@pytest.mark.parametrize("channels", TYPES)
@pytest.mark.parametrize("width", [1, 2, 3, 5, 40])
def test_runs_of_paeths_filter_of_any_height_give_back_the_pixels(channels, width):
    """Up to four rows at a time, whose pixels are undone on a diagonal, beginning and ending at different times."""
    for height in range(1, 12):
        pixels = noise((height, width, channels))
        for kinds in ((4,), (4, 4, 4, 1), (0, 4, 4, 4, 4, 4, 2)):
            out = np.zeros_like(pixels)
            assert _decode_png(png(pixels, kinds), out)
            np.testing.assert_array_equal(out, pixels)


def test_the_choice_of_paeth_is_that_of_the_specification():
    """Every relation of the three neighbours, at distances that do not fit in a byte as well."""
    values = [0, 1, 100, 128, 129, 255]
    pixels = np.array([*itertools.product(values, repeat=4)], np.uint8).reshape(-1, 2, 2, 1).repeat(3, 3)
    for block in pixels:
        tall = np.concatenate([block] * 4)
        out = np.zeros_like(tall)
        assert _decode_png(png(tall, (4,)), out)
        np.testing.assert_array_equal(out, tall)


def test_what_pillow_would_inflate_beyond_the_image_is_not_inflated(monkeypatch):
    """The largest number of bytes that is asked for is that of the image, and one to see its end."""
    asked = []

    class Inflating:
        error = zlib.error
        crc32 = staticmethod(zlib.crc32)

        @staticmethod
        def decompressobj():
            inflate = zlib.decompressobj()

            class Bounded:
                eof, unused_data = False, b""

                def decompress(self, data, most):
                    asked.append(most)
                    return inflate.decompress(data, most)

            return Bounded()

    monkeypatch.setattr(images, "inflating", Inflating)
    assert not _decode_png(png(noise((9, 8, 3)), raw=bytes(1 << 20)), np.zeros((9, 8, 3), np.uint8))
    assert asked == [9 * 25 + 1]


def read(blob):
    try:
        return decode(blob).tolist()
    except FormatError as error:
        return str(error).split(" <_io")[0]


@pytest.mark.parametrize("encoding", ["png", "jpeg"])
def test_damage_is_what_pillow_says_it_is(encoding, monkeypatch):
    rng = np.random.default_rng(1)
    blob = encode(noise((12, 16, 3)), encoding)
    damaged = [blob[:end] for end in rng.integers(0, len(blob), 20).tolist()]
    for at in rng.integers(0, len(blob), 100).tolist():
        damaged.append(blob[:at] + bytes([blob[at] ^ 1 << int(rng.integers(8))]) + blob[at + 1 :])
    found = [read(each) for each in damaged]
    monkeypatch.setattr(images, "_quickly", lambda *given: None)
    assert found == [read(each) for each in damaged]
    assert len({str(each) for each in found}) > 4


@pytest.mark.parametrize(("quality", "smooth", "progressive"), [*itertools.product([30, 95], [0, 2], [False, True])])
def test_jpeg_does_not_depend_on_what_is_installed(quality, smooth, progressive, monkeypatch):
    for shape in ((17, 31, 3), (16, 24, 3), (9, 7)):
        file = io.BytesIO()
        Image.fromarray(noise(shape)).save(file, "JPEG", quality=quality, subsampling=smooth, progressive=progressive)
        blob, outs = file.getvalue(), np.zeros((2, *shape), np.uint8)
        assert images._quickly(blob, None, 1 << 20) is not None
        decode_into(blob, outs[0])
        with monkeypatch.context() as without:
            without.setattr(images, "_optional", lambda name: None)
            decode_into(blob, outs[1])
        np.testing.assert_array_equal(outs[0], outs[1])
        np.testing.assert_array_equal(outs[0], decode(blob))


def test_jpeg_of_other_colours_is_left_to_pillow():
    file = io.BytesIO()
    Image.fromarray(noise((8, 8, 3))).convert("CMYK").save(file, "JPEG")
    expected = np.asarray(Image.open(io.BytesIO(file.getvalue())).convert("RGB"))
    np.testing.assert_array_equal(decode(file.getvalue()), expected)
