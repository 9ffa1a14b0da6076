"""Test sets, ground truth and predictions as files, and how good they are."""

from penstock_driving.l5kit.evaluation.chop_dataset import create_chopped_dataset
from penstock_driving.l5kit.evaluation.csv_utils import read_gt_csv, read_pred_csv, write_gt_csv, write_pred_csv
from penstock_driving.l5kit.evaluation.extract_ground_truth import export_zarr_to_csv
from penstock_driving.l5kit.evaluation.extract_metrics import compute_metrics_csv

__all__ = [
    "compute_metrics_csv",
    "create_chopped_dataset",
    "export_zarr_to_csv",
    "read_gt_csv",
    "read_pred_csv",
    "write_gt_csv",
    "write_pred_csv",
]
