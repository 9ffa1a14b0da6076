"""Which of the original's names there are: every module and public name of the packages that are offered."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

# The public names of version 1.5.0, by module. An empty package is one whose names are in its modules.
NAMES = {
    "cle": "",
    "cle.closed_loop_evaluator": "EvaluationPlan ClosedLoopEvaluator",
    "cle.composite_metrics": "SupportsCompositeMetricCompute PassedDrivenMilesCompositeMetric "
    "DrivenMilesCompositeMetric SupportsCompositeMetricAggregation ReduceMode CompositeMetricAggregator",
    "cle.metric_set": "BaseMetricSet L5MetricSet",
    "cle.metrics": "SupportsMetricCompute CollisionMetricBase CollisionFrontMetric CollisionRearMetric "
    "CollisionSideMetric DisplacementErrorMetric DisplacementErrorL2Metric DistanceToRefTrajectoryMetric "
    "SimulatedDrivenMilesMetric ReplayDrivenMilesMetric YawErrorMetric YawErrorCAMetric "
    "SimulatedVsRecordedEgoSpeedMetric",
    "cle.scene_type_agg": "compute_cle_scene_type_aggregations",
    "cle.validators": "ValidatorOutput SupportsMetricValidate DurationMode RangeValidator "
    "SupportsValidationAggregation ValidationCountingAggregator FailedFrame ValidationFailedFramesAggregator",
    "configs": "load_config_data save_config_data",
    "configs.config": "load_config_data save_config_data load_metadata",
    "data": "get_combined_scenes filter_agents_by_distance filter_agents_by_frames "
    "filter_agents_by_labels filter_agents_by_track_id filter_tl_faces_by_frames "
    "filter_tl_faces_by_status get_agents_slice_from_frames "
    "get_frames_slice_from_scenes get_tl_faces_slice_from_frames "
    "PERCEPTION_LABEL_TO_INDEX PERCEPTION_LABELS TL_FACE_LABEL_TO_INDEX "
    "TL_FACE_LABELS DataManager LocalDataManager MapAPI AGENT_DTYPE ChunkedDataset "
    "FRAME_DTYPE SCENE_DTYPE TL_FACE_DTYPE zarr_concat",
    "data.combine": "get_combined_scenes",
    "data.filter": "PERCEPTION_LABELS_TO_KEEP PERCEPTION_LABEL_INDICES_TO_KEEP "
    "filter_agents_by_labels filter_agents_by_distance filter_agents_by_track_id "
    "filter_agents_by_frames filter_tl_faces_by_frames filter_tl_faces_by_status "
    "get_frames_slice_from_scenes get_agents_slice_from_frames "
    "get_tl_faces_slice_from_frames get_other_agents_ids",
    "data.labels": "PERCEPTION_LABELS PERCEPTION_LABEL_TO_INDEX TL_FACE_LABELS TL_FACE_LABEL_TO_INDEX",
    "data.local_data_manager": "L5KIT_DATA_FOLDER_ENV_KEY DataManager LocalDataManager",
    "data.map_api": "CACHE_SIZE ENCODING InterpolationMethod TLFacesColors MapAPI",
    "data.zarr_dataset": "FORMAT_VERSION FRAME_ARRAY_KEY AGENT_ARRAY_KEY SCENE_ARRAY_KEY "
    "TL_FACE_ARRAY_KEY FRAME_CHUNK_SIZE AGENT_CHUNK_SIZE SCENE_CHUNK_SIZE "
    "TL_FACE_CHUNK_SIZE SCENE_DTYPE FRAME_DTYPE AGENT_DTYPE TL_FACE_DTYPE "
    "ChunkedDataset",
    "data.zarr_utils": "GIGABYTE zarr_concat zarr_split zarr_scenes_chop",
    "dataset": "AgentDataset BaseEgoDataset EgoAgentDatasetVectorized EgoDataset EgoDatasetVectorized select_agents",
    "dataset.agent": "AgentDataset",
    "dataset.ego": "BaseEgoDataset EgoDataset EgoDatasetVectorized EgoAgentDatasetVectorized",
    "dataset.select_agents": "TH_YAW_DEGREE TH_EXTENT_RATIO TH_DISTANCE_AV in_consecutive_frame "
    "in_av_distance in_angular_distance in_extent_ratio update_mask "
    "get_valid_agents select_agents",
    "dataset.utils": "AGENT_MIN_FRAME_HISTORY AGENT_MIN_FRAME_FUTURE kMaxStrLength "
    "convert_str_to_fixed_length_tensor move_to_device move_to_numpy",
    "evaluation": "create_chopped_dataset read_gt_csv read_pred_csv write_gt_csv write_pred_csv "
    "export_zarr_to_csv compute_metrics_csv",
    "evaluation.chop_dataset": "MIN_FUTURE_STEPS create_chopped_dataset",
    "evaluation.csv_utils": "MAX_MODES write_gt_csv read_gt_csv write_pred_csv read_pred_csv",
    "evaluation.error_functions": "ErrorFunction l2_error closest_angle_error",
    "evaluation.extract_ground_truth": "export_zarr_to_csv",
    "evaluation.extract_metrics": "validate_dicts compute_metrics_csv",
    "evaluation.metrics": "metric_signature neg_multi_log_likelihood rmse prob_true_mode time_displace "
    "average_displacement_error_oracle average_displacement_error_mean "
    "final_displacement_error_oracle final_displacement_error_mean CollisionType "
    "detect_collision distance_to_reference_trajectory",
    "geometry": "angle_between_vectors angular_distance compute_yaw_around_north_from_direction "
    "crop_rectangle_from_image compute_agent_pose ecef_to_geodetic geodetic_to_ecef "
    "rotation33_as_yaw transform_point transform_points vertical_flip "
    "yaw_as_rotation33 normalize_intensity points_within_bounds "
    "voxel_coords_to_intensity_grid",
    "geometry.angle": "angle_between_vectors compute_yaw_around_north_from_direction angular_distance",
    "geometry.image": "crop_rectangle_from_image",
    "geometry.transform": "compute_agent_pose rotation33_as_yaw yaw_as_rotation33 vertical_flip "
    "transform_points transform_point ecef_to_geodetic geodetic_to_ecef",
    "geometry.voxel": "points_within_bounds voxel_coords_to_intensity_grid normalize_intensity",
    "kinematic": "AckermanPerturbation fit_ackerman_model_approximate fit_ackerman_model_exact Perturbation",
    "kinematic.ackerman_perturbation": "AckermanPerturbation",
    "kinematic.ackerman_steering_model": "fit_ackerman_model_approximate fit_ackerman_model_exact",
    "kinematic.perturbation": "Perturbation",
    "random": "GaussianRandomGenerator LambdaRandomGenerator RandomGenerator "
    "ReplayRandomGenerator UniformRandomGenerator",
    "random.random_generator": "RandomGenerator LambdaRandomGenerator ReplayRandomGenerator "
    "GaussianRandomGenerator UniformRandomGenerator",
    "rasterization": "BoxRasterizer EGO_EXTENT_HEIGHT EGO_EXTENT_LENGTH EGO_EXTENT_WIDTH Rasterizer "
    "build_rasterizer RenderContext SatBoxRasterizer get_sat_image_crop "
    "get_sat_image_crop_scaled get_sat_image_crop_scaled_from_ecef "
    "SatelliteRasterizer SemBoxRasterizer SemanticRasterizer StubRasterizer",
    "rasterization.box_rasterizer": "get_ego_as_agent get_box_world_coords draw_boxes BoxRasterizer",
    "rasterization.rasterizer": "EGO_EXTENT_WIDTH EGO_EXTENT_LENGTH EGO_EXTENT_HEIGHT Rasterizer",
    "rasterization.rasterizer_builder": "build_rasterizer",
    "rasterization.render_context": "RenderContext",
    "rasterization.sat_box_rasterizer": "SatBoxRasterizer",
    "rasterization.satellite_image": "get_sat_image_crop_scaled_from_ecef get_sat_image_crop_scaled get_sat_image_crop",
    "rasterization.satellite_rasterizer": "SatelliteRasterizer",
    "rasterization.sem_box_rasterizer": "SemBoxRasterizer",
    "rasterization.semantic_rasterizer": "CV2_SUB_VALUES CV2_SHIFT_VALUE INTERPOLATION_POINTS RasterEls COLORS "
    "indices_in_bounds cv2_subpixel SemanticRasterizer",
    "rasterization.stub_rasterizer": "StubRasterizer",
    "sampling": "",
    "sampling.agent_sampling": "get_agent_context compute_agent_velocity get_relative_poses generate_agent_sample",
    "sampling.agent_sampling_vectorized": "generate_agent_sample_vectorized",
    "sampling.slicing": "get_history_slice get_future_slice",
    "simulation": "",
    "simulation.dataset": "SimulationConfig SimulationDataset",
    "simulation.unroll": "TrajectoryStateIndices UnrollInputOutput ClosedLoopSimulatorModes SimulationOutputCLE "
    "SimulationOutput ClosedLoopSimulator",
    "simulation.utils": "insert_agent disable_agents get_frames_subset",
    "vectorization": "",
    "vectorization.vectorizer": "Vectorizer",
    "vectorization.vectorizer_builder": "build_vectorizer",
    "visualization": "write_gif draw_reference_trajectory draw_trajectory PREDICTED_POINTS_COLOR "
    "REFERENCE_TRAJ_COLOR TARGET_POINTS_COLOR write_video",
    "visualization.gif": "write_gif",
    "visualization.utils": "PREDICTED_POINTS_COLOR TARGET_POINTS_COLOR REFERENCE_TRAJ_COLOR "
    "ARROW_LENGTH_IN_PIXELS ARROW_THICKNESS_IN_PIXELS ARROW_TIP_LENGTH_IN_PIXELS "
    "draw_arrowed_line draw_trajectory draw_reference_trajectory",
    "visualization.video": "write_video",
    "visualization.visualizer": "",
    "visualization.visualizer.common": "LaneVisualization CWVisualization AgentVisualization EgoVisualization "
    "TrajectoryVisualization FrameVisualization",
    "visualization.visualizer.visualizer": "visualize",
    "visualization.visualizer.zarr_utils": "COLORS zarr_to_visualizer_scene simulation_out_to_visualizer_scene "
    "episode_out_to_visualizer_scene_gym_cle",
}
NOT_OFFERED = ("data.proto", "environment", "planning", "prediction")


@pytest.mark.parametrize("path", NAMES)
def test_names_are_where_programs_look_for_them(path: str) -> None:
    module = importlib.import_module(f"penstock_driving.l5kit.{path}")
    assert [name for name in NAMES[path].split() if not hasattr(module, name)] == []


def test_what_is_not_offered_is_not_half_there() -> None:
    assert [path for path in NOT_OFFERED if importlib.util.find_spec(f"penstock_driving.l5kit.{path}")] == []


def test_the_shortest_way_has_the_same_objects() -> None:
    package = importlib.import_module("penstock_driving.l5kit")
    for path in ("configs", "data", "dataset", "geometry", "rasterization", "vectorization"):
        module = importlib.import_module(f"penstock_driving.l5kit.{path}")
        for name in set(package.__all__) & set(module.__all__):
            assert getattr(package, name) is getattr(module, name)
