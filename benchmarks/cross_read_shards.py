"""Shards that we write, read by the webdataset library: does every value come out equal?

Both layouts, plain and gzip (the library itself reads no zstd); short names as USTAR has them, long and accented ones
that need PAX headers. The peer decodes with its default handlers; digests of what it got are compared with what was
written.

    python benchmarks/cross_read_shards.py --peer PYTHON_WITH_WEBDATASET [--peer ANOTHER]
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import figures
import numpy as np

LONG = "accélération/" + "x" * 120
EPISODES = 3


def digest(value: Any) -> Any:
    """What says whether two values are the same, as JSON."""
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return [array.dtype.str, list(array.shape), content[:16]]
    if isinstance(value, dict):
        return {key: digest(inner) for key, inner in value.items()}
    return value


def child(paths: list[str]) -> None:
    """In the peer: every sample of the archives, decoded by the library, as a line of JSON."""
    import warnings

    wds: Any = importlib.import_module("webdataset")

    warnings.simplefilter("ignore")
    print(json.dumps({"version": wds.__version__ if hasattr(wds, "__version__") else "0.1"}))
    if hasattr(wds, "WebDataset") and hasattr(wds, "DataPipeline"):
        samples = wds.WebDataset(paths, shardshuffle=False, empty_check=False).decode()
    else:
        samples = wds.Dataset(["file:" + path for path in paths]).decode()
    for sample in samples:
        found = {}
        for key, value in sample.items():
            if key.startswith("__"):
                continue
            if key.endswith(".npy") and isinstance(value, bytes):  # old releases leave them to the user
                value = np.load(io.BytesIO(value), allow_pickle=False)  # noqa: PLW2901
            if key not in ("meta.pickle", "json", "jsn"):
                found[key] = digest(value)
        if found:
            print(json.dumps([sample["__key__"], found]))


def cases(root: Path) -> Iterator[tuple[str, Path, list[Any]]]:
    """Name, archives and expected samples of every case."""
    from penstock import Episode, Field, Spec
    from penstock.formats.webdataset import FORMAT

    rng = np.random.default_rng(0)
    flag, fields = Field(np.dtype("bool")), dict[str, Any]()
    fields |= {"observations": Field(np.dtype("u1"), (3, 8, 8), "boundary"), "actions": Field(np.dtype("f4"), (2,))}
    fields |= {"rewards": Field(np.dtype("f8")), "terminations": flag, "truncations": flag}
    for names in ("short", "long"):
        spec = Spec(fields | ({LONG: Field(np.dtype("i8"))} if names == "long" else {}))
        held = [episode(Episode, spec, 4 + e, rng) for e in range(EPISODES)]
        for layout in ("npy", "seed"):
            if (layout, names) == ("seed", "long"):
                continue  # its names are the reference's
            for end in ("", ".tar", ".tgz"):
                path = root / f"{layout}-{names}{end}"
                options = {"layout": layout} | ({} if end else {"shard_episodes": 1})
                with FORMAT.create(path, spec, {"author": "me"}, **options) as writer:
                    writer.write_all(held)
                yield f"{layout}, {names} names, {end or 'a folder'}", path, [*expected(held, layout)]


def episode(kind: Any, spec: Any, steps: int, rng: np.random.Generator) -> Any:
    columns = {
        path: rng.integers(200, size=(steps + (field.align == "boundary"), *field.shape)).astype(field.dtype)
        for path, field in spec.items()
    }
    last = np.arange(steps) == steps - 1
    return kind(spec, columns | {"terminations": last, "truncations": last & False})


def expected(held: list[Any], layout: str) -> Iterator[Any]:
    frame = 0
    for number, one in enumerate(held):
        if layout == "npy":
            named = {f"{path.replace('/', '.').lower()}.npy": digest(array) for path, array in one.columns.items()}
            yield [f"episode_{number:09d}", named]
            continue
        for t in range(len(one)):
            last = t == len(one) - 1
            found = {"obs": one.observations[t], "next_obs": one.observations[t + 1], "acts": one.actions[t]}
            found |= {"rews": one.rewards[t], "dones": np.bool_(last), "frame": frame}
            found["infos"] = {"TimeLimit.truncated": False} if last else {}
            yield [f"frame_{frame:09d}", {f"{name}.pickle": digest(value) for name, value in sorted(found.items())}]
            frame += 1


def read(peer: str, path: Path) -> tuple[str, list[Any], str]:
    shards = sorted(map(str, path.glob("*.tar"))) if path.is_dir() else [str(path)]
    done = subprocess.run([peer, __file__, "--child", *shards], capture_output=True, text=True, check=False)
    first, *lines = [json.loads(line) for line in done.stdout.splitlines()] or [{"version": "?"}]
    return first["version"], lines, done.stderr.strip().splitlines()[-1] if done.returncode else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="append", default=[], help="an interpreter that has webdataset")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return 0
    wrong = compared = 0
    with tempfile.TemporaryDirectory() as name:
        for what, path, samples in cases(Path(name)):
            for peer in arguments.peer:
                version, found, error = read(peer, path)
                same = json.loads(json.dumps(samples)) == sorted(found)
                verdict = "equal" if same else f"DIFFERS: {error or f'{len(found)} of {len(samples)} samples'}"
                wrong += not same
                compared += 1
                print(f"webdataset {version:<8}{what:<34}{len(found):>4} samples  {verdict}")
    figures.record("compared", compared, "count")
    figures.record("equal", compared - wrong, "count")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
