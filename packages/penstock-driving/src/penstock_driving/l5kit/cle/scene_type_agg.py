"""Failures counted by the type of scene."""

from __future__ import annotations

from penstock_driving.l5kit.cle.metric_set import L5MetricSet

__all__ = ["compute_cle_scene_type_aggregations"]


def compute_cle_scene_type_aggregations(
    mset: L5MetricSet,
    scene_ids_to_scene_types: list[list[str]],
    list_validator_table_to_publish: list[str],
) -> dict[str, int]:
    """Count the scenes of each type that fail each validator of an evaluated set."""
    del list_validator_table_to_publish
    types = dict.fromkeys(each for of_scene in scene_ids_to_scene_types for each in of_scene)
    counts = {f"{each}/{name}": 0 for each in types for name in mset.evaluation_plan.validators_dict()}
    for name, failed in mset.aggregate_failed_frames().items():
        scenes: list[int] = failed[:, 0].unique().tolist()
        for scene in scenes:
            for each in dict.fromkeys(scene_ids_to_scene_types[scene]):
                counts[f"{each}/{name}"] += 1
    return counts
