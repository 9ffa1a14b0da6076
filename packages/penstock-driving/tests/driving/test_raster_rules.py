"""What rasters must keep, and what the switches change."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest

from driving.conftest import GOLDEN, back_in_time
from penstock.errors import DataError, FormatError, MissingExtraError
from penstock_driving.formats.l5kit import AGENT_DTYPE, FRAME_DTYPE, TL_FACE_DTYPE
from penstock_driving.geometry import pose_matrix, rotation33_as_yaw, transform_points, yaw_as_rotation33
from penstock_driving.map import MapAPI
from penstock_driving.rasterize import (
    MapTypeError,
    OutsideImageError,
    RasterOptions,
    RenderContext,
    SatelliteRasterizer,
    Scenes,
    SemanticRasterizer,
    Views,
    build_rasterizer,
)
from penstock_driving.rasterize.context import SpatialIndex
from penstock_driving.rasterize.drawing import opencv
from penstock_driving.rasterize.scenes import ranges


def log(boxes: list[tuple[float, float, float]], label: int = 3) -> Scenes:
    """One frame with the vehicle at the origin, and agents of 4 x 2 m at x, y, yaw."""
    frames, agents = np.zeros(1, FRAME_DTYPE), np.zeros(len(boxes), AGENT_DTYPE)
    frames["ego_rotation"] = np.eye(3)
    frames["agent_index_interval"] = 0, len(boxes)
    agents["centroid"] = np.array(boxes)[:, :2]
    agents["yaw"] = np.array(boxes)[:, 2]
    agents["extent"] = 4, 2, 1.5
    agents["track_id"] = np.arange(len(boxes)) + 1
    agents["label_probabilities"][:, label] = 1
    return Scenes.of(frames, agents, np.zeros(0, TL_FACE_DTYPE))


def ego_of(scenes: Scenes) -> Views:
    return Views.of_ego(scenes, np.zeros((1, 1), int))


def rasterizer(config, map_type: str = "box_debug", options: RasterOptions | None = None, history: int = 0, **raster):
    cfg = config(map_type, **{"raster_size": [64, 64], "ego_center": [0.5, 0.5], **raster})
    cfg["model_params"]["history_num_frames"] = history
    return build_rasterizer(cfg, GOLDEN, options)


def test_overlaps_are_holes_or_not(config) -> None:
    scenes = log([(2, 0, 0), (4, 0, 0)])  # 16 x 8 pixels each, from the middle on, half of them shared
    holes, whole = (
        rasterizer(config, options=RasterOptions(fill=fill), pixel_size=[0.25, 0.25]).rasterize_batch(
            scenes, ego_of(scenes)
        )[0, 0]
        for fill in ("even-odd", "union")
    )
    shared = np.s_[31:33, 43:45]  # away from the smoothed edges
    assert not holes[shared].any()
    assert np.all(whole[shared] == 255)
    assert np.all(holes[31:33, 35:37] == 255)
    assert np.count_nonzero(whole) > np.count_nonzero(holes)


@pytest.mark.parametrize("yaw", [0.0, 0.3, -2.0, np.pi / 2])
def test_turning_and_moving_the_world_changes_nothing(config, scene, yaw) -> None:
    """A box raster depends on where things are relative to the pose, up to a sub-pixel at the edges."""
    views = Views.of_ego(scene, back_in_time([40, 200], 3))
    boxes = rasterizer(config, history=3, raster_size=[112, 112])
    drawn = boxes.rasterize_batch(scene, views)
    frames, agents, matrix = scene.frames.copy(), scene.agents.copy(), pose_matrix(np.array([300.0, -50.0]), yaw)
    frames["ego_translation"][:, :2] = transform_points(frames["ego_translation"][:, :2], matrix)
    frames["ego_rotation"] = yaw_as_rotation33(yaw) @ frames["ego_rotation"]
    agents["centroid"] = transform_points(agents["centroid"], matrix)
    agents["yaw"] += yaw
    moved = Scenes(frames, agents, scene.faces, scene.agent_spans, scene.face_spans)
    again = boxes.rasterize_batch(moved, Views.of_ego(moved, views.steps))
    assert drawn.any()
    assert np.mean(np.abs(drawn.astype(int) - again) > 8) < 1e-4


def test_an_agent_s_view_of_the_vehicle_is_the_other_way_round(config) -> None:
    scenes = log([(8, 0, np.pi)])
    boxes = rasterizer(config)
    view = Views.of_agents(scenes, [[0]], scenes.agents)
    drawn = boxes.rasterize_batch(scenes, view)[0]
    assert np.all(drawn[1, 31:33, 30:34] == 255)  # the agent is the ego, in the middle
    assert np.all(drawn[0, 31:33, 46:50] == 255)  # and the vehicle 8 m ahead of it
    assert not drawn[0, 31:33, 14:18].any()


def test_rejected_agents_are_not_drawn_and_not_the_ego(config) -> None:
    scenes = log([(8, 0, 0)], label=1)
    boxes = rasterizer(config)
    assert not boxes.rasterize_batch(scenes, ego_of(scenes))[0, 0].any()
    drawn = boxes.rasterize_batch(scenes, Views.of_agents(scenes, [[0]], scenes.agents))[0]
    assert drawn[0].any()  # the vehicle
    assert not drawn[1].any()


def test_history_may_be_thinned_and_ego_history_left_out(config, scene, rasters) -> None:
    views = Views.of_ego(scene, back_in_time(rasters["ego_frame"]))
    every = rasterizer(config, history=10, raster_size=[224, 224], ego_center=[0.25, 0.5])
    options = RasterOptions(history_step=4)
    thinned = rasterizer(config, options=options, history=10, raster_size=[224, 224], ego_center=[0.25, 0.5])
    drawn = thinned.rasterize_batch(scene, views)
    assert thinned.num_channels() == 6
    assert np.array_equal(drawn, every.rasterize_batch(scene, views)[:, [0, 4, 8, 11, 15, 19]])
    cfg = config("box_debug")
    cfg["model_params"]["render_ego_history"] = False
    quiet = build_rasterizer(cfg).rasterize_batch(scene, views)
    assert np.array_equal(quiet[:, :12], rasters["ego_py_semantic"][:, :12])
    assert not quiet[:, 12:].any()


@pytest.mark.parametrize("shown", [True, False])
def test_a_moved_vehicle_is_drawn_where_it_was_moved(config, scene, agent_rows, rasters, shown) -> None:
    """Moving it in the views is moving it in the frames, for its own views and for agents' views."""
    cfg = config("box_debug")
    cfg["model_params"]["render_ego_history"] = shown
    boxes = build_rasterizer(cfg)
    frames = scene.frames.copy()
    frames["ego_translation"][:, :2] += (3, -2)
    frames["ego_rotation"] = yaw_as_rotation33(0.4) @ frames["ego_rotation"]
    moved = Scenes(frames, scene.agents, scene.faces, scene.agent_spans, scene.face_spans)
    for of in (
        lambda s: Views.of_ego(s, back_in_time(rasters["ego_frame"])),
        lambda s: Views.of_agents(s, back_in_time(rasters["agent_frame"]), agent_rows),
    ):
        there = of(moved)
        ego = np.zeros((*there.steps.shape, 3))
        ego[..., :2] = frames["ego_translation"][there.steps, :2]
        ego[..., 2] = rotation33_as_yaw(frames["ego_rotation"])[there.steps]
        views = Views(there.steps, there.position, there.yaw, there.track, ego)
        drawn = boxes.rasterize_batch(scene, views)
        assert np.array_equal(drawn, boxes.rasterize_batch(moved, there))
        assert not np.array_equal(drawn, boxes.rasterize_batch(scene, of(scene)))


