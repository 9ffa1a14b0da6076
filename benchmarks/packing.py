"""What planning packs costs, how many packs it needs, what one pack costs, and how fast finished rows come.

Claims: lengths are planned at tens of millions a second on one thread, hundreds of times TRL's best fit decreasing at
equal quality; of a million, packs stay within 0.01 % (log-normal), 0.2 % (uniform) and 0.15 % (Pareto) of the lower
bound; 10^9 lengths need no memory beyond themselves and a running sum of packs; any pack is microseconds away where
plans are kept, and the planning of one window where they are not.

    python benchmarks/packing.py [--n 2000000] [--rows 100000] [--peer PYTHON]
    python benchmarks/packing.py --billion

PYTHON has grain, TRL and axolotl. TRL's and axolotl's packers are read from their source files, for their imports are
heavy. TRL packs whole tables, so it is given tables without values worth copying: one byte a token. Grain runs in
an interpreter of its own, within the same run. Finished rows are int32 tokens with segment ids and positions, shuffled,
in batches of 256 on one thread; ours include the planning.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import resource
import subprocess
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import figures
import numpy as np

import penstock
from penstock.plan.packing import PackIndex, Rule, lower_bound

Inputs = dict[str, tuple[Any, int]]


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """The fastest of some calls."""
    times: list[float] = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times)


def inputs(n: int) -> Inputs:
    rng = np.random.default_rng(0)
    normal = np.clip(rng.lognormal(np.log(250), 1.0, n), 1, 2048)
    tail = np.clip(60 * (1 + rng.pareto(1.2, n)), 1, 8192)
    return {
        "a log-normal": (normal.astype(np.uint16), 2048),
        "b uniform": (rng.integers(10, 1001, n).astype(np.uint16), 1024),
        "c Pareto": (tail.astype(np.uint16), 8192),
    }


def trl_packer(path: str) -> Callable[[Any, int], Any]:
    """TRL's best fit decreasing, taken out of its file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    importlib.import_module("pyarrow.types")
    names = ("_SegmentTree", "_pack_bfd", "_check_if_columns_can_be_packed")
    tree = ast.parse(Path(path).read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", "") in names]
    scope: dict[str, Any] = {"pa": pa, "pc": pc, "np": np, "pyarrow": importlib.import_module("pyarrow")}
    scope |= {"Literal": Literal, "deque": deque, "defaultdict": defaultdict}
    exec(compile(tree, path, "exec"), scope)  # noqa: S102 - a file that the caller names

    def pack(lengths: Any, capacity: int) -> Any:
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)
        tokens = pa.ListArray.from_arrays(offsets, np.zeros(offsets[-1], np.uint8))
        return scope["_pack_bfd"](pa.table({"tokens": tokens}), capacity)

    return pack


