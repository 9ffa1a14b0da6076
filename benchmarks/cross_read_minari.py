"""Files of Minari read by penstock and the other way round: every space, both layouts, all back-ends.

    python benchmarks/cross_read_minari.py --reference-python /path/to/python/with/minari [--legacy-python ...]

The interpreter named must have Minari (0.5 for `--reference-python`, 0.4 for `--legacy-python`); it runs this very
file in another process, in the modes `write` and `read`. Compared are the digests of every array (dtype, shape,
bytes), the spaces and the metadata of datasets and episodes.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

EPISODES, STEPS = 3, (5, 1, 9)


def digest(value: Any) -> Any:
    """A digest of nested observations: dicts, tuples, lists of text, arrays."""
    if isinstance(value, dict):
        return {key: digest(inner) for key, inner in sorted(value.items())}
    if isinstance(value, tuple):
        return [digest(inner) for inner in value]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return hashlib.sha256("\0".join(value).encode()).hexdigest()[:16]
    array = np.ascontiguousarray(value)
    if array.dtype == object and array.size and isinstance(array.flat[0], dict):  # so are nested infos of Arrow read
        return digest({key: np.stack([row[key] for row in array.flat]) for key in array.flat[0]})
    head = f"{array.dtype.str}{array.shape}".encode()
    return hashlib.sha256(head + array.tobytes()).hexdigest()[:16]


# --------------------------------------------------------------------------------------- in the reference's process


def spaces() -> Any:
    from gymnasium import spaces as s

    f4 = np.float32
    box = s.Box(-1, 1, (3,), f4)
    image = s.Box(0, 255, (40, 36, 3), np.uint8)
    return {
        "box-f4": box,
        "box-f8-unbounded": s.Box(-np.inf, np.inf, (2, 2), np.float64),
        "box-scalar": s.Box(-1, 1, (), f4),
        "box-u1": s.Box(0, 255, (7, 7, 3), np.uint8),
        "box-i4": s.Box(-5, 5, (4,), np.int32),
        "discrete": s.Discrete(4),
        "discrete-start": s.Discrete(3, start=-7),
        "multi-discrete": s.MultiDiscrete([2, 3, 4]),
        "multi-binary": s.MultiBinary(5),
        "text": s.Text(8, charset="abcé漢"),
        "tuple": s.Tuple((s.Discrete(2), box)),
        "dict": s.Dict({"a": box, "b": s.Dict({"c": s.Discrete(3), "t": s.Text(4)})}),
        "nested": s.Dict({"x": s.Tuple((box, s.Dict({"y": s.Tuple((s.Discrete(2), s.Discrete(3)))})))}),
        "image": image,
        "stack": s.Box(0, 255, (84, 84, 4), np.uint8),
    }


def stacked(space: Any, samples: Any) -> Any:
    from gymnasium import spaces as s

    if isinstance(space, s.Dict):
        return {key: stacked(inner, [sample[key] for sample in samples]) for key, inner in space.spaces.items()}
    if isinstance(space, s.Tuple):
        return tuple(stacked(inner, [sample[i] for sample in samples]) for i, inner in enumerate(space.spaces))
    return list(samples) if isinstance(space, s.Text) else np.stack(samples)


def buffers(space: Any) -> Any:
    from minari.data_collector import EpisodeBuffer  # pyright: ignore[reportMissingImports]

    space.seed(1)
    rng = np.random.default_rng(2)
    for e, steps in enumerate(STEPS):
        flags = np.zeros(steps, bool)
        flags[-1] = True
        yield EpisodeBuffer(
            id=None,
            seed=[3, 2**63 + 5, None][e],
            options=[None, {"low": 0.5, "deep": {"x": 1}}, None][e],
            observations=stacked(space, [space.sample() for _ in range(steps + 1)]),
            actions=stacked(space, [space.sample() for _ in range(steps)]),
            rewards=rng.normal(size=steps),
            terminations=flags,
            truncations=np.zeros(steps, bool),
            infos={"speed": rng.normal(size=(steps + 1, 2)), "deep": {"flag": rng.normal(size=(steps + 1, 1))}},
        )


def reference_write() -> Any:
    import warnings

    minari: Any = importlib.import_module("minari")

    warnings.simplefilter("ignore")
    for name, space in spaces().items():
        for back in ("hdf5", "arrow", "parquet"):
            minari.create_dataset_from_buffers(
                f"ref/{back}-{name}-v0", list(buffers(space)), observation_space=space, action_space=space,
                data_format=back, author="A", algorithm_name="random", jpeg_encoding=False,
            )  # fmt: skip


def reference_read(ids: Any) -> Any:
    import warnings

    minari: Any = importlib.import_module("minari")

    warnings.simplefilter("ignore")
    found = {}
    for dataset_id in ids:
        try:
            found[dataset_id] = describe(minari.load_dataset(dataset_id))
        except Exception as error:  # noqa: BLE001 - the table shows what the reference says
            found[dataset_id] = {"error": f"{type(error).__name__}: {error}"}
    return found


def describe(dataset: Any) -> Any:
    from minari.serialization import serialize_space  # pyright: ignore[reportMissingImports]

    metadata = list(dataset.storage.get_episode_metadata(range(dataset.total_episodes)))
    return {
        "spaces": [json.loads(serialize_space(s)) for s in (dataset.observation_space, dataset.action_space)],
        "totals": [int(dataset.total_episodes), int(dataset.total_steps)],
        "metadata": {k: dataset.storage.metadata.get(k) for k in ("algorithm_name", "data_format")},
        "episodes": [
            {
                **{name: digest(getattr(episode, name)) for name in ARRAYS},
                "infos": digest(episode.infos or {}),
                "seed": entries.get("seed"),
                "options": json.loads(json.dumps(entries.get("options"), default=float)),
            }
            for episode, entries in zip(dataset.iterate_episodes(), metadata, strict=True)
        ],
    }


ARRAYS = ("observations", "actions", "rewards", "terminations", "truncations")

# ------------------------------------------------------------------------------------------------------- in our own


def ours(path: Any) -> Any:
    from penstock.formats.minari import FORMAT

    try:
        with FORMAT.open(path) as source:
            spec: Any = source.spec
            return {
                "spaces": [space.to_json() for space in (spec.observation_space, spec.action_space)],
                "totals": [source.metadata["total_episodes"], source.metadata["total_steps"]],
                "metadata": {k: source.metadata.get(k) for k in ("algorithm_name", "data_format")},
                "episodes": [our_episode(episode) for episode in source.episodes()],
            }
    except Exception as error:  # noqa: BLE001 - the table shows what went wrong
        return {"error": f"{type(error).__name__}: {error}"}


def our_episode(episode: Any) -> Any:
    from penstock.core.ragged import Ragged

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        if isinstance(value, tuple):
            return tuple(plain(inner) for inner in value)
        return value.strings() if isinstance(value, Ragged) else value

    found = {name: digest(plain(getattr(episode, name))) for name in (*ARRAYS, "infos")}
    options = json.loads(json.dumps(episode.metadata.get("options"), default=float))
    return {**found, "seed": episode.metadata.get("seed"), "options": options}


ENV_SPEC = (  # Minari 0.4 does not load a dataset without one
    '{"id": "Foo-v0", "entry_point": "a:b", "reward_threshold": null, "nondeterministic": false, '
    '"max_episode_steps": null, "order_enforce": true, "autoreset": false, "disable_env_checker": false, '
    '"apply_api_compatibility": false, "additional_wrappers": [], "vector_entry_point": null}'
)


def rewrite(path: Any, target: Any, entries: Any = None, **options: Any) -> Any:
    from penstock.formats.minari import FORMAT

    with FORMAT.open(path) as source:
        given = {k: v for k, v in source.metadata.items() if k != "dataset_id"}
        with FORMAT.create(target, source.spec, {**given, **(entries or {})}, **options) as writer:
            writer.write_all(source.episodes())


def differences(left: Any, right: Any, ignore: Any = ()) -> Any:
    if "error" in left or "error" in right:
        return [left.get("error") or right.get("error")]
    found = [key for key in ("spaces", "totals") if canonical(left[key]) != canonical(right[key])]
    for e, (a, b) in enumerate(zip(left["episodes"], right["episodes"], strict=True)):
        found += [f"episode {e} {key}" for key in a if key not in ignore and a[key] != b[key]]
    return found


def canonical(value: Any) -> Any:
    """Order and characters of a Text's charset do not matter."""
    if isinstance(value, dict):
        return {k: "".join(sorted(v)) if k == "charset" else canonical(v) for k, v in value.items()}
    return [canonical(v) for v in value] if isinstance(value, list) else value


