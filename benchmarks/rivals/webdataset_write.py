"""The webdataset library's side of writing in `benchmarks/shards.py`: 7 pickles a frame, plain tar.

python webdataset_write.py FRAMES PATH
"""

from __future__ import annotations

import sys
import time

import numpy as np
import webdataset as wds

POOL = 256  # frames that are written again and again, so that making them costs nothing


def main() -> None:
    frames, path = int(sys.argv[1]), sys.argv[2]
    rng = np.random.default_rng(0)
    obs = rng.integers(256, size=(POOL + 1, 3, 84, 84), dtype=np.uint8)
    begin = time.perf_counter()
    with wds.TarWriter(path) as writer:
        for i in range(frames):
            t = i % POOL
            sample = {"obs": obs[t], "next_obs": obs[t + 1], "acts": np.int64(t % 18), "rews": np.float64(t)}
            sample |= {"dones": np.bool_(t % 100 == 99), "infos": {}, "frame": i}
            writer.write({"__key__": f"frame_{i:09d}"} | {f"{name}.pickle": value for name, value in sample.items()})
    print(frames / (time.perf_counter() - begin))


if __name__ == "__main__":
    main()
