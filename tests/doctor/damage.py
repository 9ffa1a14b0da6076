"""Damage that belongs to one format, planted into clean files: what `test_findings_of_formats.py` and the page need."""

# pyright: basic

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock
from penstock.containers.tar.writer import END, member
from penstock.core.ragged import Ragged
from penstock.formats.base.format import named
from tests.doctor.repairs import CAMERA, DAMAGE, MAKE, Plant, append, entries, shorten, write
from tests.doctor.test_planted import SPEC, clean

GOLDEN = Path(__file__).parents[1] / "golden"


def flipped(name: str, place: int) -> Plant:
    """One bit of a file changed."""

    def planted(path: Path) -> None:
        file = path / name if name else path
        raw = bytearray(file.read_bytes())
        raw[place] ^= 1
        file.write_bytes(raw)

    return planted


def copied(name: str, other: str) -> Plant:
    return lambda path: shutil.copy(path / name, path / other)


def removed(name: str) -> Plant:
    def planted(path: Path) -> None:
        target = path / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    return planted


def lerobot_image(path: Path) -> Path:
    """A dataset that lerobot wrote, with tasks."""
    return Path(shutil.copytree(GOLDEN / "lerobot" / "v3_image", path))


def lerobot_video(path: Path) -> Path:
    """A dataset with video that lerobot wrote."""
    return Path(shutil.copytree(GOLDEN / "lerobot" / "v3_video", path))


def part_of_a_video(side: str, seconds: float) -> Plant:
    """Another start or end of the second episode's frames of one camera."""

    def planted(path: Path) -> None:
        file, name = (
            path / "meta/episodes/chunk-000/file-000.parquet",
            f"videos/observation.images.top/{side}_timestamp",
        )
        episodes = pq.read_table(file)
        rows = episodes.to_pylist()
        rows[1][name] += seconds
        pq.write_table(pa.Table.from_pylist(rows, episodes.schema), file)

    return planted


def lerobot_old(path: Path) -> Path:
    """A dataset of version 2.1 that lerobot wrote."""
    return Path(shutil.copytree(GOLDEN / "lerobot" / "v21_image", path))


def without_last_row(name: str) -> Plant:
    def planted(path: Path) -> None:
        table = pq.read_table(path / name)
        pq.write_table(table.slice(0, len(table) - 1), path / name)

    return planted


def without_feature(path: Path) -> None:
    features = json.loads((path / "meta/info.json").read_text())["features"]
    entries("meta/info.json", features={name: each for name, each in features.items() if name != "index"})(path)


def feature_left(**described: Any) -> Plant:
    """A feature that no column has."""

    def planted(path: Path) -> None:
        features = json.loads((path / "meta/info.json").read_text())["features"]
        entries("meta/info.json", features={**features, "odd": described})(path)

    return planted


def unused_task(path: Path) -> None:
    file = path / "meta" / "tasks.parquet"
    tasks = pq.read_table(file)
    rows = [*tasks.to_pylist(), {"task_index": 2, "__index_level_0__": "close the door"}]
    pq.write_table(pa.Table.from_pylist(rows, tasks.schema), file)


def shifted_timestamps(path: Path) -> None:
    file = path / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    place = table.schema.get_field_index("timestamp")
    times = np.asarray(table.column(place)).copy()
    times[:3] += 0.5
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(times)), file)


def samples(path: Path) -> Path:
    path.write_bytes(b"".join([*(member(f"{key}.cls", b"1") for key in ("a", "b", "c")), END]))
    return path


def archives(path: Path) -> Path:
    """A folder of an archive."""
    path.mkdir()
    samples(path / "b.tar")
    return path


def key_twice(path: Path) -> None:
    path.write_bytes(b"".join([*(member(f"{key}.cls", b"1") for key in ("a", "b", "c", "a")), END]))


def put(name: str, content: bytes = b"1") -> Plant:
    """Another file in the folder of a dataset."""

    def planted(path: Path) -> None:
        (path / name).write_bytes(content)

    return planted