def test_what_draws_can_be_sent_to_another_process(config, scene, ego_views, rasters) -> None:
    made, sent = pickle.loads(pickle.dumps((build_rasterizer(config("py_semantic"), GOLDEN), scene)))
    assert np.array_equal(made.rasterize_batch(sent, ego_views), rasters["ego_py_semantic"])


def test_what_agents_are_and_how_fast(config) -> None:
    scenes = log([(8, 0, 0), (-8, 0, 0)])
    scenes.agents["label_probabilities"][1] = np.eye(17)[14]
    scenes.agents["velocity"] = [(10, -5), (-1000, 1000)]
    both = rasterizer(config, options=RasterOptions(agent_channels=("type", "velocity")))
    drawn = both.rasterize_batch(scenes, ego_of(scenes))[0]
    assert both.num_channels() == len(drawn) == 2 + 5
    car, person = drawn[2:, 31, 48], drawn[2:, 31, 16]
    assert car.tolist() == [255, 0, 0, 128 + 40, 128 - 20]
    assert person.tolist() == [0, 0, 255, 1, 255]
    assert not drawn[2:, 31, 32].any()
    assert both.to_rgb(drawn.transpose(1, 2, 0)).shape == (64, 64, 3)


@pytest.mark.parametrize(
    ("size", "pixel"), [([160, 96], [0.5, 0.5]), ([96, 160], [0.5, 0.5]), ([224, 112], [0.5, 1.0])]
)
def test_rasters_and_pixels_that_are_not_square(config, scene, rasters, size, pixel) -> None:
    """The middle of a smaller raster is that of the larger; a wide pixel has the mean of two."""
    views = Views.of_ego(scene, back_in_time(rasters["ego_frame"][1:4]))
    made = rasterizer(config, "py_semantic", history=10, raster_size=size, pixel_size=pixel)
    drawn = made.rasterize_batch(scene, views)
    assert drawn.shape == (3, 25, size[1], size[0])
    whole = rasterizer(config, "py_semantic", history=10, raster_size=[224, 224]).rasterize_batch(scene, views)
    if pixel[0] == pixel[1]:
        top, left = (224 - size[1]) // 2, (224 - size[0]) // 2
        middle = whole[:, :22, top : top + size[1], left : left + size[0]]
        assert np.mean(np.abs(drawn[:, :22].astype(int) - middle) > 8) < 5e-4  # cut towards zero from elsewhere
    else:
        mean = whole[:, :22].reshape(3, 22, 112, 2, 224).mean(axis=3)
        assert np.mean(np.abs(mean - drawn[:, :22]) > 64) < 5e-3


