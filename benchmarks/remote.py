"""Reading over HTTP with latency: a shuffled epoch against plain range reads, and the bytes of random windows.

    python benchmarks/remote.py [--megabytes 256] [--latency 0.02] [--bandwidths 40 100] [--rounds 3]

Claims: a shuffled epoch over shards, with nothing in the cache, reaches 90 % of the bandwidth of plain concurrent range
reads of the same files by the same number of threads; random windows fetch at most 1.3 times the blocks that they need;
one episode of RLDS fetches its record alone, and opening the dataset for the first time the heads of records.
The server is another process on this machine that waits before each answer and limits its bandwidth. An epoch
begins with an opened dataset, whose index is known; bytes that stay in the cache from opening are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import multiprocessing
import os
import re
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
from figures import record

import penstock
from penstock.locations.blocks import BLOCK
from penstock.locations.fetching import REQUEST, THREADS, blocks_of
from penstock.locations.mirror import MIRRORS

ROW = 28224  # bytes of a row: four frames of 84 x 84
STEPS = 250  # of an episode


def serve(folder: str, latency: float, bandwidth: float, pipe: Connection) -> None:
    """Serve the files below a folder; every answer waits, and all together have `bandwidth` bytes a second."""
    fetched, requests, free = 0, 0, 0.0  # bytes, their requests, and when the line is free

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal fetched, requests, free
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await asyncio.sleep(latency)
                method, target = head.split(" ", 2)[:2]
                if target in ("/fetched", "/requests"):
                    body = str(fetched if target == "/fetched" else requests).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                    continue
                place = Path(folder) / unquote(target).lstrip("/")
                if place.is_dir():
                    names = [f"{p.name}/" if p.is_dir() else p.name for p in sorted(place.iterdir())]
                    body = "".join(f'<a href="{target.rstrip("/")}/{quote(name)}"></a>' for name in names).encode()
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body)
                    )
                    writer.write(body if method == "GET" else b"")
                    continue
                size = place.stat().st_size
                told = re.search(r"(?i)range: bytes=(\d+)-(\d+)", head)
                begin, end = (int(told[1]), int(told[2]) + 1) if told else (0, size)
                body = b""
                if method == "GET":
                    with place.open("rb") as file:
                        file.seek(begin)
                        body = file.read(end - begin)
                    fetched += len(body)
                    requests += 1
                    free = max(free, time.monotonic()) + len(body) / bandwidth
                    await asyncio.sleep(free - time.monotonic())
                status = "206 Partial Content" if told else "200 OK"
                writer.write(
                    f'HTTP/1.1 {status}\r\nContent-Length: {end - begin}\r\nETag: "1"\r\n'
                    f"Content-Range: bytes {begin}-{end - 1}/{size}\r\n\r\n".encode()
                )
                writer.write(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=256)
        pipe.send(server.sockets[0].getsockname()[1])
        async with server:
            await server.serve_forever()

    asyncio.run(run())


def ask(port: int, target: str, begin: int = 0, end: int = 0) -> bytes:
    """One request, over a connection of this thread."""
    if getattr(local, "port", None) != port:
        local.port, local.connection = port, http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Range": f"bytes={begin}-{end - 1}"} if end else {}
    local.connection.request("GET", target, headers=headers)
    return local.connection.getresponse().read()


local = threading.local()


def plain(port: int, files: dict[str, int]) -> float:
    """Bytes a second of plain concurrent range reads of all files."""
    step = REQUEST * BLOCK
    ranges = [(name, lo, min(lo + step, size)) for name, size in files.items() for lo in range(0, size, step)]
    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        got = sum(threads.map(lambda part: len(ask(port, *part)), ranges))
    return got / (time.perf_counter() - start)


def epoch(port: int, name: str, size: int) -> float:
    """Bytes a second of a shuffled epoch by a `Loader`, from an empty cache."""
    MIRRORS.cache().evict(0)
    with penstock.open(f"http://127.0.0.1:{port}/{name}") as data:
        MIRRORS.cache().evict(0)
        before = int(ask(port, "/fetched"))
        start = time.perf_counter()
        for _ in data.steps().shuffle(seed=1).loader(batch_size=64, threads=2):
            pass
        seconds = time.perf_counter() - start
        return min(int(ask(port, "/fetched")) - before, size) / seconds


def one_episode(port: int, size: int) -> tuple[float, float]:
    """Parts of an RLDS dataset that opening it for the first time and then reading one episode fetch, in percent."""
    MIRRORS.cache().evict(0)
    before = int(ask(port, "/fetched"))
    with penstock.open(f"http://127.0.0.1:{port}/rlds", cache="off") as data:
        middle = int(ask(port, "/fetched"))
        data[len(data) // 2]
        return 100 * (middle - before) / size, 100 * (int(ask(port, "/fetched")) - middle) / size


def windows(port: int, seed: int) -> float:
    """Bytes that random windows fetch, for each byte of the blocks that they need. Rows begin with their numbers."""
    MIRRORS.cache().evict(0)
    needed: list[np.ndarray] = []
    with penstock.open(f"http://127.0.0.1:{port}/columns") as data:
        plan = data.windows(8).shuffle(seed=seed)
        before = int(ask(port, "/fetched"))
        for k in range(0, 128, 32):
            first = plan[k : k + 32]["observations/row"][:, 0, :8].copy().view(np.int64).ravel() * ROW
            needed.append(blocks_of(first, first + 8 * ROW, 1 << 40))
        got = int(ask(port, "/fetched")) - before
    return got / (BLOCK * len(np.unique(np.concatenate(needed))))


def write(folder: Path, megabytes: int) -> None:
    """The same rows as a column store, as tar shards and as RLDS."""
    episodes = max(megabytes * 1_000_000 // (ROW * STEPS), 2)
    rows = np.random.default_rng(0).integers(0, 256, (episodes * STEPS, ROW), np.uint8)
    rows[:, :8] = np.arange(len(rows)).view(np.uint8).reshape(-1, 8)
    data = penstock.from_arrays({"observations/row": rows}, [STEPS] * episodes, align={"observations/row": "step"})
    penstock.convert(data, folder / "columns")
    penstock.convert(data, folder / "shards", format="webdataset", options={"shard_bytes": 32 << 20})
    penstock.convert(data, folder / "rlds", format="rlds", options={"images": "raw"})


def compare(folder: Path, megabytes: int, latency: float, bandwidth: float, rounds: int) -> None:
    """Measure alternately, and print the table."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(str(folder / "served"), latency, bandwidth * 1e6, theirs), daemon=True
    )
    server.start()
    port = ours.recv()
    try:
        line = f"{latency * 1000:.0f} ms before each answer and {bandwidth:.0f} MB/s"
        print(f"{megabytes} MB, {line}, {THREADS} threads, {rounds} rounds\n")
        print(f"{'':<10}{'plain reads':>16}{'shuffled epoch':>18}{'part of plain':>16}")
        for name in ("columns", "shards", "rlds"):
            files = [p for p in (folder / "served" / name).rglob("*") if p.is_file() and p.name[0] != "."]
            sizes = {quote(f"/{p.relative_to(folder / 'served')}"): p.stat().st_size for p in files}
            speeds = [(plain(port, sizes), epoch(port, name, sum(sizes.values()))) for _ in range(rounds)]
            base, ours_best = (max(column) for column in zip(*speeds, strict=True))
            print(f"{name:<10}{base / 1e6:>11.0f} MB/s{ours_best / 1e6:>13.0f} MB/s{ours_best / base:>16.2f}")
            record(f"{name}.{bandwidth:.0f}", ours_best / base, "x")
            record(f"{name}.{bandwidth:.0f}.epoch", ours_best, "B/s")
        opened, episode = one_episode(port, sum(sizes.values()))
        print(f"\nRLDS: the first opening fetches {opened:.1f} % of its bytes, one episode {episode:.1f} %")
        record(f"rlds_opened.{bandwidth:.0f}", opened, "%")
        record(f"rlds_episode.{bandwidth:.0f}", episode, "%")
        ratio = max(windows(port, seed) for seed in range(rounds))
        print(f"\nrandom windows fetch {ratio:.2f} times the blocks that they need (goal: at most 1.3)\n")
        record(f"windows.{bandwidth:.0f}", ratio, "x")
    finally:
        server.terminate()
        server.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--latency", type=float, default=0.02)
    parser.add_argument("--bandwidths", type=float, nargs="+", default=[40, 100], help="MB/s of the server")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PENSTOCK_CACHE"] = f"{folder}/cache"
        write(Path(folder) / "served", chosen.megabytes)
        for bandwidth in chosen.bandwidths:
            compare(Path(folder), chosen.megabytes, chosen.latency, bandwidth, chosen.rounds)


if __name__ == "__main__":
    main()
