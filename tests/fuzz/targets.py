"""What is fuzzed: for each format some valid files in several layouts, and how everything in them is read."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from penstock.containers.images import encode
from penstock.containers.pickle import PickleTemplate, loads
from penstock.containers.tar import END, member
from penstock.core.ragged import Ragged
from penstock.errors import FormatError, PenstockError
from penstock.formats.base.format import named, recognise
from penstock.formats.webdataset.streaming import ShardStream
from penstock.formats.zarr import ZarrWriter, pack_zip
from penstock.testing.examples import FLAT, IMAGES, NESTED, RAGGED, TEXT, Example
from tests.fuzz.edits import corrupted, edited, odd_tree, records
from tests.fuzz.pickles import edited_pickle, made_up, watched
from tests.packages import modules_of_packages

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
Random = random.Random
Files = dict[str, bytes]
EPISODES = 40  # that are read of each dataset


@dataclass(frozen=True)
class Target:
    """Valid files, how one of them is edited, and how they are read.

    `make` writes them into an empty folder; `read` gives a digest of all values and whether damage was reported, or
    raises. `sealed`: checksums cover every byte, so other values without a report are a finding.
    """

    format: str
    name: str
    make: Callable[[Path], object]
    read: Callable[[Path, Random], tuple[str, bool]]
    edit: Callable[[bytes, Random], bytes] = edited
    sealed: bool = False

    @property
    def key(self) -> str:
        """What it is called on the command line."""
        return f"{self.format}/{self.name}"

    @cache  # noqa: B019  targets live as long as the process
    def files(self) -> Files:
        """Name and content of each valid file."""
        with tempfile.TemporaryDirectory() as folder:
            self.make(Path(folder))
            return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def copy_of(place: str) -> Callable[[Path], object]:
    """Makes a golden file or folder."""
    source = GOLDEN / place

    def make(folder: Path) -> None:
        if source.is_dir():
            shutil.copytree(source, folder, dirs_exist_ok=True)
        else:
            shutil.copy(source, folder)

    return make


def bytes_of(name: str, data: bytes) -> Callable[[Path], object]:
    """Makes one file."""
    return lambda folder: (folder / name).write_bytes(data)


def the_one(folder: Path) -> Path:
    """The only file of a folder, or the folder."""
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 else folder


def dataset(format: str, *options: dict[str, Any], inner: str = "") -> Callable[[Path, Random], tuple[str, bool]]:
    """Reads a dataset whole, in several ways, with one of the options."""

    def read(folder: Path, rng: Random) -> tuple[str, bool]:
        path = folder / inner if inner else the_one(folder)
        reported = any(finding.level == "error" for finding in named(format).check(path))
        recognised = recognise(path)[0].name == format
        given = rng.choice(options or ({},))
        digest = hashlib.sha256()
        with penstock.open(path, **({} if recognised else {"format": format}), **given) as data:
            for part in values(data):
                digest.update(part)
        return digest.hexdigest(), reported

    return read


def values(data: penstock.EpisodeDataset) -> Iterator[bytes]:
    """Everything that can be asked of a dataset, as bytes."""
    source = data.source
    yield repr((data.spec.fields, data.metadata, len(data))).encode("utf-8", "surrogatepass")
    yield data.source.offsets[: EPISODES + 1].tobytes()
    for e in range(min(len(data), EPISODES)):
        episode = data[e]
        for path, field in data.spec.fields.items():
            array = episode.columns[path]
            wanted = {"step": len(episode), "boundary": len(episode) + 1, "episode": 1}[field.align]
            if len(array) != wanted or array.dtype != field.dtype:
                raise AssertionError(f"{path}: {len(array)} rows of {array.dtype}, expected {wanted} of {field.dtype}")
            yield from (
                (array.values.tobytes(), array.offsets.tobytes()) if isinstance(array, Ragged) else (array.tobytes(),)
            )
        yield repr(dict(episode.metadata)).encode("utf-8", "surrogatepass")
    yield repr([len(episode) for episode, _ in zip(data, range(EPISODES), strict=False)]).encode()
    if len(source) < 10_000:
        table = data.table()
        yield b"".join(np.asarray(table[name]).tobytes() for name in table)
    for path, field in data.spec.fields.items():
        if field.ragged and source.steps < 100_000:
            source.value_offsets(path)
    samples = data.steps()
    if len(samples):
        samples[np.arange(0, len(samples), max(len(samples) // 50, 1))]
        data.windows(3, pad="zero")[np.array([0, len(samples) - 1])]
    _ = source.fingerprint


def example(format: str, which: Any, **options: Any) -> Callable[[Path], object]:
    """Writes an example by our own writer."""

    def make(folder: Path) -> None:
        with named(format).create(folder / "data", which.spec, {"made": "here", "n": 3}, **options) as writer:
            writer.write_all(which.episodes())

    return make


def rewritten(place: str, format: str, **options: Any) -> Callable[[Path], object]:
    """Converts a golden dataset."""
    how: Any = {"format": format, "options": options, "certificate": False}
    return lambda folder: penstock.convert(GOLDEN / place, folder / "data", **how)


def samples() -> bytes:
    """An archive of samples with members of many extensions."""

    def npy(array: Any) -> bytes:
        out = io.BytesIO()
        np.save(out, array)
        return out.getvalue()

    def npz(**arrays: Any) -> bytes:
        out = io.BytesIO()
        np.savez(out, **arrays)
        return out.getvalue()

    parts = [
        (f"{i}.{name}", raw)
        for i in range(3)
        for name, raw in (
            ("cls", b"%d" % i),
            ("json", b'{"a": {"b": [1, 2]}, "c": "text"}'),
            ("npy", npy(np.arange(6.0).reshape(2, 3))),
            ("npz", npz(x=np.arange(3), y=np.zeros((2, 2)))),
            ("pkl", pickle.dumps({"x": np.arange(3), "y": [1, "a"]}, protocol=4)),
            ("txt", b"words"),
            ("txt.gz", gzip.compress(b"words", mtime=0)),
        )
    ]
    return b"".join(member(name, raw) for name, raw in parts) + END


def streamed(folder: Path, rng: Random) -> tuple[str, bool]:
    """Reads an archive forward, without positions."""
    digest = hashlib.sha256()
    stream = ShardStream(the_one(folder), rows=4, shuffle=rng.choice((0, 5)), seed=1, buffer_bytes=1 << 22, threads=1)
    for block in stream():
        digest.update(repr([(path, len(block[path])) for path in block]).encode("utf-8", "surrogatepass"))
    return digest.hexdigest(), False


def webdataset() -> Iterator[Target]:
    """Tars of the library, of il-representations and of our own, plain and compressed; by position and as streams."""
    read = dataset("webdataset")
    plain = samples()
    yield Target("webdataset", "samples", bytes_of("a.tar", plain), read)
    yield Target("webdataset", "samples.gz", bytes_of("a.tar.gz", gzip.compress(plain, 1, mtime=0)), read)
    yield Target("webdataset", "stream", bytes_of("a.tar", plain), streamed)
    yield Target("webdataset", "stream.gz", bytes_of("a.tar.gz", gzip.compress(plain, 1, mtime=0)), streamed)
    for name in ("A.tgz", "A.tar.zst", "webdataset-00.tar.gz", "webdataset-1.0.2.tar.gz", "nometa.tgz"):
        yield Target("webdataset", name, copy_of(f"ilr/shards/{name}"), read)
    yield Target("webdataset", "npy", example("webdataset", RAGGED, layout="npy"), read)
    yield Target("webdataset", "seed", rewritten("ilr/shards/A.tgz", "webdataset", layout="seed"), read)


def minari() -> Iterator[Target]:
    """Files of Minari's own writers and of ours, in all back-ends."""
    read = dataset("minari", *({"infos": infos, "cache": "off"} for infos in ("strict", "union", "skip")))
    for version, name in (
        *(("0.5.4", "parquet-nested-v0"), ("0.5.4", "arrow-nested-v0"), ("0.5.4", "arrow-image-v0")),
        *(("0.5.4", "hdf5-nested-v0"), ("0.5.4", "hdf5-image-v0"), ("0.4.2", "nested-spaces-v0")),
        *(("0.4.2", "cartpole-old-v1"), ("0.5.0", "arrow-nested-v0")),
    ):
        yield Target("minari", f"{version} {name}", copy_of(f"minari/{version}/{name}"), read)
    for data_format, which in (
        ("hdf5", NESTED),
        ("arrow", TEXT),
        ("parquet", IMAGES),
        ("parquet", TEXT),
        ("hdf5", TEXT),
    ):
        name = f"ours {data_format} {which.name}"
        yield Target("minari", name, example("minari", which, data_format=data_format), read)


