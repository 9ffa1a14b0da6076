"""The live loader killed in mid-run and restarted: no position twice within the pass, none missing at its end.

    python benchmarks/lc0_kill.py DIRECTORY [--kills 20] [--seed 0]

A child process reads one pass over the games of DIRECTORY through a reservoir. Behind each batch it writes which
positions the batch had, and the state of the run, as a training program writes a checkpoint. It is killed with SIGKILL
after a random time, also while it starts, and another child goes on from the last state. Exit code 1 for a position
that came twice or never.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import figures
import numpy as np

RESERVOIR, BATCH = 2_000, 64


def run(directory: str, folder: Path, threads: int) -> None:
    """In the child: go on from the last state, up to the end of the pass."""
    from penstock_chess.live import chess_pipeline
    from penstock_chess.tensors import ChessTensors

    log, checkpoint = folder / "positions", folder / "state.json"
    options: dict[str, Any] = {"reservoir": RESERVOIR, "batch_size": BATCH, "seed": 5, "threads": threads}
    small = ChessTensors(outputs=("values",))
    with chess_pipeline(directory, follow=False, references=True, tensors=small, **options) as batches:
        written = 0
        if checkpoint.exists():
            held = json.loads(checkpoint.read_text())
            written = held["written"]
            batches.load_state_dict(held["state"])
        with open(log, "ab") as file:
            file.truncate(written)  # what was written behind the last state comes again
            for batch in batches:
                file.write(np.stack([batch["chunk"], batch["place"].astype(np.int64)], axis=1).tobytes())
                file.flush()
                state = {"written": file.tell(), "state": batches.state_dict()}
                partial = folder / ".state.json"
                partial.write_text(json.dumps(state, default=np.ndarray.tolist))
                os.replace(partial, checkpoint)
    (folder / "done").touch()


def killed(directory: str, folder: Path, delay: float | None, threads: int) -> None:
    """Run a child, and kill it after so many seconds."""
    child = os.fork()
    if child == 0:
        try:
            run(directory, folder, threads)
            os._exit(0)
        except BaseException as error:  # noqa: BLE001  a child must not go on as the parent
            print(f"the child failed: {type(error).__name__}: {error}", flush=True)
            os._exit(3)
    if delay is not None:
        end = time.monotonic() + delay
        while time.monotonic() < end and not (folder / "done").exists():
            time.sleep(0.005)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        sys.exit(f"expected a child that ends well, got exit code {os.WEXITSTATUS(status)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    from penstock_chess.formats.lc0 import open_chunks

    files = [path for path in Path(args.directory).rglob("*") if path.is_file()]
    opened = [chunks for path in files if (chunks := open_chunks(path)) is not None]
    wanted = sum(len(chunks.load(i)) for chunks in opened for i in range(len(chunks)))
    draw, kills, passes = random.Random(args.seed), 0, 0
    twice = missing = 0
    while kills < args.kills:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            while kills < args.kills and not (folder / "done").exists():
                killed(args.directory, folder, draw.uniform(0.05, 3.0), draw.choice([1, 2, 4]))
                kills += 1
            if not (folder / "done").exists():
                killed(args.directory, folder, None, 2)
            seen = np.fromfile(folder / "positions", np.int64).reshape(-1, 2)
            passes += 1
            distinct = len(np.unique(seen, axis=0))
            twice += len(seen) - distinct
            missing += wanted - distinct
    for name, value in (("kills", kills), ("passes", passes), ("twice", twice), ("missing", missing)):
        figures.record(name, value, "count")
    print(f"{kills} kills in {passes} passes of {wanted:,} positions: {twice} came twice, {missing} never came")
    sys.exit(1 if twice or missing else 0)


if __name__ == "__main__":
    main()