def test_the_origin_is_at_the_top_or_at_the_bottom(config, scene, rasters) -> None:
    views = Views.of_ego(scene, back_in_time(rasters["satellite_frame"]))
    for map_type in ("box_debug", "satellite_debug"):
        bottom, top = (
            rasterizer(config, map_type, raster_size=[224, 224], ego_center=[0.25, 0.5], set_origin_to_bottom=flag)
            for flag in (True, False)
        )
        drawn, flipped = bottom.rasterize_batch(scene, views), top.rasterize_batch(scene, views)
        if map_type == "satellite_debug":
            assert np.array_equal(drawn, flipped[:, :, ::-1])
        else:  # the pixel rows of a flipped raster begin half a pixel later
            assert np.mean(np.abs(drawn[:, :, 1:].astype(int) - flipped[:, :, :0:-1]) > 128) < 5e-3


def lights_of(road: MapAPI, options: RasterOptions, active: list[str]) -> np.ndarray:
    """The kinds of all lanes while `active` faces are on."""
    made = SemanticRasterizer(RenderContext((64, 64), (0.5, 0.5), (0.5, 0.5)), road, options)
    on = np.array([name in active for name in made.faces])
    lanes = np.arange(len(made.lanes))
    return made._kinds(lanes, np.zeros_like(lanes), on[None])


def test_the_last_active_face_or_the_strictest_colours_a_lane(road) -> None:
    lane = next(i for i, names in enumerate(road.road.controls) if len({road[n].color for n in names} - {None}) > 1)
    faces = [name for name in road.road.controls[lane] if road.is_traffic_face(name)]
    kinds = {"RED": 1, "GREEN": 2, "YELLOW": 3}
    assert lights_of(road, RasterOptions(), faces)[lane] == kinds[road.get_color_for_face(faces[-1])]
    strictest = next(c for c in ("RED", "YELLOW", "GREEN") if c in {road.get_color_for_face(f) for f in faces})
    assert lights_of(road, RasterOptions(light_rule="strictest"), faces)[lane] == kinds[strictest]
    assert lights_of(road, RasterOptions(light_rule="strictest"), faces[::-1])[lane] == kinds[strictest]
    assert not lights_of(road, RasterOptions(), []).any()


def test_lights_can_be_left_out(config, scene, ego_views, rasters) -> None:
    dark = build_rasterizer(config("semantic_debug", disable_traffic_light_faces=True), GOLDEN)
    lit = rasters["ego_py_semantic"][:, 22:]
    empty = Scenes(scene.frames, scene.agents, scene.faces[:0], scene.agent_spans, np.zeros_like(scene.face_spans))
    drawn = dark.rasterize_batch(scene, ego_views)
    assert not np.array_equal(drawn, lit)
    lights = build_rasterizer(config("semantic_debug"), GOLDEN)
    assert np.array_equal(drawn, lights.rasterize_batch(empty, ego_views))


