"""Encoded images: what is decoded, what is refused before it is decoded, and what can be encoded."""

import io
import os
import sysconfig
import zlib
from threading import Barrier, Thread

import numpy as np
import pytest
from PIL import Image

from penstock.containers import images as images_module
from penstock.containers.images import decode, decode_into, decode_rows, encode, is_jpeg, is_png, read_header
from penstock.errors import DataError, FormatError, UnsafeDataError

THREADS = 3
SHAPES = ((5, 7), (5, 7, 1), (5, 7, 2), (5, 7, 3), (5, 7, 4))


def pixels(shape, dtype="u1", seed=0):
    return np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def saved(image, kind="PNG", **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_png_comes_back_to_the_bit(shape):
    expected = pixels(shape)
    blob = encode(expected, "png")
    header = read_header(blob)
    assert (header.encoding, header.shape, header.dtype) == ("png", (5, 7, (*shape, 1)[2]), np.uint8)
    assert is_png(blob)
    out = np.zeros(shape, np.uint8)
    decode_into(blob, out)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(decode(blob), expected.reshape(out.squeeze().shape))


def test_grey_of_16_bits_comes_back_to_the_bit():
    expected = pixels((5, 7, 1), "u2")
    blob = encode(expected, "png")
    out = np.zeros((5, 7, 1), np.uint16)
    decode_into(blob, out)
    np.testing.assert_array_equal(out, expected)
    assert (read_header(blob).dtype, decode(blob).dtype) == (np.uint16, np.uint16)


def test_jpeg_is_what_pillow_decodes():
    blob = encode(pixels((16, 24, 3)), "jpeg", quality=90)
    out = np.zeros((16, 24, 3), np.uint8)
    decode_into(blob, out)
    np.testing.assert_array_equal(out, np.asarray(Image.open(io.BytesIO(blob))))
    assert is_jpeg(blob)
    assert len(encode(pixels((16, 24, 3)), "jpeg", quality=20)) < len(blob)


@pytest.mark.parametrize(
    ("image", "options", "mode"),
    [
        (Image.fromarray(pixels((5, 7))).quantize(4), {}, "RGB"),
        (Image.fromarray(pixels((5, 7))).quantize(4), {"transparency": 0}, "RGBA"),
        (Image.fromarray(pixels((5, 7)) > 100), {}, "L"),
    ],
)
def test_palettes_and_bits_become_colours(image, options, mode):
    blob = saved(image, **options)
    expected = np.asarray(Image.open(io.BytesIO(blob)).convert(mode))
    np.testing.assert_array_equal(decode(blob), expected)
    out = np.zeros_like(expected)
    decode_into(blob, out)
    np.testing.assert_array_equal(out, expected)


def test_other_channels_are_converted_only_on_request():
    grey = pixels((5, 7))
    out = np.zeros((5, 7, 3), np.uint8)
    with pytest.raises(FormatError, match=r"expected an image uint8\(5, 7, 3\), got PNG uint8\(5, 7, 1\)"):
        decode_into(encode(grey, "png"), out)
    decode_into(encode(grey, "png"), out, convert=True)
    np.testing.assert_array_equal(out, np.repeat(grey[..., None], 3, 2))
    np.testing.assert_array_equal(decode(encode(grey, "png"), "RGB"), out)


def test_depths_are_never_converted():
    with pytest.raises(FormatError, match="expected an image uint8"):
        decode_into(encode(pixels((5, 7), "u2"), "png"), np.zeros((5, 7), np.uint8), convert=True)
    with pytest.raises(FormatError, match="expected an image uint16"):
        decode_into(encode(pixels((5, 7)), "png"), np.zeros((5, 7), np.uint16), convert=True)


def test_a_header_that_claims_too_much_is_refused_before_decoding():
    blob = bytearray(encode(pixels((5, 7)), "png"))
    blob[16:24] = (9000).to_bytes(4, "big") * 2
    blob[29:33] = zlib.crc32(blob[12:29]).to_bytes(4, "big")
    with pytest.raises(UnsafeDataError, match="at most 67108864 pixels"):
        decode(bytes(blob))
    with pytest.raises(UnsafeDataError, match="at most 30 pixels"):
        decode(encode(pixels((5, 7)), "png"), most_pixels=30)


@pytest.mark.parametrize("blob", [b"", b"\x89PNG\r\n\x1a\n", b"GIF89a" + bytes(20), b"\xff\xd8\xff\xe0" + bytes(9)])
def test_what_is_no_image_is_refused(blob):
    with pytest.raises(FormatError, match=r"expected an image \(JPEG, PNG"):
        read_header(blob)


@pytest.mark.parametrize("encoding", ["png", "jpeg"])
@pytest.mark.parametrize("thread_bytes", [0, 1 << 20])
def test_rows_are_decoded_in_order_and_damage_names_the_row(encoding, thread_bytes, monkeypatch):
    monkeypatch.setattr(images_module, "THREAD_BYTES", thread_bytes)
    monkeypatch.setattr(images_module, "cores", lambda: 3)
    images = [pixels((16, 24, 3), seed=seed) for seed in range(9)]
    blobs = [encode(image, encoding) for image in images]
    out = np.zeros((9, 16, 24, 3), np.uint8)
    decode_rows(blobs, out)
    np.testing.assert_array_equal(out, [decode(blob) for blob in blobs])
    blobs[4] = blobs[4][:-40]
    with pytest.raises(FormatError, match=r"expected a whole image.* at camera, row 104 of the column"):
        decode_rows(blobs, out, where="camera", first=100)
    decode_rows([], out[:0])


@pytest.mark.parametrize(
    ("shape", "dtype", "encoding"),
    [
        ((5, 7, 4), "u1", "jpeg"),
        ((5, 7), "u2", "jpeg"),
        ((5, 7), "f4", "png"),
        ((5, 7, 3), "u2", "png"),
        ((5, 7, 5), "u1", "png"),
        ((0, 7), "u1", "png"),
        ((7,), "u1", "png"),
    ],
)
def test_what_an_encoding_cannot_hold_is_refused(shape, dtype, encoding):
    with pytest.raises(DataError, match=f"that {encoding} can hold, got"):
        encode(np.zeros(shape, dtype), encoding)


@pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="threads wait for no interpreter")
def test_threads_decode_small_images_in_turn():
    inside, most = [0], [0]

    def decode_one(_):
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        os.sched_yield()  # lets the others run
        inside[0] -= 1

    in_threads(lambda: images_module.decode_each(decode_one, 200, 200 * 64 * 64 * 3))
    assert most == [1]


def test_threads_decode_larger_images_together():
    all_inside = Barrier(THREADS, timeout=60)
    in_threads(lambda: images_module.decode_each(lambda _: all_inside.wait(), 1, 128 * 128 * 3))
    assert not all_inside.broken


def in_threads(read):
    threads = [Thread(target=read) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