def columns() -> Iterator[Target]:
    """Our own store, plain and compressed."""
    read = dataset("columns")
    for which, options in ((FLAT, {}), (RAGGED, {}), (RAGGED, {"compression": 3, "block_steps": 4}), (TEXT, {})):
        make = example("columns", which, **options)
        name = which.name + "".join(str(v) for v in options.values())
        yield Target("columns", name, make, read, _json_or_raw)


def _json_or_raw(data: bytes, rng: Random) -> bytes:
    return edited(data, rng) if data[:1] == b"{" else records(data, rng)


def demos() -> Iterator[Target]:
    """All kinds of other demonstrations."""
    for kind, place in (
        *(("imitation", "imitation/folder"), ("imitation plain", "imitation/plain_folder")),
        *(("imitation npz", "imitation/trajectories.npz"), ("imitation pickle", "imitation/trajectories.pkl")),
    ):
        yield Target("demos", kind, copy_of(place), dataset("demos"))
    yield Target("demos", "robomimic", robomimic, dataset("demos"))
    yield Target("demos", "d4rl", d4rl, dataset("demos"))
    yield Target("demos", "aloha", aloha, dataset("demos"))
    for compressed in (False, True):
        yield Target("demos", f"npz {compressed}", plain(compressed), dataset("demos"))


