"""The map: coordinates as the original has them, and files that are no map or a hostile one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.ragged import Ragged
from penstock.errors import DataError, FormatError
from penstock_driving.formats.l5kit.wire import fields, zigzags
from penstock_driving.map import InterpolationMethod, MapAPI, MapElement, RoadMap
from penstock_driving.map.resample import every_metres, resampled
from penstock_driving.rasterize import build_rasterizer

GOLDEN = Path(__file__).parents[4] / "tests" / "golden" / "l5kit"
TOLERANCE = 1e-6  # metres


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "map_api.npz", allow_pickle=False) as file:
        return dict(file)


def off(left: np.ndarray, right: np.ndarray) -> float:
    return float(np.abs(left - right).max()) if left.shape == right.shape else np.inf


def test_bounds_are_those_of_the_original(road, golden) -> None:
    for kind in ("lane", "crosswalk"):
        info = road.bounds_info[f"{kind}s"]
        assert off(info["bounds"], golden[f"{kind}_bounds"]) < TOLERANCE
        assert len(info["ids"]) == len(golden[f"{kind}_bounds"]) > 10


def test_coordinates_are_those_of_the_original(road, golden) -> None:
    for name in golden["lane_ids"].tolist():
        raw = road.get_lane_coords(name)
        even = road.get_lane_as_interpolation(name, 20, InterpolationMethod.INTER_ENSURE_LEN)
        metres = road.get_lane_as_interpolation(name, 2, InterpolationMethod.INTER_METER)
        assert off(raw["xyz_left"], golden[f"raw_left_{name}"]) < TOLERANCE
        assert off(raw["xyz_right"], golden[f"raw_right_{name}"]) < TOLERANCE
        for side, key in (("left", "xyz_left"), ("right", "xyz_right"), ("mid", "xyz_midlane")):
            assert off(even[key], golden[f"i20_{side}_{name}"]) < TOLERANCE
            if side != "right":
                assert off(metres[key], golden[f"m2_{side}_{name}"]) < TOLERANCE
    for name in [key for key in golden if key.startswith("cw_")]:
        assert off(road.get_crosswalk_coords(name[3:])["xyz"], golden[name]) < TOLERANCE


def test_all_lanes_at_once_are_each_lane(road) -> None:
    everything = road.interpolated_lanes(20)
    for place in (0, 7, len(everything) - 1):
        one = road.get_lane_as_interpolation(road.bounds_info["lanes"]["ids"][place], 20, 1)
        assert off(everything[place, 0], one["xyz_left"]) < 1e-9
        assert off(everything[place, 1], one["xyz_right"]) < 1e-9


def test_what_a_caller_does_to_coordinates_does_not_come_back(road, golden) -> None:
    name = str(golden["lane_ids"][0])
    before = road.get_lane_coords(name)["xyz_left"].copy()
    road.get_lane_as_interpolation(name, 5, InterpolationMethod.INTER_ENSURE_LEN)
    road.get_lane_coords(name)["xyz_left"][:] = 0
    assert np.array_equal(road.get_lane_coords(name)["xyz_left"], before)


def test_elements_by_place_and_by_name(road) -> None:
    first = road[0]
    assert road[first.id] is road[first.id.encode()] is first
    assert [element.id for element in road][:3] == [road[place].id for place in range(3)]
    assert len(road) == len(road.elements) == len(road.ids_to_el)
    with pytest.raises(KeyError, match="nowhere"):
        road["nowhere"]


def test_lights_and_faces(road) -> None:
    faces = [element.id for element in road if road.is_traffic_face(element.id)]
    assert {road.get_color_for_face(name) for name in faces} == {"RED", "GREEN", "YELLOW"}
    assert all(road.is_traffic_face_color(name, road.get_color_for_face(name).lower()) for name in faces)
    assert sum(road.is_traffic_light(element.id) for element in road) == 6
    lane = road.bounds_info["lanes"]["ids"][0]
    assert road.is_lane(road[lane])
    assert not road.is_crosswalk(road[lane])
    assert road.is_crosswalk(road[road.bounds_info["crosswalks"]["ids"][0]])
    with pytest.raises(DataError, match="RED, GREEN, YELLOW"):
        road.get_color_for_face(lane)
    with pytest.raises(DataError, match="expected a crosswalk"):
        road.get_crosswalk_coords(lane)
    with pytest.raises(DataError, match="expected a lane"):
        road.get_lane_coords(faces[0])


def test_the_strictest_light_counts(tmp_path) -> None:
    body = (
        line(3, 1)
        + line(4, 1)
        + message(8, message(1, b"T"))
        + message(8, message(1, b"F"))
        + message(8, message(1, b"G"))
    )
    data = element(b"L", 3, body) + element(b"T", 4, message(29, b"")) + element(b"F", 4, message(11, b""))
    data += element(b"G", 4, message(13, b"")) + element(b"M", 3, line(3, 1) + line(4, 1))
    (tmp_path / "map.pb").write_bytes(data)
    road = MapAPI(tmp_path / "map.pb", np.eye(4))
    assert road.get_lane_traffic_control_ids("L") == {"T", "F", "G"}
    assert road.get_tl_feature_for_lane("L", {}) == 0
    assert road.get_tl_feature_for_lane("L", {"G": "green", "elsewhere": "red"}) == 1
    assert road.get_tl_feature_for_lane("L", {"G": "green", "F": "red"}) == 3
    assert road.get_tl_feature_for_lane("M", {"F": "red"}) == 4


def test_even_steps_of_a_line() -> None:
    lines = Ragged.from_rows([np.array([[0.0, 0, 0], [3, 4, 0]]), np.array([[1.0, 1, 1]]), np.array([[0.0, 0, 0]] * 3)])
    points = resampled(lines, 6)
    assert np.allclose(points[0], np.linspace([0, 0, 0], [3, 4, 0], 6))
    assert np.array_equal(points[1], np.ones((6, 3)))
    assert np.array_equal(points[2], np.zeros((6, 3)))
    with pytest.raises(DataError, match="at least 2"):
        resampled(lines, 1)
    with pytest.raises(DataError, match="above 0"):
        every_metres(lines[0], 0)


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def message(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def element(name: bytes, kind: int, body: bytes) -> bytes:
    return message(2, message(1, message(1, name)) + message(2, message(kind, body)))


def zigzag(*numbers: int) -> bytes:
    return b"".join(varint(n << 1 if n >= 0 else (-n << 1) - 1) for n in numbers)


def line(field: int, first: int, *numbers: int) -> bytes:
    numbers = numbers or (100, 200)
    return message(field, b"".join(message(first + axis, zigzag(*numbers)) for axis in range(3)))


def test_packed_numbers_and_single_ones_are_the_same() -> None:
    packed = element(b"L", 3, line(3, 1, 5, -300) + line(4, 1, 7))
    single = b"".join(varint((1 + axis) << 3) + zigzag(number) for number in (5, -300) for axis in range(3))
    unpacked = element(b"L", 3, message(3, single) + line(4, 1, 7))
    left, right = RoadMap.parse(packed), RoadMap.parse(unpacked)
    assert left.boundaries.values.tolist() == right.boundaries.values.tolist() == [[5] * 3, [-300] * 3, [7] * 3]
    assert left.boundaries.offsets.tolist() == [0, 2, 3]


def test_what_the_map_does_not_need_is_passed_over() -> None:
    known = element(b"L", 3, line(3, 1) + line(4, 1) + varint(15 << 3) + b"\x01" + message(99, b"later"))
    data = message(1, b"a name") + varint(7 << 3 | 5) + b"1234" + varint(8 << 3 | 1) + b"12345678" + known
    data += element(b"J", 5, b"") + message(2, message(1, message(1, b"empty")))
    assert RoadMap.parse(data).elements == [
        MapElement("L", "lane"),
        MapElement("J", "junction"),
        MapElement("empty", "none"),
    ]


HOSTILE = {
    "a length beyond the file": (b"\x12\xff\xff\xff\xff\x0f", "within its message"),
    "a length beyond the message": (message(2, b"\x0a\x7f"), "within its message"),
    "a number without an end": (b"\x80" * 11, "does not end"),
    "a number cut off": (b"\x12", "does not end"),
    "a group": (b"\x13\x14", "wire type"),
    "field 0": (b"\x02\x00", "field 0"),
    "a number for a message": (b"\x10\x01", "expected a message in field 2"),
    "an id that is no text": (element(b"\xff", 5, b""), "UTF-8"),
    "x without y": (element(b"L", 3, message(3, message(1, b"\x02")) + line(4, 1)), r"left boundary of lane 'L'"),
    "no boundary": (element(b"L", 3, line(3, 1)), "right boundary of lane 'L'"),
    "a delta cut off": (element(b"L", 3, message(3, message(1, b"\x80") + message(2, b"\x01") + message(3, b"\x01"))
                                + line(4, 1)), "cut off"),
    "a delta beyond 32 bits": (element(b"L", 3, line(3, 1, 1 << 40) + line(4, 1)), "32 bits"),
    "a delta of 11 bytes": (element(b"L", 3, message(3, message(1, b"\x80" * 10 + b"\x01")) + line(4, 1)), "10 bytes"),
    "a place of another type": (element(b"L", 3, message(2, message(1, b"\x08\x01")) + line(3, 1) + line(4, 1)),
                                "expected 4 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_maps_are_refused_by_name(name, tmp_path) -> None:
    data, says = HOSTILE[name]
    (tmp_path / "bad.pb").write_bytes(data)
    with pytest.raises(FormatError, match=says) as caught:
        RoadMap.read(tmp_path / "bad.pb")
    assert "bad.pb" in str(caught.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_map_or_an_error(data) -> None:
    try:
        RoadMap.parse(data)
    except FormatError:
        return
    assert all(low <= high <= len(data) for _, _, low, high in fields(data, (0, len(data))))


def test_every_cut_of_a_map_is_a_map_or_an_error() -> None:
    data = element(
        b"L", 3, message(2, message(1, b"\x0d\x01\x00\x00\x00\x15\x02\x00\x00\x00")) + line(3, 1) + line(4, 1)
    )
    assert RoadMap.parse(data).lane_frame.tolist() == [[1, 2]]
    for end in range(1, len(data)):
        with pytest.raises(FormatError):
            RoadMap.parse(data[:end])


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=30))
def test_numbers_come_back(numbers) -> None:
    values, begins = zigzags(zigzag(*numbers))
    assert values.tolist() == numbers
    assert len(begins) == len(numbers) + 1


def test_a_map_without_lanes_has_none(tmp_path) -> None:
    (tmp_path / "map.pb").write_bytes(element(b"J", 5, b""))
    road = MapAPI(tmp_path / "map.pb", np.eye(4))
    assert road.bounds_info["lanes"]["bounds"].shape == road.bounds_info["crosswalks"]["bounds"].shape == (0, 2, 2)
    assert road.interpolated_lanes(20).shape == (0, 2, 20, 3)


def test_an_empty_map_is_refused_before_it_makes_white_rasters(tmp_path, config) -> None:
    for data in (b"", message(1, b"")):
        (tmp_path / "semantic_map.pb").write_bytes(data)
        (tmp_path / "meta.json").write_bytes((GOLDEN / "meta.json").read_bytes())
        with pytest.raises(FormatError, match=r"a map with elements, got none.*semantic_map.pb"):
            build_rasterizer(config("py_semantic"), tmp_path)


def test_what_is_no_method_and_no_colour(road) -> None:
    name = next(element.id for element in road if road.is_lane(element))
    with pytest.raises(DataError, match="INTER_ENSURE_LEN"):
        road.get_lane_as_interpolation(name, 5, 7)
    with pytest.raises(DataError, match="GREEN"):
        road.is_traffic_face_color(name, "blue")
    line = road.get_lane_coords(name)["xyz_left"]
    for step, method in ((9, InterpolationMethod.INTER_ENSURE_LEN), (1.5, InterpolationMethod.INTER_METER)):
        along = road.get_lane_as_interpolation(name, step, method)
        assert np.array_equal(road.interpolate(line, step, method), along["xyz_left"])


def test_metadata_that_does_not_fit_is_named(tmp_path, config) -> None:
    cfg = config("py_semantic")
    with pytest.raises(FileNotFoundError, match=r"meta\.json"):
        MapAPI.from_cfg(tmp_path, cfg)
    for text, says in (
        ("{", r"JSON object.*meta\.json"),
        ("[]", "JSON object"),
        ("{}", "world_to_ecef"),
        ('{"world_to_ecef": [[1]]}', "4 by 4"),
        ('{"world_to_ecef": "x"}', "4 by 4.*world_to_ecef"),
    ):
        (tmp_path / "meta.json").write_text(text)
        (tmp_path / "semantic_map.pb").write_bytes(b"")
        with pytest.raises(FormatError, match=says):
            MapAPI.from_cfg(tmp_path, cfg)
