"""How good predictions are: likelihoods and displacements, of one sample or of any number at once.

Everywhere `ground_truth` is `[..., T, 2]`, `pred` `[..., M, T, 2]` (M modes), `confidences` `[..., M]` that add up to
1, and `avails` `[..., T]` 0 or 1; metres. Leading axes are samples. Steps that are not available count as no error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from penstock.core.arrays import AnyArray
from penstock.errors import DataError

Mode = Literal["oracle", "mean"]


class BadPredictionError(DataError, AssertionError):
    """Arrays that do not fit together, hold values that are not finite, or confidences that do not add up to 1."""


def neg_multi_log_likelihood(
    ground_truth: AnyArray, pred: AnyArray, confidences: AnyArray, avails: AnyArray
) -> AnyArray:
    """Return the negative log-likelihood of the truth: each mode is a Gaussian of unit variance about each step.

    Args:
        ground_truth: `[..., T, 2]` metres.
        pred: `[..., M, T, 2]` metres, of M modes.
        confidences: `[..., M]`, which sum to 1.
        avails: `[..., T]`, 0 or 1. Steps that are not available count as no error.

    Returns:
        `[...]` nats.

    Raises:
        BadPredictionError: Shapes do not fit, values are not finite, or confidences do not sum to 1.

    Example:
        >>> truth, pred = np.zeros((2, 2)), np.array([[[0.0, 0], [0, 0]], [[1, 0], [1, 0]]])
        >>> round(float(neg_multi_log_likelihood(truth, pred, np.array([0.5, 0.5]), np.ones(2))), 4)
        0.3799
    """
    return -_log_sum(_mode_logs(ground_truth, pred, confidences, avails))


def rmse(ground_truth: AnyArray, pred: AnyArray, confidences: AnyArray, avails: AnyArray) -> AnyArray:
    """Return the error of a step that would have the same likelihood.

    Args:
        ground_truth: `[..., T, 2]` metres.
        pred: `[..., M, T, 2]` metres, of M modes.
        confidences: `[..., M]`, which sum to 1.
        avails: `[..., T]`, 0 or 1. Steps that are not available count as no error.

    Returns:
        `[...]` metres.

    Raises:
        BadPredictionError: Shapes do not fit, values are not finite, or confidences do not sum to 1.

    Example:
        >>> float(rmse(np.zeros((2, 2)), np.ones((1, 2, 2)), np.ones(1), np.ones(2)))
        1.4142135623730951
    """
    nll = neg_multi_log_likelihood(ground_truth, pred, confidences, avails)
    return np.sqrt(2 * nll / pred.shape[-2])


def prob_true_mode(ground_truth: AnyArray, pred: AnyArray, confidences: AnyArray, avails: AnyArray) -> AnyArray:
    """Return the probability of each mode to be the true one.

    Args:
        ground_truth: `[..., T, 2]` metres.
        pred: `[..., M, T, 2]` metres, of M modes.
        confidences: `[..., M]`, which sum to 1.
        avails: `[..., T]`, 0 or 1. Steps that are not available count as no error.

    Returns:
        `[..., M]` probabilities.

    Raises:
        BadPredictionError: Shapes do not fit, values are not finite, or confidences do not sum to 1.

    Example:
        >>> prob_true_mode(np.zeros((1, 2)), np.zeros((2, 1, 2)), np.array([0.25, 0.75]), np.ones(1)).round(6).tolist()
        [0.25, 0.75]
    """
    logs = _mode_logs(ground_truth, pred, confidences, avails)
    return np.exp(logs - _log_sum(logs)[..., None])


def time_displace(ground_truth: AnyArray, pred: AnyArray, confidences: AnyArray, avails: AnyArray) -> AnyArray:
    """Return the displacement at each step, averaged over modes by their probability to be the true one.

    Args:
        ground_truth: `[..., T, 2]` metres.
        pred: `[..., M, T, 2]` metres, of M modes.
        confidences: `[..., M]`, which sum to 1.
        avails: `[..., T]`, 0 or 1. Steps that are not available count as no error.

    Returns:
        `[..., T]` metres.

    Raises:
        BadPredictionError: Shapes do not fit, values are not finite, or confidences do not sum to 1.

    Example:
        >>> time_displace(np.zeros((2, 2)), np.array([[[3.0, 4], [0, 0]]]), np.ones(1), np.ones(2)).tolist()
        [5.0, 0.0]
    """
    probable = prob_true_mode(ground_truth, pred, confidences, avails)
    return (probable[..., None] * _displacement(ground_truth, pred, avails)).sum(axis=-2)


def average_displacement_error(
    ground_truth: AnyArray,
    pred: AnyArray,
    confidences: AnyArray,
    avails: AnyArray,
    mode: Mode = "oracle",
    masked: bool = False,
) -> AnyArray:
    """Return the displacement averaged over steps, of the best mode or of all modes.

    Args:
        ground_truth: `[..., T, 2]` metres.
        pred: `[..., M, T, 2]` metres, of M modes.
        confidences: `[..., M]`, which sum to 1.
        avails: `[..., T]`, 0 or 1. Steps that are not available count as no error.
        mode: `"oracle"` (the default) for the best mode, `"mean"` for the mean of all.
        masked: Whether the sum is divided by the number of available steps; the result is 0 without one. The default is
            False: by all steps, as in l5kit.

    Returns:
        `[...]` metres.

    Raises:
        BadPredictionError: Shapes do not fit, values are not finite, confidences do not sum to 1, or `mode` is unknown.

    Example:
        >>> truth, pred = np.zeros((2, 2)), np.array([[[3.0, 4], [0, 0]]])
        >>> float(average_displacement_error(truth, pred, np.ones(1), np.array([1, 0])))
        2.5
        >>> float(average_displacement_error(truth, pred, np.ones(1), np.array([1, 0]), masked=True))
        5.0
    """
    _check(ground_truth, pred, confidences, avails)
    total = _displacement(ground_truth, pred, avails).sum(axis=-1)
    steps = np.maximum(np.count_nonzero(avails, axis=-1), 1)[..., None] if masked else pred.shape[-2]
    return _over_modes(total / steps, mode)


def final_displacement_error(
    ground_truth: AnyArray, pred: AnyArray, confidences: AnyArray, avails: AnyArray, mode: Mode = "oracle"
) -> AnyArray:
    """Return the displacement at the last step, of the best mode or averaged over all modes.

    Args:
        ground_truth: `[..., T, 2]` metres.
        pred: `[..., M, T, 2]` metres, of M modes.
        confidences: `[..., M]`, which sum to 1.
        avails: `[..., T]`, 0 or 1. Steps that are not available count as no error.
        mode: `"oracle"` (the default) for the best mode, `"mean"` for the mean of all.

    Returns:
        `[...]` metres.

    Raises:
        BadPredictionError: Shapes do not fit, values are not finite, confidences do not sum to 1, or `mode` is unknown.

    Example:
        >>> float(final_displacement_error(np.zeros((1, 2)), np.array([[[3.0, 4]]]), np.ones(1), np.ones(1)))
        5.0
    """
    _check(ground_truth, pred, confidences, avails)
    return _over_modes(_displacement(ground_truth, pred, avails)[..., -1], mode)


def displacement_at(
    ground_truth: AnyArray,
    pred: AnyArray,
    confidences: AnyArray,
    avails: AnyArray,
    horizons: Sequence[float] = (1.0, 3.0, 5.0),
    step_time: float = 0.1,
    mode: Mode = "oracle",
) -> dict[str, AnyArray]:
    """Return the average and the final displacement error up to each of some horizons.

    Each error is averaged over the samples whose step at the horizon is available; it is NaN without any.

    Args:
        ground_truth: `[..., T, 2]` metres.
        pred: `[..., M, T, 2]` metres, of M modes.
        confidences: `[..., M]`, which sum to 1.
        avails: `[..., T]`, 0 or 1.
        horizons: Seconds. The default is 1, 3 and 5.
        step_time: Seconds from a step to the next. The default is 0.1.
        mode: `"oracle"` (the default) for the best mode, `"mean"` for the mean of all.

    Returns:
        Metres by name: `ade@1s`, `fde@1s` and so on.

    Raises:
        BadPredictionError: A horizon is beyond the predictions, shapes do not fit, values are not finite, confidences
            do not sum to 1, or `mode` is unknown.

    Example:
        >>> truth, pred = np.zeros((1, 10, 2)), np.ones((1, 1, 10, 2))
        >>> errors = displacement_at(truth, pred, np.ones((1, 1)), np.ones((1, 10)), [1])
        >>> {name: round(float(error), 3) for name, error in errors.items()}
        {'ade@1s': 1.414, 'fde@1s': 1.414}
    """
    _check(ground_truth, pred, confidences, avails)
    far = _displacement(ground_truth, pred, avails)
    errors_by_name: dict[str, AnyArray] = {}
    for horizon in horizons:
        steps = round(horizon / step_time)
        if not 1 <= steps <= pred.shape[-2]:
            raise BadPredictionError(f"expected horizons of 1 to {pred.shape[-2]} steps, got {horizon} s")
        there = np.asarray(avails)[..., steps - 1] > 0
        counts = np.maximum(np.count_nonzero(avails[..., :steps], axis=-1), 1)[..., None]
        errors = {"ade": far[..., :steps].sum(axis=-1) / counts, "fde": far[..., steps - 1]}
        for name, error in errors.items():
            value = _over_modes(error, mode)[there]
            errors_by_name[f"{name}@{horizon:g}s"] = value.mean() if value.size else np.array(np.nan)
    return errors_by_name


def distance_to_reference_trajectory(pred_centroid: AnyArray, ref_traj: AnyArray) -> AnyArray:
    """Return the distance from centroids to the nearest point of trajectories.

    Args:
        pred_centroid: `[n, 2]` metres.
        ref_traj: `[n, T, 2]` metres, or `[1, T, 2]`, one for all centroids.

    Returns:
        `[n]` metres.

    Raises:
        BadPredictionError: Shapes do not fit.

    Example:
        >>> distance_to_reference_trajectory(np.array([[0.0, 3]]), np.array([[[0.0, 0], [0, 2]]])).tolist()
        [1.0]
    """
    if pred_centroid.ndim != 2 or ref_traj.ndim != 3 or len(ref_traj) not in (1, len(pred_centroid)):
        raise BadPredictionError(
            f"expected centroids [n, 2] and trajectories [n, T, 2] or [1, T, 2], got "
            f"{pred_centroid.shape}, {ref_traj.shape}"
        )
    return np.linalg.norm(pred_centroid[:, None] - ref_traj, axis=-1).min(axis=1)


def _mode_logs(ground_truth: AnyArray, pred: AnyArray, confidences: AnyArray, avails: AnyArray) -> AnyArray:
    """`[..., M]` logarithms of confidence times likelihood."""
    _check(ground_truth, pred, confidences, avails)
    off = (ground_truth[..., None, :, :] - pred) * avails[..., None, :, None]
    with np.errstate(divide="ignore"):  # no confidence is no likelihood: minus infinity
        return np.log(confidences) - 0.5 * (off * off).sum(axis=(-1, -2))


def _log_sum(logs: AnyArray) -> AnyArray:
    """`[...]` the logarithm of the sum of exponentials, without overflow."""
    most = logs.max(axis=-1, keepdims=True)
    return np.log(np.exp(logs - most).sum(axis=-1)) + most[..., 0]


def _displacement(ground_truth: AnyArray, pred: AnyArray, avails: AnyArray) -> AnyArray:
    """`[..., M, T]` metres, 0 where a step is not available."""
    off = (ground_truth[..., None, :, :] - pred) * avails[..., None, :, None]
    return np.sqrt((off * off).sum(axis=-1))


def _over_modes(error: AnyArray, mode: Mode) -> AnyArray:
    if mode not in ("oracle", "mean"):
        raise BadPredictionError(f"expected mode 'oracle' or 'mean', got {mode!r}")
    return error.min(axis=-1) if mode == "oracle" else error.mean(axis=-1)


def _check(ground_truth: AnyArray, pred: AnyArray, confidences: AnyArray, avails: AnyArray) -> None:
    samples, (modes, steps, axes) = pred.shape[:-3], pred.shape[-3:] if pred.ndim >= 3 else (0, 0, 0)
    wanted = (*samples, steps, axes), (*samples, modes), (*samples, steps)
    got = ground_truth.shape, confidences.shape, avails.shape
    if pred.ndim < 3 or got != wanted:
        raise BadPredictionError(
            "expected ground_truth [..., T, 2], pred [..., M, T, 2], confidences [..., M] and avails [..., T], got "
            f"{ground_truth.shape}, {pred.shape}, {confidences.shape} and {avails.shape}"
        )
    for name, array in (("ground_truth", ground_truth), ("pred", pred), ("confidences", confidences)):
        if not np.isfinite(array).all():
            raise BadPredictionError(f"expected finite numbers in {name}, got others")
    if not np.isfinite(avails).all() or not np.allclose(confidences.sum(axis=-1), 1):
        raise BadPredictionError("expected confidences that add up to 1, and finite avails, got others")