BESIDE = [
    ("other-file", put("notes.bin")),
    ("document", put("README.md")),
    ("hidden", put(".DS_Store")),
]
"""Files in the folder of a dataset that its format does not read."""


def table_of(path: Path, episodes: list[dict[str, np.ndarray]]) -> None:
    """A Parquet table with the columns of the episodes; rows of observations after the last step are left out."""
    lengths = [len(episode["rewards"]) for episode in episodes]
    columns: dict[str, Any] = {"episode_index": np.repeat(np.arange(len(lengths)), lengths)}
    for name, field in SPEC.items():
        rows = np.concatenate([episode[name][:n] for episode, n in zip(episodes, lengths, strict=True)])
        kind = pa.from_numpy_dtype(field.dtype)
        for size in reversed(field.shape):
            kind = pa.list_(kind, size)
        flat: Any = pa.array(rows.reshape(-1))
        for size in reversed(field.shape):
            flat = pa.FixedSizeListArray.from_arrays(flat, size)
        columns[name] = flat
    pq.write_table(pa.table(columns), path)


def demonstrations(path: Path, episodes: list[dict[str, np.ndarray]], **options: Any) -> None:
    """A file of robomimic."""
    with h5py.File(path, "w") as file:
        for e, episode in enumerate(episodes):
            demo, n = file.create_group(f"data/demo_{e}"), len(episode["rewards"])
            demo.attrs["num_samples"] = n
            for name in ("actions", "rewards", "timestamps"):
                demo.create_dataset(name, data=episode[name], **options)
            demo.create_dataset("dones", data=(episode["terminations"] | episode["truncations"]).astype("i8"))
            for name in ("state", "camera", "time"):
                demo.create_dataset(f"obs/{name}", data=episode[f"observations/{name}"][:n])
            demo.create_dataset("next_obs/state", data=episode["next_observations/state"])


def summed(path: Path) -> Path:
    """A file of robomimic whose chunks have checksums."""
    demonstrations(path, clean(), fletcher32=True)
    return path


def without_actions(path: Path) -> None:
    with h5py.File(path, "a") as file:
        del file["data/demo_1/actions"]


def linked_elsewhere(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file["data/demo_1/depth"] = h5py.ExternalLink("gone.hdf5", "/depth")


def masks(**names: list[str]) -> Plant:
    """Filter keys."""

    def planted(path: Path) -> None:
        with h5py.File(path, "a") as file:
            for key, demonstrations in names.items():
                file[f"mask/{key}"] = np.array(demonstrations, "S")

    return planted


def in_every_demonstration(name: str, value: Any) -> Plant:
    def planted(path: Path) -> None:
        with h5py.File(path, "a") as file:
            for demo in file["data"].values():
                demo[name] = value

    return planted


def in_demonstration_1(name: str, value: Any) -> Plant:
    def planted(path: Path) -> None:
        with h5py.File(path, "a") as file:
            file["data/demo_1"][name] = value

    return planted


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + path.read_bytes()[:100])


def demos(path: Path) -> Path:
    demonstrations(path, clean())
    return path


def flat(path: Path) -> Path:
    """A file of D4RL: two episodes of four steps."""
    with h5py.File(path, "w") as file:
        for name in ("observations", "actions", "rewards"):
            file[name] = np.arange(8.0)
        file["terminals"] = np.arange(8) % 4 == 3
    return path


def with_dataset(name: str, values: Any) -> Plant:
    def planted(path: Path) -> None:
        with h5py.File(path, "a") as file:
            file[name] = values

    return planted


def from_another_writer(path: Path) -> Path:
    """A dataset of RLDS without our own file, whose last step has an action."""
    return shortened(path, np.ones(5))


def shortened(path: Path, actions: np.ndarray) -> Path:
    columns = {"observations": np.arange(5.0)[:, None], "actions": actions, "rewards": np.zeros(5)}
    penstock.convert(penstock.from_arrays(columns, lengths=[5]), path, format="rlds", options={"name": "data"})
    (path / "penstock.json").unlink()
    return path