def test_an_active_control_without_a_colour_is_named(road) -> None:
    made = SemanticRasterizer(RenderContext((64, 64), (0.5, 0.5), (0.5, 0.5)), road)
    name = next(n for n in made.faces if road[n].color is None)
    scenes = log([(8, 0, 0)])
    faces = np.zeros(1, TL_FACE_DTYPE)
    faces["face_id"], faces["traffic_light_face_status"] = name, (1, 0, 0)
    lit = Scenes(scenes.frames, scenes.agents, faces, scenes.agent_spans, np.array([[0, 1]]))
    made.rasterize_batch(lit, ego_of(lit))  # far from every lane
    lane = made.control_lane[made.control_face == made.faces[name]][0]
    lit.frames["ego_translation"][0, :2] = made.lanes[lane].mean(axis=0)
    with pytest.raises(DataError, match=name):
        made.rasterize_batch(lit, ego_of(lit))


def test_roads_in_the_colour_of_their_direction(config, scene, ego_views) -> None:
    plain, colored = (
        build_rasterizer(config("semantic_debug"), GOLDEN, RasterOptions(lane_color=rule)).rasterize_batch(
            scene, ego_views
        )
        for rule in ("type", "direction")
    )
    roads = np.all(plain == np.array([17, 17, 31]).reshape(3, 1, 1), axis=1)
    assert roads.any()
    hues = colored.transpose(0, 2, 3, 1)[roads]
    assert np.mean(hues.max(axis=1) == 255) > 0.9
    assert len(np.unique(hues, axis=0)) > 2


def test_other_colours(config, scene, ego_views, rasters) -> None:
    options = RasterOptions.of({"colors": {"background": (1, 2, 3)}})
    drawn = build_rasterizer(config("semantic_debug"), GOLDEN, options).rasterize_batch(scene, ego_views)
    empty = np.all(rasters["ego_py_semantic"][:, 22:] == 255, axis=1)
    assert np.all(drawn.transpose(0, 2, 3, 1)[empty] == (1, 2, 3))