def tables() -> Iterator[Target]:
    """Tables of Parquet, Arrow and JSON lines."""
    pa = import_module("pyarrow")
    rows: dict[str, Any] = {
        "episode": [0, 0, 0, 1, 1, 2],
        "x": pa.FixedSizeListArray.from_arrays(np.arange(12.0), 2),
        "tokens": [[1], [], [2, 3], [4], [], [5, 6]],
        "task": ["go", "", "left", "né", "a", "b"],
        "infos": [{"done": i == 5} for i in range(6)],
    }
    table = pa.table(rows)

    def parquet(folder: Path) -> None:
        import_module("pyarrow.parquet").write_table(table, folder / "t.parquet", row_group_size=4)

    def arrow(folder: Path, new: str = "new_file") -> None:
        with getattr(pa.ipc, new)(folder / "t.arrow", table.schema) as writer:
            writer.write_table(table, max_chunksize=4)

    def lines(folder: Path) -> None:
        (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))

    makers: dict[str, Callable[[Path], object]] = {
        "parquet": parquet,
        "arrow": arrow,
        "stream": lambda folder: arrow(folder, "new_stream"),
        "json lines": lines,
    }
    for name, make in makers.items():
        yield Target("tables", name, make, dataset("tables"))


def lerobot() -> Iterator[Target]:
    """LeRobot datasets: a table for each episode with images, and tables that episodes share."""
    files = import_module("tests.formats.lerobot.files")
    contract = import_module("tests.formats.lerobot.test_lerobot_contract")
    made = contract.Frames("frames", contract.SPEC, (3, 1, 4)).episodes()

    def one_episode(kind: str, folder: Path) -> None:
        """The shortest episode."""
        copy_of(f"lerobot/v21_{kind}")(folder)
        for e in (0, 1, 3):
            for file in folder.rglob(f"episode_00000{e}.*"):
                file.unlink()
        rows = (folder / "meta/episodes.jsonl").read_text().splitlines()
        (folder / "meta/episodes.jsonl").write_text(rows[2])

    read = dataset("lerobot", {}, {"decode": "bytes"}, {"split": "train"})
    yield Target("lerobot", "old", lambda folder: files.write_old(folder / "data", made), read)
    yield Target("lerobot", "new", lambda folder: files.write_new(folder / "data", made), read)
    yield Target("lerobot", "images", lambda folder: one_episode("image", folder / "data"), dataset("lerobot"))
    yield Target("lerobot", "video", lambda folder: one_episode("video", folder / "data"), read)
    for kind in ("depth_image_m", "depth_video"):
        make = copy_of(f"lerobot/{kind}")
        yield Target("lerobot", kind, lambda folder, make=make: make(folder / "data"), dataset("lerobot"))


