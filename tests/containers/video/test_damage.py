"""Damaged, cut, replaced and foreign files; bounds of memory; caches of indexes."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.containers.video import VideoFiles, index, packet_index
from penstock.containers.video.decoders import POOL, Decoder, DecoderPool
from penstock.errors import FormatError, UnsafeDataError
from penstock.files.descriptors import POOLED
from tests.containers.video.conftest import FRAMES, HEIGHT, WIDTH, decoded, encode, pictures


def frame(files: VideoFiles, number: int, file: int = 0) -> np.ndarray[Any, Any]:
    out = np.zeros((1, *files.shape), np.uint8)
    files.read([file], [number], [0], out)
    return out[0]


def test_a_file_with_a_cut_end(tmp_path: Path, videos: dict[str, Path]) -> None:
    """Frames that are there are read; the message says what the file claims."""
    raw = videos["faststart.mp4"].read_bytes()
    (tmp_path / "cut.mp4").write_bytes(raw[: len(raw) * 3 // 4])
    files = VideoFiles([tmp_path / "cut.mp4"])
    expected, seconds = decoded(videos["faststart.mp4"])
    count = files.frame_count(0)
    assert 10 < count < FRAMES
    for number in range(10):
        np.testing.assert_array_equal(frame(files, number), expected[number])
    with pytest.raises(FormatError, match=rf"expected frame 39, got a video of {count} frames; it claims 40"):
        frame(files, 39)
    with pytest.raises(FormatError, match=rf"claims 40 frames and has {count}.*cut\.mp4"):
        files.frame_numbers(0, seconds, 1e-3)
    (tmp_path / "headless.mp4").write_bytes(videos["h264.mp4"].read_bytes()[:-600])
    with pytest.raises(FormatError, match=r"damaged or cut.*headless\.mp4"):
        packet_index(tmp_path / "headless.mp4")


@pytest.mark.parametrize("kind", ["av1.mp4", "av1_faststart.mp4", "vp9.mp4"])
@pytest.mark.parametrize("part", [1.0, 0.7])
def test_tables_of_packets_say_what_the_packets_say(
    kind: str, part: float, tmp_path: Path, videos: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = videos[kind].read_bytes()
    path = tmp_path / kind
    path.write_bytes(raw[: int(len(raw) * part)])
    if part < 1 and kind != "av1_faststart.mp4":
        with pytest.raises(FormatError, match="damaged or cut"):
            packet_index(path)  # the table is at the end
        return
    found = packet_index(path, keep=False)
    monkeypatch.setattr(index, "IN_ORDER", ())
    expected = packet_index(path, keep=False)
    assert found.claimed == expected.claimed == FRAMES
    assert (len(found) == FRAMES) == (part == 1)
    for name in ("offset", "size", "rank", "keys", "ticks", "start"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty file"),
        (b"#EXTM3U\n#EXTINF:1,\nother.ts\n", "expected a video in MP4"),
        (b"ffconcat version 1.0\nfile /etc/passwd\n", "expected a video in MP4"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "expected a video in MP4"),
        (b"\x00\x00\x00\x18ftypisom" + bytes(100), "damaged or cut"),
        (b"\x1aE\xdf\xa3" + bytes(100), "damaged or cut"),
    ],
)
def test_files_that_are_no_videos(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "film.mp4").write_bytes(content)
    with pytest.raises(FormatError, match=message):
        VideoFiles([tmp_path / "film.mp4"]).index(0)


def test_missing_files_folders_and_wrong_suffixes(tmp_path: Path, videos: dict[str, Path]) -> None:
    with pytest.raises(FormatError, match="found none"):
        VideoFiles([tmp_path / "none.mp4"]).index(0)
    with pytest.raises(UnsafeDataError, match="folder"):
        VideoFiles([tmp_path]).index(0)
    shutil.copy(videos["vp9.webm"], tmp_path / "film.mp4")
    (tmp_path / "link.avi").symlink_to("film.mp4")
    expected, _ = decoded(videos["vp9.webm"])
    for name in ("film.mp4", "link.avi"):
        np.testing.assert_array_equal(frame(VideoFiles([tmp_path / name]), 7), expected[7])


def test_files_of_several_sizes(tmp_path: Path, videos: dict[str, Path]) -> None:
    small = encode(tmp_path / "small.mp4", "h264.mp4", pictures(5)[:, :32, :32])
    files = VideoFiles([videos["h264.mp4"], small])
    with pytest.raises(FormatError, match=r"64 x 48 as in h264\.mp4, got 32 x 32; size=.*small\.mp4"):
        frame(files, 0, 1)
    scaled = VideoFiles(files.paths, size=(24, 24))
    np.testing.assert_array_equal(frame(scaled, 3, 1), decoded(small, height=24, width=24)[0][3])


@pytest.mark.parametrize("kind", ["h264.mp4", "av1.mp4", "vp9.webm"])
def test_damaged_bytes_give_frames_or_a_format_error(kind: str, tmp_path: Path, videos: dict[str, Path]) -> None:
    raw = videos[kind].read_bytes()
    rng, refused = np.random.default_rng(7), 0
    for i in range(60):
        data = bytearray(raw)
        if i % 3 == 0:
            data = data[: rng.integers(len(data))]
        else:
            for _ in range(4):
                data[rng.integers(len(data))] = rng.integers(256)
        (tmp_path / "film").write_bytes(bytes(data))
        try:
            files = VideoFiles([tmp_path / "film"], keep_index=False, threads=0)
            out = np.empty((4, *files.shape), np.uint8)
            files.read(0, rng.integers(0, FRAMES, 4), range(4), out)
        except FormatError:
            refused += 1
    assert 10 <= refused < 60


def test_a_file_that_is_replaced_or_written_to(tmp_path: Path, videos: dict[str, Path]) -> None:
    path = tmp_path / "film.mp4"
    shutil.copy(videos["h264.mp4"], path)
    files = VideoFiles([path])
    first = frame(files, 0)
    shutil.copy(videos["av1.mp4"], tmp_path / "other.mp4")
    os.replace(tmp_path / "other.mp4", path)
    np.testing.assert_array_equal(frame(files, 0), first)  # the file that was opened is still there
    files.close()
    np.testing.assert_array_equal(frame(files, 0), decoded(videos["av1.mp4"])[0][0])
    with path.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(FormatError, match="replaced or changed; open the dataset again"):
        frame(files, 20)


def test_indexes_are_kept_between_processes(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, videos: dict[str, Path]
) -> None:
    path = Path(shutil.copy(videos["h264.mp4"], tmp_path))
    os.utime(path, ns=(10**18, 10**18))
    made = packet_index(path)
    (kept,) = (own_cache / "videos").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(index, "_demuxed", lambda *_: pytest.fail("demuxed again"))
        again = packet_index(path)
    np.testing.assert_array_equal(again.start, made.start)
    np.testing.assert_array_equal(again.ticks, made.ticks)
    raw = bytearray(kept.read_bytes())
    raw[-5] ^= 1
    kept.write_bytes(bytes(raw))
    np.testing.assert_array_equal(packet_index(path).ticks, made.ticks)  # damaged: made again
    np.testing.assert_array_equal(packet_index(path, keep=False).ticks, made.ticks)
    shutil.rmtree(own_cache)
    own_cache.write_text("a file where the folder should be")
    np.testing.assert_array_equal(packet_index(path).ticks, made.ticks)


def test_a_file_that_is_written_again_within_one_tick_of_the_clock_is_indexed_again(
    own_cache: Path, tmp_path: Path, videos: dict[str, Path]
) -> None:
    path, contents = tmp_path / "film.mp4", [videos[name].read_bytes() for name in ("h264.mp4", "av1.mp4")]
    path.touch()
    now = path.stat().st_mtime_ns + 10**15  # so that the clock of the test does not matter
    for content in contents:
        padding = max(map(len, contents)) + 8 - len(content)
        path.write_bytes(content + padding.to_bytes(4, "big") + b"free" + bytes(padding - 8))
        os.utime(path, ns=(now, now))
        np.testing.assert_array_equal(packet_index(path).offset, packet_index(path, keep=False).offset)


def test_indexes_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch, videos: dict[str, Path]) -> None:
    monkeypatch.setattr("penstock.containers.video.files.INDEX_BYTES", 1500)
    files = VideoFiles([videos["h264.mp4"], videos["hevc.mp4"], videos["av1.mp4"]])
    for number in range(FRAMES):
        file = number % 3
        np.testing.assert_array_equal(frame(files, number, file), decoded(files.paths[file])[0][number])


def test_decoders_are_few(tmp_path: Path, videos: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were encoded alike share decoders; others make room for each other."""
    paths = []
    for i in range(30):
        paths.append(tmp_path / f"{i}.mp4")
        shutil.copy(videos["h264.mp4"], paths[-1])
    made: list[Path] = []
    monkeypatch.setattr(
        VideoFiles, "_made", lambda self, path, make=VideoFiles._made: made.append(path) or make(self, path)
    )
    POOL.clear()
    files = VideoFiles(paths, threads=0)
    for file in range(30):
        frame(files, 5, file)
    assert len(made) == 1
    pool = DecoderPool()
    monkeypatch.setattr("penstock.containers.video.decoders.IDLE", 3)
    monkeypatch.setattr("penstock.containers.video.decoders.cores", lambda: 2)
    decoder = made_decoder(videos["h264.mp4"])
    for i in range(10):
        with pool.decoder(str(i), lambda: decoder):
            assert pool.stats()["busy"] == 1
    assert pool.stats() == {"busy": 0, "idle": 3, "nbytes": 3 * decoder.nbytes}
    with pytest.raises(ZeroDivisionError), pool.decoder("9", lambda: decoder):
        1 / 0  # noqa: B018
    assert pool.stats()["idle"] == 2  # a decoder that failed is not used again
    monkeypatch.setattr("penstock.containers.video.decoders.IDLE_BYTES", 1)
    with pool.decoder("8", lambda: decoder):
        pass
    assert pool.stats() == {"busy": 0, "idle": 0, "nbytes": 0}