def zero_last(path: Path) -> None:
    shutil.rmtree(path)
    shortened(path, np.arange(5) < 4)


def flags_within(path: Path) -> None:
    """A flag of ends that is set within an episode, and not at the end of another."""
    pq.write_table(pa.table({"episode_index": [0, 0, 0, 1, 1], "done": [True, False, False, False, True]}), path)


def short_table(path: Path) -> Path:
    pq.write_table(pa.table({"episode_index": [0, 0, 0, 1, 1], "done": [False, False, True, False, True]}), path)
    return path


def chunk_flipped(file: str, dataset: str) -> Plant:
    """One bit of a chunk of an HDF5 file changed."""

    def planted(path: Path) -> None:
        with h5py.File(path / file if file else path) as opened:
            place = opened[dataset].id.get_chunk_info(0).byte_offset
        flipped(file, place + 9)(path)

    return planted


def group_left(path: Path) -> None:
    """A group without data, as a killed writer leaves it."""
    with h5py.File(path / "data/main_data.hdf5", "a") as file:
        file.create_group("episode_4")


def dataset_beside(path: Path) -> None:
    """A dataset next to the episodes."""
    with h5py.File(path / "data/main_data.hdf5", "a") as file:
        file["notes"] = np.zeros(3)


def frames(path: Path) -> Path:
    """An archive that il-representations wrote, a pickle a member."""
    return Path(shutil.copy(GOLDEN / "ilr/shards/A_plain.tar", path))


