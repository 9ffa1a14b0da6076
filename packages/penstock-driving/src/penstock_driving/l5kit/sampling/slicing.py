"""Slices of the past and the future of a frame."""

from __future__ import annotations

from penstock.errors import PenstockError


class StepError(PenstockError, IndexError, ValueError):
    """A step between frames that is below 1."""


def get_history_slice(
    frame_index: int, history_num_states: int, history_step_size: int, include_current_state: bool = False
) -> slice:
    """Return the slice of frames before `frame_index`, back in time, every `history_step_size`.

    It has at most `history_num_states` frames, fewer at the start of the scene; with `include_current_state` one more,
    the current frame first.
    """
    step = _checked(history_step_size)
    latest = frame_index - (0 if include_current_state else step)
    if latest < 0:
        return slice(0, 0, -step)
    before_first = frame_index - history_num_states * step - 1
    if before_first >= 0:
        return slice(latest, before_first, -step)
    # Back to the start: to frame 0 if it is one of the steps. A stop of -1 would count from the end.
    return slice(latest, None if frame_index % step == 0 else 0, -step)


def get_future_slice(frame_index: int, future_num_states: int, future_step_size: int) -> slice:
    """Return the slice of `future_num_states` frames after `frame_index`, every `future_step_size`."""
    step = _checked(future_step_size)
    return slice(frame_index + step, frame_index + future_num_states * step + 1, step)


def _checked(step: int) -> int:
    if step < 1:
        raise StepError(f"expected a step of 1 frame or more, got {step}")
    return step
