"""The live loader at load while another process adds, rewrites, truncates, renames and deletes files of games.

    python benchmarks/lc0_soak.py DIRECTORY [--minutes 10] [--seed 0]

DIRECTORY has games to make others of: each is copied with a number of its own in its values, so that every position
that comes out tells which game it is of. At the end it is checked that

* every game of every file that was whole and stayed came out (the window is larger than all),
* no chunk was drawn twice in a pass, and no position came more often than there were passes,
* every draw is accounted for: read, failed by a reason, or in work when the run was stopped,
* memory did not grow, and
* replaying the journal gives the draws again: the same SHA-256.

Exit code 1 if one of these does not hold.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import multiprocessing
import os
import random
import sys
import tarfile
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import figures
import numpy as np

LARGEST = 60  # files at a time
WINDOW = 100_000
FLAT = 1.2  # times the memory after a quarter of the time


def stamped(frames: Any, game: int) -> bytes:
    """A game with its number, as a gzip."""
    from penstock_chess.formats.lc0 import FRAME, packed_chunk

    mine = frames.copy()
    records = mine.view(FRAME)[:, 0]
    records["root_m"], records["played_m"] = game, np.arange(len(records))
    return packed_chunk(mine)


class Writer:
    """Changes a folder at random. `whole` has the games of each file that is whole, by name."""

    def __init__(self, folder: Path, games: list[Any], seed: int) -> None:
        self.folder, self.games, self.draw = folder, games, random.Random(seed)
        self.whole: dict[str, list[int]] = {}
        self.next_game = self.next_file = 0
        self.counts: Counter[str] = Counter()

    def content(self, ending: str) -> tuple[bytes, list[int]]:
        n = 1 if ending == "gz" else self.draw.randint(2, 6)
        numbers = list(range(self.next_game, self.next_game + n))
        self.next_game += n
        chunks = [stamped(self.draw.choice(self.games), number) for number in numbers]
        if ending == "gz":
            return chunks[0], numbers
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w") as archive:
            for number, chunk in zip(numbers, chunks, strict=True):
                member = tarfile.TarInfo(f"training.{number}.gz")
                member.size = len(chunk)
                archive.addfile(member, io.BytesIO(chunk))
        return held.getvalue(), numbers

    def add(self) -> None:
        ending = self.draw.choice(["gz", "gz", "tar"])
        name = f"games.{self.next_file:06d}.{ending}"
        self.next_file += 1
        data, numbers = self.content(ending)
        with open(self.folder / name, "wb") as file:  # in pieces: it must not be read before it is whole
            for at in range(0, len(data), 1 << 15):
                file.write(data[at : at + (1 << 15)])
                file.flush()
        self.whole[name] = numbers

    def rewrite(self) -> None:
        name = self.draw.choice(list(self.whole))
        data, numbers = self.content(name.rpartition(".")[2])
        (self.folder / name).write_bytes(data)
        self.whole[name] = numbers

    def truncate(self) -> None:
        name = self.draw.choice(list(self.whole))
        os.truncate(self.folder / name, (self.folder / name).stat().st_size // 2)
        del self.whole[name]

    def rename(self) -> None:
        name = self.draw.choice(list(self.whole))
        new = f"games.{self.next_file:06d}.{name.rpartition('.')[2]}"
        self.next_file += 1
        os.rename(self.folder / name, self.folder / new)
        self.whole[new] = self.whole.pop(name)

    def delete(self) -> None:
        name = self.draw.choice(list(self.whole))
        (self.folder / name).unlink()
        del self.whole[name]

    def step(self) -> None:
        kind = self.draw.choices(["add", "rewrite", "truncate", "rename", "delete"], [8, 1, 1, 1, 1])[0]
        if len(self.whole) >= LARGEST:
            kind = "delete"
        if len(self.whole) < 5:
            kind = "add"
        getattr(self, kind)()
        self.counts[kind] += 1


def change(folder: Path, games: list[Any], seed: int, until: float, answer: Any) -> None:
    """The other process."""
    writer = Writer(folder, games, seed)
    while time.monotonic() < until:
        writer.step()
        time.sleep(0.1)
    answer.put((writer.whole, dict(writer.counts)))


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Recorded:
    """What a pool draws: a digest of the order, and whether a chunk came twice in a pass."""

    def __init__(self, draw: Any) -> None:
        self._draw, self.digest, self.draws, self.repeats = draw, hashlib.sha256(), 0, 0
        self._pass: tuple[int, set[int]] = (0, set())

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        draws = self._draw(*arguments, **options)
        if draws is not None:
            self.take(draws.number, draws.use, draws.epoch)
        return draws

    def take(self, number: Any, use: Any, epoch: int) -> None:
        for each in np.stack([number, use], axis=1):  # one by one: how draws are cut into calls is free
            self.digest.update(each.tobytes())
        if epoch != self._pass[0]:
            self._pass = (epoch, set())
        self.repeats += len(number) - len(set(number.tolist()) - self._pass[1])
        self._pass[1].update(number.tolist())
        self.draws += len(number)


def replayed(moves: Any, draws: int, seed: int) -> str:
    """The digest of the first draws of a journal."""
    from penstock_live.pool import ShufflingChunkPool

    pool = ShufflingChunkPool(WINDOW, seed, replay=moves)
    again = Recorded(pool.draw)
    while again.draws < draws:
        again(min(16, draws - again.draws))
    return again.digest.hexdigest()


def read(batches: Any, until: float, answer: Any) -> tuple[Counter[tuple[int, int]], list[int], Any]:
    """Get batches until the time is over and the rest has come out twice; positions, memory, and what was written."""
    seen: Counter[tuple[int, int]] = Counter()
    sizes: list[int] = []
    written, end = None, 0
    while written is None or batches.pool.epoch < end:
        values = next(batches)["values"]
        seen.update(zip(values[:, 4, 2].astype(int).tolist(), values[:, 2, 2].astype(int).tolist(), strict=True))
        if batches.pool.drawn % 64 == 0 or not sizes:
            sizes.append(resident())
        if written is None and time.monotonic() > until and not answer.empty():
            written = answer.get()
            time.sleep(5)  # for what came last to settle
            batches.poll()
            end = batches.pool.epoch + 3  # one pass in work, one of all, one through the reservoir
    return seen, sizes, written


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    from penstock_chess.formats.lc0 import open_chunks
    from penstock_chess.live import chess_pipeline
    from penstock_live.journal import Journal

    games: list[Any] = []
    for path in sorted(Path(args.directory).rglob("*")):
        chunks = open_chunks(path) if path.is_file() else None
        games += [] if chunks is None else [chunks.load(i) for i in range(min(len(chunks), 20))]
    with tempfile.TemporaryDirectory() as name:
        folder, journal = Path(name), Journal()
        answer: Any = multiprocessing.Queue()
        until = time.monotonic() + 60 * args.minutes
        other = multiprocessing.Process(target=change, args=(folder, games, args.seed, until, answer))
        other.start()
        options: dict[str, Any] = {"window": WINDOW, "reservoir": 5_000, "batch_size": 512, "seed": args.seed}
        with chess_pipeline(folder, journal=journal, settle=0.5, **options) as batches:
            batches.pool.draw = recorded = Recorded(batches.pool.draw)
            seen, sizes, (whole, changes) = read(batches, until, answer)
            stopped = batches.metrics()
        other.join()
        failures, _ = batches.failures()
    counts = stopped["stages"]["chunk_unpacker"]["counts"]
    done = counts["chunks"] + sum(n for reason, n in counts.items() if reason.startswith("failed"))
    lost = [game for games_of in whole.values() for game in games_of if (game, 0) not in seen]
    early, late = max(sizes[: len(sizes) // 4 + 1]), max(sizes[-len(sizes) // 4 :])
    checks = {
        f"{len(lost)} games of {len(whole)} whole files lost {lost[:5]}": not lost,
        f"{recorded.repeats} chunks drawn twice in a pass": recorded.repeats == 0,
        f"most often {max(seen.values())} times in {batches.pool.epoch + 1} passes": max(seen.values())
        <= batches.pool.epoch + 1,
        f"{recorded.draws - done} of {recorded.draws:,} draws in work at the end": 0 <= recorded.draws - done < 1024,
        f"memory {early / 1e6:.0f} MB, later {late / 1e6:.0f} MB": late <= FLAT * early,
        "replay gives the same draws": replayed(journal.moves(), recorded.draws, args.seed)
        == recorded.digest.hexdigest(),
    }
    provider = stopped["stages"]["file_path_provider"]
    print(f"changes {changes}; provider {provider['counts']}; failures {failures}")
    print(f"{sum(seen.values()):,} positions, {len(seen):,} distinct")
    figures.record("changes", sum(changes.values()), "count")
    figures.record("lost", len(lost), "count")
    figures.record("failed", sum(not holds for holds in checks.values()), "count")
    for check, holds in checks.items():
        print(f"{'ok  ' if holds else 'FAIL'} {check}")
    sys.exit(0 if all(checks.values()) else 1)


if __name__ == "__main__":
    main()