def made_decoder(path: Path) -> Decoder:
    return VideoFiles([path])._made(path)  # pyright: ignore[reportPrivateUsage]


def test_a_fork_while_threads_decode(videos: dict[str, Path]) -> None:
    files = VideoFiles([videos["h264_long.mp4"], videos["av1.mp4"]], threads=2)
    expected = frame(files, 30)
    stop = threading.Event()

    def work() -> None:
        out = np.empty((FRAMES, *files.shape), np.uint8)
        while not stop.is_set():
            files.read(np.arange(FRAMES) % 2, range(FRAMES), range(FRAMES), out)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    codes: list[int] = []
    for _ in range(5):
        child = os.fork()
        if child == 0:
            signal.alarm(120)  # ends a process that waits for a lock of a thread that it does not have
            code = 1
            try:
                code = 0 if np.array_equal(frame(files, 30), expected) else 2
            finally:
                os._exit(code)
        codes.append(os.waitpid(child, 0)[1])
    stop.set()
    for thread in threads:
        thread.join()
    assert codes == [0] * 5


def test_tables_that_claim_too_much(tmp_path: Path, videos: dict[str, Path]) -> None:
    """A demuxer would allocate what a table claims. Numbers are replaced behind the name of a box."""

    def refused(kind: str, message: str, *edits: tuple[bytes, int, int]) -> None:
        raw = bytearray(videos[kind].read_bytes())
        for name, offset, number in edits:
            place = raw.index(name) + 4 + offset
            raw[place : place + 4] = number.to_bytes(4, "big")
        (tmp_path / kind).write_bytes(raw)
        with pytest.raises(UnsafeDataError, match=rf"{message}.*{kind}"):
            packet_index(tmp_path / kind)

    many = 1 << 24
    refused("h264.mp4", "got 16777", (b"stsz", 4, 1), (b"stsz", 8, many), (b"stsc", 12, many))
    for name in (b"stts", b"stss", b"ctts", b"stco", b"stsc", b"elst"):
        refused("h264.mp4", r"expected tables of at most \d+ entries in a file of", (name, 4, many))
    raw = videos["h264.mp4"].stat().st_size
    refused("h264.mp4", "expected tables", (b"elst", 4, raw))  # each edit lists the 40 packets again
    refused("fragmented.mp4", "expected tables", (b"trun", 4, many))
    refused("h264.mp4", "got one of 536870912", (b"stsz", 12 + 4 * (FRAMES - 1), 1 << 29))
    refused("h264.mp4", "got one of 536870912", (b"stsz", 4, 1 << 29))
    refused("fragmented.mp4", "got one of 536870912", (b"trex", 16, 1 << 29))
    refused("h264.mp4", "not compressed", (b"udta", -4, int.from_bytes(b"cmov")))