def rlds() -> Iterator[Target]:
    """Records of both containers; the checksums are compared, or every byte is parsed."""
    unchecked = dataset("rlds", {"verify": False, "cache": "off"}, {"last_step": "observation", "verify": False})
    for kind in ("tfrecord", "array_record"):

        def make(folder: Path, kind: str = kind) -> None:
            """The first shard of the smaller split."""
            copy_of(f"rlds/{kind}/toy_arm/1.0.0")(folder)
            for file in folder.glob("toy_arm-*"):
                if not file.name.endswith(f"val.{kind}-00001-of-00003"):
                    file.unlink()

        yield Target("rlds", kind, make, dataset("rlds", {"split": "val"}), _json_or_corrupted)
        yield Target("rlds", f"{kind} unchecked", make, unchecked)


def _json_or_corrupted(data: bytes, rng: Random) -> bytes:
    return (edited if data[:1] == b"{" else corrupted)(data, rng)


def plain(compressed: bool) -> Callable[[Path], object]:
    """Arrays in an archive."""

    def make(folder: Path) -> None:
        arrays: dict[str, Any] = {
            "obs": np.zeros((11, 3), "f4"),
            "acts": np.arange(10),
            "rewards": np.ones(10),
            "dones": np.arange(10) == 9,
        }
        (np.savez_compressed if compressed else np.savez)(folder / "a.npz", **arrays)

    return make