def axolotl_packer(path: str) -> Callable[[Any, int], Any]:
    """Axolotl's first fit of one group, compiled; taken out of its file."""
    import numba

    tree = ast.parse(Path(path).read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", "") == "pack_group"]
    scope: dict[str, Any] = {"numba": numba, "np": np}
    exec(compile(tree, path, "exec"), scope)  # noqa: S102 - a file that the caller names

    def pack(lengths: Any, capacity: int) -> Any:
        return scope["pack_group"](lengths.astype(np.int64), 0, capacity, len(lengths), len(lengths))

    pack(np.ones(9, np.int64), 4)
    return pack


def packers(python: str) -> dict[str, Callable[[Any, int], Any]]:
    """TRL's and axolotl's packers, from the files that an interpreter has."""
    code = (
        "import importlib.util as u; print(*(u.find_spec(n).submodule_search_locations[0] for n in ('trl', 'axolotl')))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    trl, axolotl = done.stdout.split()
    return {
        "trl": trl_packer(f"{trl}/data_utils.py"),
        "axolotl": axolotl_packer(f"{axolotl}/utils/samplers/multipack.py"),
    }


def short(name: str) -> str:
    """The figure's name of an input: `log-normal` of `a log-normal`."""
    return name.split()[1]


def row(name: str, speed: float, unit: str, *notes: str) -> None:
    print(f"  {name:<44}{speed:>12,.1f} {unit:<10}{'  '.join(notes)}")


def excess(packs: int, bound: int) -> str:
    return f"{packs:,} packs, {100 * (packs / bound - 1):.3f} % above the bound"


def plans(name: str, lengths: Any, capacity: int, peers: dict[str, Callable[[Any, int], Any]]) -> None:
    n = len(lengths)
    bound = lower_bound(lengths, capacity)
    print(f"\n{name}: {n:,} lengths, mean {lengths.mean():.0f}, capacity {capacity}, bound {bound:,}")
    copy = seconds(lengths.copy, 10)
    row("memcpy of the lengths", n / copy / 1e6, "M/s")
    for keep in ("recompute", "memory"):
        index = PackIndex(lengths, Rule((capacity,)), keep=keep)
        packs = len(index)
        took = seconds(lambda k=keep: len(PackIndex(lengths, Rule((capacity,)), keep=k)))
        size = f"{index.nbytes / n:.3f} bytes a length"
        figures.record(f"{keep}.{short(name)}", n / took, "/s")
        figures.record(f"{keep}.{short(name)}.above", 100 * (packs / bound - 1), "%")
        figures.record(f"{keep}.{short(name)}.bytes", index.nbytes / n, "B")
        row(f"best fit decreasing, keep={keep}", n / took / 1e6, "M/s", excess(packs, bound), size)
    for method in ("random_fit", "best_fit", "first_fit", "next_fit", "concat_split"):
        packs = len(PackIndex(lengths, Rule((capacity,), method), keep="recompute"))
        took = seconds(lambda m=method: len(PackIndex(lengths, Rule((capacity,), m), keep="recompute")), 1)
        row(method, n / took / 1e6, "M/s", excess(packs, bound))
    some, rule = lengths[:100_000], Rule((capacity,))
    kept = seconds(lambda: len(PackIndex(some, rule, window=None)))
    counted = seconds(lambda: len(PackIndex(some, rule, window=None, keep="recompute")))
    ours = len(PackIndex(some, rule, window=None))
    for who, pack in peers.items():
        theirs = seconds(lambda c=capacity, p=pack: p(some, c), 1)
        packs = len(pack(some, capacity))
        figures.record(f"{who}.{short(name)}.ratio", theirs / kept, "x")
        figures.record(f"{who}.{short(name)}.more", 100 * (packs / ours - 1), "%")
        row(f"{who}, 100 000 at once", len(some) / theirs / 1e6, "M/s", f"{packs:,} packs, ours {ours:,}")
        row("  ours is faster, packs kept / counted", theirs / kept, "times", f"/ {theirs / counted:,.0f} times")


def finished(name: str, lengths: Any, capacity: int, peer: str | None) -> None:
    """Rows with segment ids and positions, one epoch of them."""
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    values = np.random.default_rng(1).integers(1, 50_000, offsets[-1], dtype=np.int32)
    documents, packs = penstock.from_arrays({"tokens": values}, lengths.astype(np.int64)), 0

    def ours(check: bool = False) -> None:
        nonlocal packs
        data = documents.sequences().pack(capacity).shuffle()
        packs, tokens = 0, 0
        for batch in data.loader(batch_size=256, threads=0):
            packs += len(batch["tokens"])
            tokens += int(np.count_nonzero(batch["segment_ids"])) if check else 0
        if check and tokens != offsets[-1]:
            raise SystemExit(f"expected {offsets[-1]} tokens, got {tokens}")

    ours(check=True)
    took = seconds(ours)
    print(f"\nFinished rows, {name}: {len(lengths):,} sequences, {offsets[-1]:,} tokens")
    row("penstock", offsets[-1] / took / 1e6, "Mtok/s", f"{packs:,} packs")
    figures.record(f"rows.{short(name)}", offsets[-1] / took, "/s")
    for run in peer_runs(peer, values, offsets, capacity) if peer else []:
        row(run["name"], offsets[-1] / run["seconds"] / 1e6, "Mtok/s", f"{run['packs']:,} packs")
        row("  ours is faster", run["seconds"] / took, "times")
        kind = run["name"].split()[1].rstrip(",").lower()
        figures.record(f"{kind}.{short(name)}.ratio", run["seconds"] / took, "x")
        figures.record(f"{kind}.{short(name)}.more", 100 * (run["packs"] / packs - 1), "%")


def peer_runs(python: str, values: Any, offsets: Any, capacity: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "values.npy", values)
        np.save(Path(folder) / "offsets.npy", offsets)
        command = [python, str(Path(__file__).with_name("packing_grain.py")), folder, str(capacity)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def access(lengths: Any, capacity: int) -> None:
    print("\nRandom access (a)")
    rng = np.random.default_rng(1)
    index = PackIndex(lengths, Rule((capacity,)), keep="memory")
    packs = rng.integers(0, len(index), 4096)
    together = seconds(lambda: index.pieces(packs), 10) / len(packs)
    figures.record("access.together", together, "s")
    row("4096 packs at once, kept", together * 1e6, "us/pack")
    one = [seconds(lambda k=k: index.pieces([k]), 5) for k in packs[:200].tolist()]
    figures.record("access.alone", float(np.median(one)), "s")
    row("one pack, kept", float(np.median(one)) * 1e6, "us/pack")
    for window in (4096, 65536):
        again = PackIndex(lengths, Rule((capacity,)), keep="recompute", window=window)
        first = np.linspace(0, len(again) - 1, min(60, len(lengths) // window)).astype(int)
        took = [seconds(lambda k=k, i=again: i.pieces([k]), 1) for k in first.tolist()]
        figures.record(f"access.window.{window}", float(np.median(took)), "s")
        fast = f"fastest {min(took) * 1e6:,.0f}"
        row(f"one pack, window of {window} planned again", float(np.median(took)) * 1e6, "us/pack", fast)
    for name, plan in (("recompute", PackIndex(lengths, index.rule, keep="recompute")), ("memory", index)):
        data = plan.to_bytes()
        took = seconds(lambda d=data, i=index: PackIndex.from_bytes(d, lengths, i.rule), 5)
        row(f"saved plan restored, keep={name}", took * 1e3, "ms", f"{len(data):,} bytes")


def billion(capacity: int) -> None:
    lengths = np.tile(inputs(10_000_000)["a log-normal"][0], 100)
    n = len(lengths)
    index = PackIndex(lengths, Rule((capacity,)), keep="recompute")
    len(PackIndex(lengths[:100_000], Rule((capacity,)), keep="recompute"))  # loads the kernels
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = seconds(lambda: len(index), 1)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    figures.record("seconds", took, "s")
    figures.record("plan", index.nbytes, "B")
    figures.record("more", grown * 1e6, "B")
    print("\n10^9 lengths, 10^7 drawn and repeated")
    row("counted", n / took / 1e6, "M/s", f"{took:.1f} s, {grown:.0f} MB more, plan {index.nbytes:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=2_000_000)
    parser.add_argument("--billion", action="store_true", help="plan 10^9 lengths, and nothing else")
    parser.add_argument("--peer", help="a Python with grain, jax, TRL and axolotl")
    parser.add_argument("--rows", type=int, default=100_000, help="sequences that finished rows are made of")
    options = parser.parse_args()
    if options.billion:
        billion(2048)
        return
    given = inputs(options.n)
    peers = packers(options.peer) if options.peer else {}
    for name, (lengths, capacity) in given.items():
        plans(name, lengths, capacity, peers)
    access(*given["a log-normal"])
    for name, (lengths, capacity) in given.items():
        finished(name, lengths[: options.rows], capacity, options.peer)


if __name__ == "__main__":
    main()