def ramp(rows: int, columns: int) -> np.ndarray:
    """An image that says where each pixel is: smooth, so that rounding shows as little."""
    y, x = np.mgrid[:rows, :columns]
    return np.stack([y * 255 // rows, x * 255 // columns, (np.sin(x / 40) * np.cos(y / 50) + 1) * 127], -1).astype(
        np.uint8
    )


def aerial(context: RenderContext, scale: float, image: np.ndarray, **options) -> SatelliteRasterizer:
    matrix = np.array([[0, -1 / scale, 0, len(image) / 2], [1 / scale, 0, 0, len(image) / 2], [0] * 4, [0, 0, 0, 1]])
    return SatelliteRasterizer(context, image, matrix, RasterOptions(**options))


@pytest.mark.parametrize("threads", [1, 3])
def test_an_image_may_stay_in_its_file(tmp_path, config, threads) -> None:
    """8 cm a pixel, from a mapped array: the same picture as from memory, whatever the threads, floats at the end."""
    np.save(tmp_path / "aerial_map.npy", ramp(1500, 1400))
    (tmp_path / "meta.json").write_bytes((GOLDEN / "meta.json").read_bytes())
    made = build_rasterizer(config("satellite_debug", satellite_map_key="aerial_map.npy"), tmp_path)
    assert not made.map_im.flags.owndata
    assert not made.map_im.flags.writeable
    scenes, context = log([(8, 0, 0)]), RenderContext((64, 48), (0.5, 0.5), (0.5, 0.5))
    views = Views(np.zeros((5, 1), int), np.zeros((5, 3)), np.linspace(-3, 3, 5), np.full(5, -1))
    mapped, held = (aerial(context, 0.08, image) for image in (made.map_im, ramp(1500, 1400)))
    drawn = mapped.rasterize_batch(scenes, views, dtype="float32", threads=threads)
    assert np.array_equal(drawn, held.rasterize_batch(scenes, views) / np.float32(255))
    assert len(np.unique(drawn)) > 100
    sent = pickle.loads(pickle.dumps(mapped))
    assert np.array_equal(sent.rasterize_batch(scenes, views, dtype="float32"), drawn)


def test_beyond_the_image_is_an_error_or_black(scene) -> None:
    context = RenderContext((64, 64), (0.5, 0.5), (0.5, 0.5))
    scenes, image = log([(8, 0, 0)]), np.full((200, 200, 3), 9, np.uint8)
    for place, seen in (((0.0, 0.0), 1.0), ((50.0, 0.0), 0.5), ((0.0, -50.0), 0.5), ((500.0, 0.0), 0.0)):
        views = Views(np.zeros((1, 1), int), np.array([[*place, 0.0]]), np.zeros(1), np.array([-1]))
        drawn = aerial(context, 0.5, image, outside="pad").rasterize_batch(scenes, views)
        assert abs(np.mean(drawn == 9) - seen) < 0.02
        if seen < 1:
            with pytest.raises(OutsideImageError, match="pad"):
                aerial(context, 0.5, image).rasterize_batch(scenes, views)
    assert issubclass(OutsideImageError, IndexError)


def test_images_that_do_not_fit(tmp_path, config) -> None:
    context = RenderContext((64, 64), (0.5, 0.5), (0.5, 0.5))
    with pytest.raises(DataError, match="uint8"):
        aerial(context, 0.5, np.zeros((9, 9), np.uint8))
    with pytest.raises(DataError, match="square pixels"):
        aerial(RenderContext((64, 64), (0.5, 1.0), (0.5, 0.5)), 0.5, ramp(99, 99))
    with pytest.raises(DataError, match="a scale"):
        SatelliteRasterizer(context, ramp(99, 99), np.zeros((4, 4)))
    with pytest.raises(DataError, match="finer"):
        aerial(context, 500, ramp(99, 99))
    (tmp_path / "aerial_map.png").write_bytes(b"no image")
    (tmp_path / "meta.json").write_bytes((GOLDEN / "meta.json").read_bytes())
    with pytest.raises(FormatError, match=r"aerial_map\.png"):
        build_rasterizer(config("satellite_debug"), tmp_path)
    for name, content in (("no.npy", b"no array"), ("empty.npy", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FormatError, match=name):
            build_rasterizer(config("satellite_debug", satellite_map_key=name), tmp_path)
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
    with pytest.raises(FormatError, match="objects"):
        build_rasterizer(config("satellite_debug", satellite_map_key="objects.npy"), tmp_path)


def test_the_index_finds_what_looking_at_all_finds(rng) -> None:
    low = rng.uniform(-100, 100, (500, 2))
    bounds = np.stack([low, low + rng.exponential(10, (500, 2))], axis=1)
    near = SpatialIndex(bounds)
    for x, y, reach in rng.uniform(1, 90, (50, 3)) - (45, 45, 0):
        meets = np.all((bounds[:, 0] - reach < (x, y)) & (bounds[:, 1] + reach > (x, y)), axis=1)
        assert np.array_equal(near.query(np.array([x, y]), reach), np.flatnonzero(meets))
    assert len(SpatialIndex(np.empty((0, 2, 2))).query(np.zeros(2), 5.0)) == 0


def test_configurations_that_ask_for_what_there_is_not(config) -> None:
    with pytest.raises(MapTypeError, match="py_semantic, py_satellite, semantic_debug"):
        build_rasterizer(config("lidar"), GOLDEN)
    assert issubclass(MapTypeError, NotImplementedError)
    cfg = config("box_debug")
    del cfg["raster_params"]["raster_size"]
    with pytest.raises(DataError, match=r"raster_params\.raster_size"):
        build_rasterizer(cfg)
    with pytest.raises(DataError, match=r"model_params\.history_num_frames"):
        build_rasterizer({"raster_params": config("box_debug")["raster_params"]})
    with pytest.raises(DataError, match="data manager"):
        build_rasterizer(config("py_semantic"))
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        build_rasterizer(config("py_semantic", semantic_map_key="elsewhere.pb"), GOLDEN)
    with pytest.raises(DataError, match="fill, history_step"):
        build_rasterizer(config("box_debug", options={"fil": "union"}))
    assert build_rasterizer(config("box_debug", options={"fill": "union"})).options.fill == "union"


@pytest.mark.parametrize(
    ("map_type", "options", "says"),
    [
        ("semantic_debug", {"fill": "union"}, "'fill' with a map_type of py_semantic, py_satellite, box_debug, got"),
        ("py_satellite", {"lane_color": "direction"}, "'lane_color' with a map_type of py_semantic, semantic_debug"),
        ("py_semantic", {"outside": "pad"}, "'outside'"),
        ("stub_debug", {"history_step": 2}, "'history_step'"),
    ],
)
def test_options_that_change_nothing_are_refused(config, map_type, options, says) -> None:
    with pytest.raises(DataError, match=says):
        build_rasterizer(config(map_type, options=options), GOLDEN)


def test_colours_of_boxes_without_boxes_are_refused(config) -> None:
    for map_type in ("stub_debug", "semantic_debug", "satellite_debug"):
        drawn_by = build_rasterizer(config(map_type), GOLDEN)
        with pytest.raises(DataError, match="agent_color"):
            drawn_by.to_rgb(np.zeros((224, 224, 3), np.float32), agent_color=(1, 0, 0))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"fill": "odd"}, "even-odd, union"),
        ({"lane_color": "red"}, "type, direction"),
        ({"light_rule": "first"}, "last, strictest"),
        ({"outside": "clip"}, "error, pad"),
        ({"agent_channels": ("mass",)}, "type, velocity"),
        ({"history_step": 0}, "from 1 on"),
        ({"history_step": 1.5}, "from 1 on"),
        ({"colors": {"sky": (0, 0, 0)}}, "background, road"),
        ({"colors": {"road": (0, 0, 256)}}, r"0\.\.255"),
    ],
)
def test_options_that_there_are_not(values, says) -> None:
    with pytest.raises(DataError, match=says):
        RasterOptions(**values)