def robomimic(folder: Path) -> None:
    """A group a demonstration."""
    import h5py

    with h5py.File(folder / "low_dim.hdf5", "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "type": 1, "env_kwargs": {"horizon": 400}})
        data.attrs["total"] = 7
        for e, n in enumerate((4, 3)):
            demo = data.create_group(f"demo_{e}")
            demo.attrs["num_samples"] = n
            demo["actions"], demo["rewards"], demo["dones"] = np.zeros((n, 2), "f4"), np.ones(n), np.arange(n) == n - 1
            demo["obs/eef"], demo["next_obs/eef"] = np.zeros((n, 3)), np.zeros((n, 3))
            demo.create_dataset("states", data=np.zeros((n, 5)), compression="gzip", chunks=(2, 5))
        file.create_dataset("mask/train", data=np.array([b"demo_0"]))


def d4rl(folder: Path) -> None:
    """One dataset a column."""
    import h5py

    with h5py.File(folder / "walker.hdf5", "w") as file:
        file["observations"], file["actions"], file["rewards"] = np.zeros((9, 4)), np.zeros((9, 2)), np.ones(9)
        file["terminals"], file["timeouts"] = np.arange(9) == 4, np.arange(9) == 8
        file.create_dataset("infos/qpos", data=np.zeros((9, 3)), compression="gzip", chunks=(4, 3))
        file["metadata/algorithm"] = np.bytes_(b"SAC")


def aloha(folder: Path) -> None:
    """An episode, with images as padded JPEG."""
    import h5py

    with h5py.File(folder / "episode_0.hdf5", "w") as file:
        file.attrs["sim"], file.attrs["compress"] = False, True
        blobs = [encode(np.full((8, 6, 3), 40 * row, np.uint8), "jpeg") for row in range(5)]
        rows = np.stack([np.frombuffer(blob.ljust(900, b"\0"), np.uint8) for blob in blobs])
        file.create_dataset("observations/images/cam_high", data=rows, chunks=(1, 900))
        file["observations/qpos"], file["action"] = np.zeros((5, 14), "f4"), np.ones((5, 14), "f4")
        file["compress_len"] = np.array([[len(blob) for blob in blobs]], "f4")


def buffers(example: Example, pack: bool = False, **options: Any) -> Callable[[Path], object]:
    """A replay buffer of a few episodes, in a folder or a ZIP archive."""

    def make(folder: Path) -> None:
        with ZarrWriter.create(folder / "buffer.zarr", example.spec, **options) as writer:
            writer.write_all(example.episodes())
        if pack:
            pack_zip(folder / "buffer.zarr", folder / "buffer.zarr.zip")
            shutil.rmtree(folder / "buffer.zarr")

    return make


def zarr() -> Iterator[Target]:
    """Replay buffers that we and the Zarr library wrote, of both versions."""
    read = dataset("zarr", {}, {"cache_bytes": 100}, {"missing": "refuse"})
    yield Target("zarr", "folder", buffers(RAGGED, chunk_rows=3), read)
    yield Target("zarr", "version 3", buffers(RAGGED, zarr_format=3, chunk_rows=3, compressor="zlib"), read)
    yield Target("zarr", "zip", buffers(FLAT, pack=True, compressor="lz4"), read)
    for name in ("pusht", "umi", "buffer3"):
        yield Target("zarr", f"golden {name}", copy_of(f"zarr/{name}.zarr.zip"), read)
        yield Target("zarr", f"golden {name} folder", unpacked(f"zarr/{name}.zarr.zip"), read)


def unpacked(place: str) -> Callable[[Path], object]:
    """Makes the folder that a golden ZIP archive has."""
    return lambda folder: shutil.unpack_archive(GOLDEN / place, folder, "zip")


def read_pickle(folder: Path, rng: Random) -> tuple[str, bool]:
    """A pickle as values; a template that was learned of it has to give the same."""
    data = (folder / "a.pkl").read_bytes()
    with watched():
        value = loads(data)
    if isinstance(value, np.ndarray) and value.size < 1 << 16:
        with watched():
            template = PickleTemplate.learn(data)
            matched = None if template is None else template.match(data)
        if template is not None and (matched is None or matched.tobytes() != value.tobytes()):
            raise AssertionError("the template differs from the interpreter")
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest(), False


def of_mapping(folder: Path, rng: Random) -> tuple[str, bool]:
    """Reads a folder by a mapping; what was left out counts as reported."""
    digest = hashlib.sha256()
    with penstock.open(folder, format="mapping") as data:
        for part in values(data):
            digest.update(part)
        return digest.hexdigest(), any(entry.level == "error" for entry in data.source.account.left_out)


def mapped(write: Callable[[Path], object]) -> Callable[[Path], object]:
    """Makes two files of a kind, each an episode."""

    def make(folder: Path) -> None:
        for e in range(2):
            write(folder / f"{e}")

    return make


def mapping() -> Iterator[Target]:
    """Files of anyone, each kind as a folder of episodes; and the text of a mapping."""
    scipy = import_module("scipy.io")
    torch = import_module("torch")
    arrays: dict[str, Any] = {"obs": np.arange(12.0).reshape(4, 3), "act": np.arange(3), "note": np.array("hi")}

    def hdf5(path: Path) -> None:
        import h5py

        with h5py.File(path.with_suffix(".h5"), "w") as file:
            file["obs"], file["act"] = arrays["obs"], arrays["act"]
            file.create_dataset("text", data=["a", "é", ""], dtype=h5py.string_dtype())
            file.create_dataset("packed", data=np.arange(3), chunks=(2,), compression="gzip")

    def safetensors(path: Path) -> None:
        header = json.dumps({"obs": {"dtype": "F64", "shape": [4, 3], "data_offsets": [0, 96]}}).encode()
        raw = len(header).to_bytes(8, "little") + header + arrays["obs"].tobytes()
        path.with_suffix(".safetensors").write_bytes(raw)

    rows = "".join(json.dumps({"obs": [i, 2.5], "act": i, "text": "é"}) + "\n" for i in range(3))
    table = "t,act,text\n" + "".join(f'{i / 10},{i},"a, {i}"\n' for i in range(3))
    kinds: dict[str, Callable[[Path], object]] = {
        "npz": lambda path: np.savez(path.with_suffix(".npz"), **arrays),
        "npz deflated": lambda path: np.savez_compressed(path.with_suffix(".npz"), **arrays),
        "npy": lambda path: np.save(path.with_suffix(".npy"), arrays["obs"]),
        "csv": lambda path: path.with_suffix(".csv").write_text(table),
        "json lines": lambda path: path.with_suffix(".jsonl").write_text(rows),
        "json": lambda path: path.with_suffix(".json").write_text(json.dumps({"steps": rows.splitlines()})),
        "pickle": lambda path: path.with_suffix(".pkl").write_bytes(pickle.dumps({**arrays, "list": [1, 2, 3]})),
        "hdf5": hdf5,
        "safetensors": safetensors,
        "matlab": lambda path: scipy.savemat(path.with_suffix(".mat"), arrays),
        "saved": lambda path: torch.save({"obs": torch.zeros(4, 3), "act": torch.arange(3)}, path.with_suffix(".pt")),
    }
    for name, write in kinds.items():
        yield Target("mapping", name, mapped(write), of_mapping)

    def told(folder: Path) -> None:
        mapped(kinds["npz"])(folder)
        text = 'penstock_mapping = 1\nfiles = "{e}.npz"\n[columns]\nobservations = "obs"\nactions = {from = "act"}\n'
        (folder / "penstock.toml").write_text(text)

    yield Target("mapping", "told", told, of_mapping)


def pickles() -> Iterator[Target]:
    """Pickles of all kinds of values."""
    for i, data in enumerate(made_up()):
        if i % 5 == 0:
            yield Target("pickle", str(i), bytes_of("a.pkl", data), read_pickle, edited_pickle)


def words_of() -> penstock.MapDataset:
    """Texts of several lengths."""
    texts = [np.arange(n) for n in (3, 9, 1, 20, 4, 4, 30, 2)]
    return penstock.from_records([{"x": text} for text in texts]).steps()


def state_of(kind: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """What takes states, and what goes on from one: both from nothing, as in another process."""
    data = penstock.from_arrays({"x": np.arange(60), "y": np.zeros((60, 2))}, lengths=[10, 20, 5, 25])
    other = penstock.from_arrays({"x": np.arange(30), "y": np.zeros((30, 2))}, lengths=[30])
    words = data.windows(3, pad="drop").shuffle(seed=1)
    mixed = penstock.mix([data.steps(), other.steps()], [2, 1])
    repacked = data.sequences().shuffle(seed=1).pack(30, repack=True)
    made: dict[str, Callable[[], Any]] = {
        "windows": lambda: words.loader(batch_size=7, threads=0),
        "mixed": lambda: mixed.loader(batch_size=7, threads=0),
        "packed": lambda: data.sequences().pack(30).loader(batch_size=1, threads=0),
        "repacked": lambda: repacked.loader(batch_size=1, threads=0),
        "stream": lambda: penstock.IterDataset.of(data.steps(), 7).rebatch(4).loader(threads=0),
        "packed stream": lambda: penstock.IterDataset.of(words_of(), 2).pack(30).loader(threads=0),
    }
    return made[kind], lambda taker: [batch["x"] for batch, _ in zip(taker, range(3), strict=False)]


def states(kind: str) -> Target:
    """The state of one kind of loader."""
    build, go_on = state_of(kind)

    def make(folder: Path) -> None:
        taker = build()
        go_on(taker)
        taker.skip((40, 42)) if kind in ("windows", "mixed") else None
        (folder / "state.json").write_text(json.dumps(taker.state_dict()))

    def read(folder: Path, rng: Random) -> tuple[str, bool]:
        try:
            state = json.loads((folder / "state.json").read_bytes())
        except (ValueError, RecursionError) as error:
            raise FormatError("expected JSON") from error
        taker = build()
        taker.load_state_dict(state)
        try:
            return repr(go_on(taker)), False
        except penstock.errors.WorkerError as error:
            if isinstance(error.__cause__, PenstockError):
                raise error.__cause__ from None
            raise

    def edit(data: bytes, rng: Random) -> bytes:
        return json.dumps(odd_tree(json.loads(data), rng)).encode("utf-8", "surrogatepass")

    return Target("states", kind, make, read, edit)


def of_the_core() -> dict[str, Target]:
    """Those of the formats and states of the core, by key."""
    kinds = ("windows", "mixed", "packed", "repacked", "stream", "packed stream")
    found = [
        *webdataset(),
        *minari(),
        *columns(),
        *demos(),
        *tables(),
        *lerobot(),
        *rlds(),
        *zarr(),
        *mapping(),
        *pickles(),
        *map(states, kinds),
    ]
    return {target.key: target for target in found}


@cache
def targets() -> dict[str, Target]:
    """All of them, also those of the other distributions that are installed, by key."""
    found = of_the_core()
    for module in modules_of_packages("fuzz_targets"):
        found |= {target.key: target for target in module.targets()}
    return found
