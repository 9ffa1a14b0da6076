"""Which of the original's names there are, at which import paths."""

from __future__ import annotations

import importlib

import pytest

# The names that version 1.5.0 exports, but for those of `ABSENT`.
NAMES = {
    "configs": "save_config_data load_config_data",
    "configs.config": "load_metadata",
    "data": "get_combined_scenes DataManager LocalDataManager ChunkedDataset SCENE_DTYPE FRAME_DTYPE AGENT_DTYPE "
    "TL_FACE_DTYPE PERCEPTION_LABELS PERCEPTION_LABEL_TO_INDEX filter_agents_by_labels filter_agents_by_frames "
    "filter_agents_by_distance filter_tl_faces_by_frames MapAPI zarr_concat TL_FACE_LABEL_TO_INDEX TL_FACE_LABELS "
    "filter_tl_faces_by_status get_frames_slice_from_scenes get_tl_faces_slice_from_frames "
    "get_agents_slice_from_frames filter_agents_by_track_id",
    "data.filter": "PERCEPTION_LABELS_TO_KEEP PERCEPTION_LABEL_INDICES_TO_KEEP get_other_agents_ids",
    "data.labels": "PERCEPTION_LABELS PERCEPTION_LABEL_TO_INDEX TL_FACE_LABELS TL_FACE_LABEL_TO_INDEX",
    "data.local_data_manager": "L5KIT_DATA_FOLDER_ENV_KEY",
    "data.map_api": "MapAPI InterpolationMethod",
    "data.zarr_dataset": "ChunkedDataset FORMAT_VERSION",
    "data.zarr_utils": "zarr_concat zarr_split zarr_scenes_chop",
    "dataset": "BaseEgoDataset EgoDataset EgoDatasetVectorized EgoAgentDatasetVectorized AgentDataset select_agents",
    "dataset.select_agents": "select_agents TH_DISTANCE_AV TH_EXTENT_RATIO TH_YAW_DEGREE",
    "dataset.utils": "AGENT_MIN_FRAME_FUTURE AGENT_MIN_FRAME_HISTORY",
    "evaluation": "export_zarr_to_csv compute_metrics_csv read_gt_csv read_pred_csv write_gt_csv write_pred_csv "
    "create_chopped_dataset",
    "evaluation.metrics": "neg_multi_log_likelihood rmse prob_true_mode time_displace "
    "average_displacement_error_oracle average_displacement_error_mean final_displacement_error_oracle "
    "final_displacement_error_mean distance_to_reference_trajectory CollisionType detect_collision",
    "geometry": "angle_between_vectors compute_yaw_around_north_from_direction rotation33_as_yaw yaw_as_rotation33 "
    "vertical_flip transform_points transform_point ecef_to_geodetic geodetic_to_ecef angular_distance "
    "compute_agent_pose",
    "kinematic": "AckermanPerturbation Perturbation fit_ackerman_model_approximate fit_ackerman_model_exact",
    "random": "GaussianRandomGenerator RandomGenerator UniformRandomGenerator LambdaRandomGenerator "
    "ReplayRandomGenerator",
    "rasterization": "Rasterizer RenderContext SatelliteRasterizer SemanticRasterizer StubRasterizer BoxRasterizer "
    "SatBoxRasterizer SemBoxRasterizer build_rasterizer EGO_EXTENT_WIDTH EGO_EXTENT_LENGTH EGO_EXTENT_HEIGHT",
    "vectorization": "",
    "visualization": "draw_trajectory TARGET_POINTS_COLOR PREDICTED_POINTS_COLOR REFERENCE_TRAJ_COLOR",
    "vectorization.vectorizer": "Vectorizer",
    "vectorization.vectorizer_builder": "build_vectorizer",
}
ABSENT = {
    "geometry": "crop_rectangle_from_image points_within_bounds voxel_coords_to_intensity_grid normalize_intensity",
    "rasterization": "get_sat_image_crop_scaled_from_ecef get_sat_image_crop_scaled get_sat_image_crop",
    "visualization": "draw_reference_trajectory write_gif write_video",
}


@pytest.mark.parametrize("path", NAMES)
def test_names_are_where_programs_look_for_them(path: str) -> None:
    module = importlib.import_module(f"penstock.compat.l5kit.{path}")
    assert [name for name in NAMES[path].split() if not hasattr(module, name)] == []


@pytest.mark.parametrize("path", ABSENT)
def test_what_is_absent_is_not_half_there(path: str) -> None:
    module = importlib.import_module(f"penstock.compat.l5kit.{path}")
    assert [name for name in ABSENT[path].split() if hasattr(module, name)] == []


def test_the_shortest_way_has_the_same_objects() -> None:
    door = importlib.import_module("penstock.compat.l5kit")
    for path in ("configs", "data", "dataset", "geometry", "rasterization", "vectorization"):
        module = importlib.import_module(f"penstock.compat.l5kit.{path}")
        for name in set(door.__all__) & set(module.__all__):
            assert getattr(door, name) is getattr(module, name)