@pytest.mark.parametrize(
    "values",
    [((0, 4), (1, 1)), ((4, 4.5), (1, 1)), ((4, 4), (1, 0)), ((4, 4), (np.nan, 1)), ((4,), (1, 1)), (("4", 4), (1, 1)),
     ((4, 99999), (1, 1))],
)  # fmt: skip
def test_contexts_that_make_no_raster(values) -> None:
    with pytest.raises(DataError, match=r"expected (raster_size|pixel_size)"):
        RenderContext(*values, (0.5, 0.5))


def test_a_missing_opencv_is_named(config, monkeypatch) -> None:
    opencv.cache_clear()
    monkeypatch.setitem(sys.modules, "cv2", None)
    scenes = log([(8, 0, 0)])
    with pytest.raises(MissingExtraError, match=r"penstock-driving\[raster\]"):
        rasterizer(config, "satellite_debug").rasterize_batch(scenes, ego_of(scenes))


def test_buffers_and_requests_that_do_not_fit(config, scene, ego_views) -> None:
    boxes = build_rasterizer(config("box_debug"))
    sparse = np.empty((5, 22, 224, 448), np.uint8)[..., ::2]
    for out in (np.empty((4, 22, 224, 224), np.uint8), np.empty((5, 22, 224, 224)), sparse):
        with pytest.raises(DataError, match=r"expected (out|rasters)"):
            boxes.rasterize_batch(scene, ego_views, out)
    with pytest.raises(DataError, match="one thread"):
        boxes.rasterize_batch(scene, ego_views, threads=0)
    with pytest.raises(DataError, match="agent_color and ego_color, got color"):
        boxes.to_rgb(np.zeros((224, 224, 22)), color=1)
    with pytest.raises(DataError, match="empty history"):
        boxes.rasterize(scene.frames[:0], [], [])
    with pytest.raises(DataError, match="uint8 or float32"):
        boxes.rasterize_batch(scene, ego_views, dtype="float64")


def test_scenes_and_views_that_do_not_fit(scene) -> None:
    spans = scene.agent_spans.copy()
    spans[3] = 5, len(scene.agents) + 1
    with pytest.raises(DataError, match="of frame 3"):
        Scenes(scene.frames, scene.agents, scene.faces, spans, scene.face_spans)
    with pytest.raises(DataError, match="faces for each frame"):
        Scenes(scene.frames, scene.agents, scene.faces, scene.agent_spans, scene.face_spans[:-1])
    views = Views.of_ego(scene, [[0]])
    with pytest.raises(DataError, match="expected ego"):
        Views(views.steps, views.position, views.yaw, views.track, np.zeros((1, 2, 3)))
    for steps in ([[len(scene.frames)]], [[-2]], [0], [[0.0]], [[-1, 0]]):
        with pytest.raises(DataError, match="expected"):
            Views.of_ego(scene, steps)


def test_part_of_a_log_is_rebased(scene, config) -> None:
    part = Scenes.of(
        scene.frames[50:70],
        *(
            rows[slice(spans[50, 0], spans[69, 1])]
            for rows, spans in ((scene.agents, scene.agent_spans), (scene.faces, scene.face_spans))
        ),
    )
    made = build_rasterizer(config("py_semantic"), GOLDEN)
    whole = made.rasterize_batch(scene, Views.of_ego(scene, back_in_time([65])))
    assert np.array_equal(made.rasterize_batch(part, Views.of_ego(part, back_in_time([15]))), whole)


def test_ranges_of_nothing() -> None:
    rows, owner = ranges(np.zeros((3, 2), np.int64))
    assert rows.size == owner.size == 0
