"""Depth maps: read equal to lerobot 0.6.1, written as LeRobot writes them, and never quantised without a word."""

# pyright: basic

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.containers.images import encode
from penstock.errors import ArgumentError, DamageWarning, DataError, FormatError, SpecError
from penstock.formats.lerobot.depth import Depth
from tests.formats.lerobot.test_lerobot_damage import changed

GOLDEN = Path(__file__).parents[2] / "golden" / "lerobot"
KINDS = ("depth_image_mm", "depth_image_m", "depth_video", "depth_video_3")
PATH, NAME = "observations/images/depth", "observation.images.depth"
CODES = {"depth_min": 0.01, "depth_max": 10.0, "shift": 3.5, "use_log": True}


def depth_of(path: Path, **options: Any) -> np.ndarray[Any, Any]:
    """Depth of all steps, as it is stored."""
    with penstock.open(path, **options) as data:
        return np.concatenate([episode.columns[PATH] for episode in data])


def millimetres(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Depth as LeRobot returns it."""
    depth = np.moveaxis(rows.astype(np.float32), -1, 1)
    return depth * np.float32(1000) if rows.dtype == np.float32 else depth


@pytest.mark.parametrize("kind", KINDS)
def test_depth_equals_that_of_lerobot(kind: str) -> None:
    rows = depth_of(GOLDEN / kind)
    assert rows.dtype == (np.float32 if kind == "depth_image_m" else np.uint16)
    assert np.array_equal(millimetres(rows), np.load(GOLDEN / f"{kind}.npz")["depth"])
    data = penstock.open(GOLDEN / kind)
    unit = "m" if kind == "depth_image_m" else "mm"
    assert data.metadata["depth"] == {PATH: {"unit": unit, **(CODES if "video" in kind else {})}}
    assert data.spec[PATH].shape == (48, 64, 1)
    assert penstock.check(GOLDEN / kind, deep=True).sound
    assert np.array_equal(next(iter(data.windows(2).loader(batch_size=3)))[PATH][2], rows[2:4])


@pytest.mark.parametrize("cameras", ["image", "video"])
@pytest.mark.parametrize("kind", KINDS)
def test_depth_is_written_again_without_loss(kind: str, cameras: str, tmp_path: Path) -> None:
    """lerobot 0.6.1 reads these files equal, too: all 18 items of each, `tests/golden/lerobot/PROVENANCE.md`."""
    source = penstock.open(GOLDEN / kind, columns=[PATH, "actions", "task"])
    report = penstock.convert(source, tmp_path / "a", format="lerobot", options={"cameras": cameras})
    assert {column.column: column.status for column in report.certificate.columns}[PATH] == "equal"
    assert np.array_equal(depth_of(tmp_path / "a"), depth_of(GOLDEN / kind))
    feature = json.loads((tmp_path / "a/meta/info.json").read_text())["features"][NAME]
    video = cameras == "video" and "video" in kind
    assert (feature["dtype"], feature["shape"]) == ("video" if video else "image", [48, 64, 1])
    assert feature["info"]["is_depth_map"] is True
    assert feature["info"]["depth_unit"] == penstock.open(GOLDEN / kind).metadata["depth"][PATH]["unit"]
    if video:
        assert feature["info"] | {f"video.{name}": value for name, value in CODES.items()} == feature["info"]
        assert feature["info"]["video.pix_fmt"] == "gray12le"
    stored, stats = (
        json.loads((root / "meta/stats.json").read_text())[NAME] for root in (GOLDEN / kind, tmp_path / "a")
    )
    for figure in ("min", "max", "mean", "std", "count"):  # of the values before LeRobot quantised them
        np.testing.assert_allclose(stats[figure], stored[figure], rtol=3e-4, err_msg=figure)


def test_depth_survives_another_format(tmp_path: Path) -> None:
    penstock.convert(penstock.open(GOLDEN / "depth_image_m"), tmp_path / "columns", format="columns")
    penstock.convert(penstock.open(tmp_path / "columns"), tmp_path / "back", format="lerobot")
    assert penstock.open(tmp_path / "back").metadata["depth"] == {PATH: {"unit": "m"}}
    assert np.array_equal(depth_of(tmp_path / "back"), depth_of(GOLDEN / "depth_image_m"))


def test_depth_of_other_sources_is_named_by_an_option(tmp_path: Path) -> None:
    rows = np.arange(2 * 16 * 16, dtype=np.uint16).reshape(2, 16, 16, 1) * 100
    data = penstock.from_arrays({"observations/d": rows, "actions": np.zeros(2)}, lengths=[2])

    def written(name: str, **options: Any) -> dict[str, Any]:
        penstock.convert(data, tmp_path / name, format="lerobot", options={"fps": 10, **options})
        assert np.array_equal(penstock.open(tmp_path / name)[0].columns["observations/d"], rows)
        return json.loads((tmp_path / name / "meta/info.json").read_text())["features"]["observation.d"]

    assert written("numbers")["dtype"] == "uint16"
    assert written("image", depth={"observations/d": "mm"}, cameras="video")["dtype"] == "image"
    with pytest.raises(DataError, match=r"expected depth in observations/d that codes from 0.01 to 10 m hold"):
        written("video", depth={"observations/d": {"unit": "mm", **CODES}}, cameras="video")
    for depth, error in (({"observations/x": "mm"}, SpecError), ({"observations/d": "m"}, SpecError)):
        with pytest.raises(error, match="expected a column observations/"):
            written("wrong", depth=depth)
    for depth in (
        {"observations/d": "km"},
        {"observations/d": 3},
        {"observations/d": {"depth_min": 9, "depth_max": 1}},
    ):
        with pytest.raises(ArgumentError, match="depth map observations/d"):
            written("wrong", depth=depth)
    with pytest.raises(ArgumentError, match="expected depth with cameras"):
        written("wrong", depth={"observations/d": "mm"}, cameras="array")


def images(root: Path, blobs: list[bytes]) -> None:
    """Other images in the column of depth, over and over."""
    file = root / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    n = table.num_rows
    column = pa.StructArray.from_arrays(
        [pa.array([blobs[i % len(blobs)] for i in range(n)]), pa.array(["x"] * n)], ["bytes", "path"]
    )
    table = table.set_column(table.schema.get_field_index(NAME), NAME, column).replace_schema_metadata(None)
    pq.write_table(table, file)


@pytest.mark.parametrize("described", [True, False])
@pytest.mark.parametrize(
    ("dtype", "encoding"),
    [("uint8", "png"), ("uint16", "png"), ("uint8", "tiff"), ("uint16", "tiff"), ("float32", "tiff")],
)
def test_one_channel_of_any_type_is_read_as_it_is(described: bool, dtype: str, encoding: Any, tmp_path: Path) -> None:
    """Whether `meta/info.json` says that it is depth or not: the files know their dtype, the metadata do not."""
    root = Path(shutil.copytree(GOLDEN / "depth_image_mm", tmp_path / "a"))
    pixels = (np.arange(48 * 64).reshape(48, 64) % 250).astype(dtype)
    pixels[0, 0] = pixels.dtype.type(0.25) if dtype == "float32" else np.iinfo(dtype).max
    images(root, [encode(pixels, encoding)])
    if not described:
        changed(root / "meta/info.json", lambda info: info["features"][NAME].pop("info"))
    rows = depth_of(root)
    assert rows.dtype == pixels.dtype
    assert np.array_equal(rows[7, ..., 0], pixels)


def test_images_that_change_their_type_are_an_error(tmp_path: Path) -> None:
    root = Path(shutil.copytree(GOLDEN / "depth_image_mm", tmp_path / "a"))
    pixels = np.ones((48, 64), np.uint16)
    images(root, [encode(pixels, "tiff"), encode(pixels.astype(np.float32), "tiff")])
    with pytest.raises(FormatError, match=r"expected an image uint16\(48, 64, 1\), got TIFF float32"):
        depth_of(root)
    PIL.Image.fromarray(np.full((48, 64), 70_000, np.int32)).save(tmp_path / "wide.tiff")
    images(root, [(tmp_path / "wide.tiff").read_bytes()])
    with pytest.raises(FormatError, match="expected an image in grey or RGB, got one of mode I"):
        depth_of(root)


@pytest.mark.parametrize(
    "info",
    [{"depth_unit": "cm"}, {"video.depth_max": "x"}, {"video.depth_min": 20.0}, {"video.shift": -1.0}],
)
def test_depth_without_a_meaning_is_left_out_by_name(info: dict[str, Any], tmp_path: Path) -> None:
    root = Path(shutil.copytree(GOLDEN / "depth_video", tmp_path / "a"))
    changed(root / "meta/info.json", lambda entries: entries["features"][NAME]["info"].update(info))
    with pytest.warns(DamageWarning, match=rf"{NAME} \(expected"):
        data = penstock.open(root)
    assert PATH not in data.spec
    assert [(each.where, each.reason) for each in data.source.account.left_out] == [(NAME, "unsupported-dtype")]


def test_depth_in_video_is_scaled_without_new_depths_and_read_as_packets() -> None:
    rows = depth_of(GOLDEN / "depth_video")
    small = depth_of(GOLDEN / "depth_video", size=(24, 32), frame_cache_bytes=1 << 20)
    assert small.shape == (18, 24, 32, 1)
    assert all(np.isin(one, other).all() for one, other in zip(small, rows, strict=True))
    data = penstock.open(GOLDEN / "depth_video", decode="bytes", columns=[PATH])
    assert (data.spec[PATH].kind, len(data[0].columns[PATH])) == ("ragged", 5)


@pytest.mark.parametrize("use_log", [True, False])
def test_codes_are_steps_of_depth_or_of_its_logarithm(use_log: bool) -> None:
    """Equal to lerobot 0.6.1 for all codes in millimetres, and in metres to the last bit of float32 but one."""
    depth = Depth("m", 0.5, 4.5, 1.0, use_log)
    middle = np.exp((np.log(1.5) + np.log(5.5)) / 2) - 1 if use_log else 2.5
    np.testing.assert_allclose(depth.values[[0, -1]], [0.5, 4.5], rtol=1e-6)
    assert abs(depth.values[2048] - middle) < 1e-3
    assert depth.codes(np.array([0.0, 0.5, 4.5, np.inf], np.float32)).tolist() == [0, 0, 4095, 4095]
    assert np.array_equal(depth.codes(depth.values), np.arange(4096))
    with pytest.raises(DataError, match="got NaN"):
        depth.codes(np.array([np.nan], np.float32))