def run(python: Any, root: Any, mode: Any, *arguments: Any) -> Any:
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(root)}
    command = [python, "-P", __file__, "--mode", mode, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{mode} in {python} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def compare(python: Any, legacy: Any) -> Any:
    import figures  # not on top: the reference's interpreter runs this file without its folder

    from penstock_mirrors.minari.storage import root as listing

    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        os.environ.update(MINARI_DATASETS_PATH=folder, PENSTOCK_CACHE=f"{folder}/.cache")
        run(python, top, "write")
        written = listing.datasets(top, "ref")
        theirs = read_back(python, top, written)
        rows = [(i, "Minari -> penstock", differences(theirs[i], ours(top / i))) for i in written]
        copies = copied(top, [i for i in written if "/hdf5-" in i])
        back = read_back(python, top, list(copies))
        rows += [(i, "penstock -> Minari", differences(theirs[old], back[i])) for i, old in copies.items()]
        if legacy:
            old_ids = legacy_copies(top, [i for i in written if "/hdf5-" in i and "multi" not in i])
            found = read_back(legacy, top, list(old_ids))
            rows += [
                (i, "penstock -> Minari 0.4", differences(theirs[old], found[i], ("infos", "options")))
                for i, old in old_ids.items()
            ]
        for dataset_id, way, found in rows:
            print(f"{way:24} {dataset_id:36} {'equal' if not found else ', '.join(map(str, found))[:160]}")
            wrong += bool(found)
    figures.record("compared", len(rows), "count")
    figures.record("equal", len(rows) - wrong, "count")
    print(f"{len(rows) - wrong} of {len(rows)} equal")
    return wrong


def read_back(python: Any, top: Any, ids: Any) -> Any:
    (top / "ids.json").write_text(json.dumps(ids))
    run(python, top, "read", str(top / "ids.json"), str(top / "found.json"))
    return json.loads((top / "found.json").read_text())


def copied(top: Any, ids: Any) -> Any:
    copies = {}
    for dataset_id in ids:
        for back in ("hdf5", "arrow", "parquet"):
            target = f"ours/{back}-{dataset_id.split('/hdf5-')[1]}"
            rewrite(top / dataset_id, top / target, data_format=back)
            copies[target] = dataset_id
    return copies


def legacy_copies(top: Any, ids: Any) -> Any:
    copies = {}
    for dataset_id in ids:
        target = f"legacy-{dataset_id.split('/hdf5-')[1]}"
        rewrite(top / dataset_id, top / target, {"env_spec": ENV_SPEC}, layout="0.4")
        copies[target] = dataset_id
    return copies


def legacy_read(ids: Any) -> Any:
    minari: Any = importlib.import_module("minari")
    from minari.serialization import serialize_space  # pyright: ignore[reportMissingImports]

    found = {}
    for dataset_id in ids:
        try:
            dataset = minari.load_dataset(dataset_id)
            episodes = [
                {
                    **{n: digest(getattr(ep, n)) for n in ARRAYS},
                    "seed": None if str(ep.seed) == "None" else int(ep.seed),
                }
                for ep in dataset.iterate_episodes()
            ]
            pair = [json.loads(serialize_space(s)) for s in (dataset.spec.observation_space, dataset.spec.action_space)]
            found[dataset_id] = {
                "spaces": pair,
                "totals": [int(dataset.total_episodes), int(dataset.total_steps)],
                "episodes": [{**e, "infos": None, "options": None} for e in episodes],
            }
        except Exception as error:  # noqa: BLE001 - the table shows what the reference says
            found[dataset_id] = {"error": f"{type(error).__name__}: {error}"}
    return found


def main() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference-python")
    parser.add_argument("--legacy-python")
    parser.add_argument("--mode", choices=("compare", "write", "read"), default="compare")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    if options.mode == "compare":
        return int(compare(options.reference_python, options.legacy_python) > 0)
    if options.mode == "write":
        reference_write()
    else:
        read = legacy_read if importlib.metadata.version("minari").startswith("0.4") else reference_read
        Path(options.files[1]).write_text(json.dumps(read(json.loads(Path(options.files[0]).read_text()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