def test_sizes_in_fragments(tmp_path: Path, videos: dict[str, Path]) -> None:
    """The size of any packet of a fragment is checked, and the default size of its track."""
    raw = videos["fragmented.mp4"].read_bytes()
    run, track = raw.index(b"trun") + 4, raw.index(b"tfhd") + 4
    flags = int.from_bytes(raw[run : run + 4])
    assert (flags & 0x201, raw[track + 3] & 0x1B) == (0x201, 0x19)  # place and sizes; place, duration and size
    fields = sum(bool(flags & field) for field in (0x100, 0x200, 0x400, 0x800))
    first = run + 12 + 4 * bool(flags & 4) + 4 * bool(flags & 0x100)
    for place in (first, first + 4 * fields, track + 20):
        changed = bytearray(raw)
        changed[place : place + 4] = (1 << 29).to_bytes(4, "big")
        (tmp_path / "film.mp4").write_bytes(changed)
        with pytest.raises(UnsafeDataError, match="packets of at most"):
            packet_index(tmp_path / "film.mp4")


def test_large_sizes_of_boxes(tmp_path: Path, videos: dict[str, Path]) -> None:
    """Boxes with sizes of 64 bits, and one that goes to the end of the file, are followed."""
    raw = videos["h264.mp4"].read_bytes()
    moov = raw.index(b"moov") - 4
    head, tables = raw[:moov], raw[moov + 8 :]
    for header in ((1).to_bytes(4, "big") + b"moov" + (len(tables) + 16).to_bytes(8, "big"), bytes(4) + b"moov"):
        (tmp_path / "film.mp4").write_bytes(head + header + tables)
        assert len(packet_index(tmp_path / "film.mp4", keep=False)) == FRAMES
        changed = tables.replace(b"stss" + bytes(4), b"stss" + bytes(4) + b"\xff\xff")[: len(tables)]
        (tmp_path / "film.mp4").write_bytes(head + header + changed)
        with pytest.raises(UnsafeDataError, match=r"expected tables.*box stss"):
            packet_index(tmp_path / "film.mp4", keep=False)


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_hundreds_of_files_need_few_decoders_descriptors_and_little_memory(
    tmp_path: Path, videos: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decoder kept for each file would take more than 1 GB here; `benchmarks/many_videos.py` reads 8,390 files."""
    clips = [videos[name] for name in ("h264.mp4", "av1.mp4", "hevc.mp4")]
    paths = [tmp_path / f"{number}.mp4" for number in range(360)]
    for number, path in enumerate(paths):
        os.link(clips[number % 3], path)
    monkeypatch.setattr("penstock.containers.video.files.INDEX_BYTES", 1 << 14)  # of a few files
    POOL.clear()
    files = VideoFiles(paths, keep_index=False)
    out = np.empty((40, HEIGHT, WIDTH, 3), np.uint8)
    order = np.random.default_rng(0).permutation(len(paths))
    descriptors, before = 0, len(os.listdir("/proc/self/fd"))
    memory: list[int] = []
    for first in range(0, len(paths), len(out)):
        some = order[first : first + len(out)]
        frames = some % FRAMES
        files.read(some, frames, np.arange(len(some)), out)
        descriptors = max(descriptors, len(os.listdir("/proc/self/fd")))
        memory.append(resident())
        for file, frame_number, rgb in list(zip(some.tolist(), frames.tolist(), out, strict=True))[:2]:
            np.testing.assert_array_equal(rgb, decoded(clips[file % 3])[0][frame_number])
    assert POOL.stats()["busy"] == 0
    assert POOL.stats()["idle"] <= 16
    assert descriptors <= before + POOLED + 20
    assert memory[-1] - memory[1] < 100 << 20