def _members(path: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        return [(each.name, archive.extractfile(each).read()) for each in archive.getmembers()]  # pyright: ignore


def other_next(path: Path) -> None:
    members = _members(path)
    following = [content for name, content in members if ".next_obs." in name]
    second = next(i for i, (_, content) in enumerate(members) if content == following[1])
    members[second] = members[second][0], following[5]
    path.write_bytes(b"".join([*(member(name, content) for name, content in members), END]))


def last_frame_lost(path: Path) -> None:
    members = _members(path)
    last = members[-1][0].split(".")[0]
    kept = [member(name, content) for name, content in members if name.split(".")[0] != last]
    path.write_bytes(b"".join([*kept, END]))


def entries_that_differ(path: Path) -> None:
    """Samples with a JSON entry that is a number in one and text in the next."""
    told = {"a": 1, "b": "one", "c": [1]}
    parts = [member(f"{key}.json", json.dumps({"even": 1, "odd": value}).encode()) for key, value in told.items()]
    path.write_bytes(b"".join([*parts, END]))


def entries_that_lack(path: Path) -> None:
    """Samples with a JSON entry that is null in one."""
    parts = [member(f"{i}.json", json.dumps({"even": 1, "odd": value}).encode()) for i, value in enumerate((1, None))]
    path.write_bytes(b"".join([*parts, END]))


def with_member(name: str) -> Plant:
    """Another member at the beginning of an archive."""

    def planted(path: Path) -> None:
        path.write_bytes(member(name, b"1") + path.read_bytes())

    return planted


def texts(path: Path) -> Path:
    """A buffer of Zarr with a column of text."""
    spec = penstock.Spec(
        {"rewards": penstock.Field(np.dtype("f8")), "says": penstock.Field(np.dtype("u1"), (), "step", "text")}
    )
    with named("zarr").create(path, spec) as writer:
        for e in range(3):
            said = Ragged.from_strings([f"{e} {step}" for step in range(4)])
            writer.write(penstock.Episode(spec, {"rewards": np.arange(4.0) + e, "says": said}))
    return path


def sums(path: Path) -> Path:
    return write(path, "minari", checksums=True)


def saved_apart(path: Path) -> None:
    """An episode in a file of its own, as a killed writer leaves it."""
    with penstock.open(path) as data:
        columns = data[0].columns
        with named("lerobot").append(path) as writer:
            writer.write(penstock.Episode(writer.spec, {name: columns[name] for name in writer.spec}))
            shutil.copytree(path, path.with_name("killed"))
    shutil.rmtree(path)
    path.with_name("killed").rename(path)


def odd_array(name: str, **entries: Any) -> Plant:
    """An array of a Zarr group that is no column."""
    described = {"chunks": [1], "compressor": None, "dtype": "<f4", "fill_value": 0, "filters": None, "order": "C"}

    def planted(path: Path) -> None:
        (path / name).mkdir(parents=True)
        (path / name / ".zarray").write_text(json.dumps({"zarr_format": 2, "shape": [1], **described, **entries}))

    return planted


def no_json(path: Path) -> None:
    (path / "features.json").write_text("{")


def from_repairs(make: str) -> list[tuple[Callable[[Path], Path], str, Plant]]:
    """The damage that `repair` mends."""
    return [(MAKE[name], finding, plant) for name, finding, plant, _ in DAMAGE if name == make]


# What a path needs to be called, so that a format recognises it.
NAMES = {
    "columns": "data",
    "demos": "data.hdf5",
    "lerobot": "data",
    "minari": "data-v0",
    "rlds": "data",
    "tables": "data.parquet",
    "webdataset": "data.tar",
    "zarr": "data",
}
# Formats that hold any columns, with options of their writers; and how the others get the columns that they hold.
GENERAL: dict[str, dict[str, Any]] = {
    "columns": {},
    "minari": {},
    "webdataset": {},
    "zarr": {},
    "rlds": {"images": "raw"},
    "lerobot": {"fps": 10},
}
SPECIAL = {"tables": table_of, "demos": demonstrations}

SHARD = "data-train.tfrecord-00000-of-00001"
ROWS = "data/chunk-000/file-000.parquet"
# Format -> clean data, the finding, and the damage.
FILES: dict[str, list[tuple[Callable[[Path], Path], str, Plant]]] = {
    "columns": [
        *((MAKE["columns"], *plant) for plant in BESIDE),
        *from_repairs("columns"),
        (MAKE["columns"], "checksum", flipped(CAMERA, 3)),
        (MAKE["columns"], "unreadable", removed(CAMERA)),
    ],
    "demos": [
        (demos, "unreadable", without_actions),
        (summed, "checksum", chunk_flipped("", "data/demo_1/actions")),
        (demos, "damaged-part", linked_elsewhere),
        (demos, "leak", masks(train=["demo_0", "demo_1"], valid=["demo_1"])),
        (demos, "missing-part", masks(train=["demo_0", "demo_77"])),
        (demos, "duplicate-key", masks(train=["demo_0", "demo_0"])),
        (demos, "unsupported-dtype", in_every_demonstration("language", "pick")),
        (demos, "other-length", in_every_demonstration("goal", np.zeros(7))),
        (demos, "uneven-column", in_demonstration_1("depth", np.zeros(3))),
        (demos, "unused-array", in_demonstration_1("/notes", np.zeros(3))),
        (demos, "behind-the-end", longer),
        (flat, "unused-end", with_dataset("stop", np.arange(8) % 2 == 1)),
        (flat, "other-length", with_dataset("short", np.zeros(3))),
        (flat, "unsupported-dtype", with_dataset("notes", ["a"] * 8)),
        (flat, "document", with_dataset("metadata/weights", np.zeros((9, 9)))),
        (flat, "behind-the-end", append("", b"another file")),
    ],
    "lerobot": [
        *from_repairs("lerobot"),
        (MAKE["lerobot"], "unreadable", removed(ROWS)),
        (MAKE["lerobot"], "missing-footer", shorten(ROWS, 9)),
        (MAKE["lerobot"], "time-rate", shifted_timestamps),
        (lerobot_image, "unused-task", unused_task),
        (MAKE["lerobot"], "torn-tail", saved_apart),
        (MAKE["lerobot"], "unsupported-dtype", feature_left(dtype="complex64", shape=[2])),
        (MAKE["lerobot"], "missing-part", feature_left(dtype="float32", shape=[2])),
        (MAKE["lerobot"], "other-file", copied(ROWS, "data/chunk-000/file-009.parquet")),
        (MAKE["lerobot"], "document", copied(ROWS, "README.md")),
        (MAKE["lerobot"], "hidden", copied(ROWS, ".DS_Store")),
        (MAKE["lerobot"], "unknown-layout", without_feature),
        (lerobot_image, "unused-rows", without_last_row("meta/episodes/chunk-000/file-000.parquet")),
        (lerobot_old, "bad-file", shorten("data/chunk-000/episode_000001.parquet", 9)),
        (lerobot_video, "damaged-part", part_of_a_video("to", -0.1)),
        (lerobot_video, "frame-count", part_of_a_video("to", 0.1)),
    ],
    "minari": [
        *from_repairs("minari-v0"),
        (MAKE["minari-v0"], "identity", entries("data/metadata.json", dataset_id="another-v0")),
        (MAKE["minari-v0"], "no-steps", group_left),
        (MAKE["minari-v0"], "unused-array", dataset_beside),
        (MAKE["minari-v0"], "other-file", put("data/additional_data_9.hdf5")),
        (MAKE["minari-v0"], "document", put("data/README.md")),
        (MAKE["minari-v0"], "hidden", put("data/.DS_Store")),
        (MAKE["arrow-v0"], "bad-file", shorten("data/3/part-0.arrow", 30)),
        (sums, "checksum", chunk_flipped("data/main_data.hdf5", "episode_1/actions")),
        (MAKE["arrow-v0"], "numbering", removed("data/1")),
        (MAKE["arrow-v0"], "unreadable", removed("data/1/part-0.arrow")),
    ],
    "rlds": [
        *from_repairs("rlds"),
        (MAKE["rlds"], "checksum", flipped(SHARD, 500)),
        (MAKE["rlds"], "damaged-part", shorten(SHARD, 20)),
        (MAKE["rlds"], "unreadable", no_json),
        (from_another_writer, "guessed", zero_last),
        (MAKE["rlds"], "other-file", put("more.bin")),
        (MAKE["rlds"], "document", put("README.md")),
        (MAKE["rlds"], "hidden", put(".DS_Store")),
    ],
    "tables": [
        (MAKE["tables"], "missing-footer", shorten("1.parquet", 9)),
        (MAKE["tables"], "unreadable", flipped("1.parquet", -20)),
        (MAKE["tables"], "behind-the-end", append("1.parquet", b"something else")),
        (MAKE["tables"], "bad-file", put("2.parquet", b"<html>" * 99)),
        (MAKE["tables"], "document", put("README.md", b"# Table")),
        (MAKE["tables"], "hidden", put("_SUCCESS", b"")),
        (short_table, "unused-end", flags_within),
    ],
    "webdataset": [
        *from_repairs("shards.tar"),
        (samples, "duplicate-key", key_twice),
        (samples, "unsupported-dtype", entries_that_differ),
        (samples, "other-length", entries_that_lack),
        (samples, "hidden", with_member("._d.cls")),
        (samples, "other-file", with_member("labels")),
        (samples, "document", with_member("LICENSE")),
        (MAKE["shards.tar"], "behind-the-end", append("", b"something else")),
        (archives, "bad-file", put("a.tar", b"<html>" * 99)),
        (frames, "next-observation", other_next),
        (frames, "no-end", last_frame_lost),
        (MAKE["shards.tar"], "unreadable", flipped("", 600)),
    ],
    "zarr": [
        *from_repairs("zarr"),
        (MAKE["zarr"], "not-stored", removed("data/reward/0")),
        (MAKE["zarr"], "unreadable", shorten("data/camera/0.0.0.0", 30)),
        (texts, "damaged-part", removed("meta/says.ends")),
        (MAKE["zarr"], "unsupported-dtype", odd_array("data/notes", dtype="|O", shape=[1])),
        (MAKE["zarr"], "other-length", odd_array("data/fps", shape=[], chunks=[])),
        (MAKE["zarr"], "unused-array", odd_array("statistics/mean")),
        (MAKE["zarr"], "other-file", put("notes.bin")),
        (MAKE["zarr"], "document", put("README.md")),
        (MAKE["zarr"], "hidden", put(".DS_Store")),
    ],
}
