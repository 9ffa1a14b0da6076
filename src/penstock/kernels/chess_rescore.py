# pyright: reportMissingImports=false, reportCallIssue=false
"""The compiled kernels of rescoring chess games (numba, GIL released, cached on disk).

What replays a game goes square by square, and so is compiled from its definition; what scans whole policies is written
out here. Definitions: `chess_trace_reference`, `chess_rescore_reference`.
"""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

import numba
import numpy as np

from penstock.kernels import chess_rescore_reference, chess_trace_reference
from penstock.kernels.chess_rescore_reference import FIELDS, POLICY, SUM_ABOVE, SUM_BELOW
from penstock.kernels.chess_trace_reference import FAULTS

_jit: Any = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy")
_any_order: Any = numba.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy", fastmath={"reassoc"})


def _compiled(*modules: ModuleType) -> dict[str, Any]:
    """The functions of these modules, compiled, and each calling the others as compiled."""
    scope: dict[str, Any] = {}
    for module in modules:
        scope.update(vars(module))
    for name, value in list(scope.items()):
        if isinstance(value, FunctionType) and value.__module__ in {module.__name__ for module in modules}:
            scope[name] = _jit(FunctionType(value.__code__, scope, name))
    return scope


_COMPILED = _compiled(chess_trace_reference, chess_rescore_reference)
trace: Any = _COMPILED["trace"]
called_for: Any = _COMPILED["called_for"]
short_term: Any = _COMPILED["short_term"]
deblunder: Any = _COMPILED["deblunder"]
encode_planes: Any = _COMPILED["encode_planes"]
encode_rest: Any = _COMPILED["encode_rest"]
sharpen: Any = _COMPILED["sharpen"]

_FORMAT, _ROOT, _BEST, _PLAYED, _ORIG, _RESULT, _PLIES, _CASTLING, _SIDE, _RULE50 = (1 << k for k in range(10))
_PROBABILITY, _SUM, _INDEX, _NO_BEST, _NO_PLAYED = (1 << k for k in range(10, 15))
_FRACTION = 1 << FAULTS.index("result_fraction")
_ROOT_Q, _BEST_Q, _ROOT_D, _BEST_D, _ROOT_M, _BEST_M = (FIELDS[name] for name in list(FIELDS)[:6])
_LEFT, _RESULT_Q, _RESULT_D, _PLAYED_Q, _PLAYED_D, _PLAYED_M, _ORIG_Q, _ORIG_D, _ORIG_M = list(FIELDS.values())[6:]

_ROUNDED = 1e-4  # more than float32 loses in a sum of all moves


@_jit
def _bad_pair(q: Any, d: Any) -> Any:
    return not (abs(q) <= 1) or not (d >= 0 and d <= 1)


@_any_order
def _bad_policy(policy: Any) -> Any:
    """Without branches, so that several moves are looked at in one step."""
    total, bad = np.float32(0), np.int32(0)
    for j in range(POLICY):
        p = policy[j]
        bad |= np.int32(((p < 0) & (p != -1)) | (p > 1))
        total += p if p >= 0 else np.float32(0)
    faults = np.int64(0) if bad == 0 else _PROBABILITY
    if SUM_BELOW + _ROUNDED <= total <= SUM_ABOVE - _ROUNDED:
        return faults
    exact = np.float64(0)
    for j in range(POLICY):
        exact += policy[j] if policy[j] >= 0 else np.float32(0)
    return faults if SUM_BELOW <= exact <= SUM_ABOVE else faults | _SUM


@_jit
def _bad_values(word: Any, searched: Any) -> Any:
    faults = np.int64(0)
    faults |= _ROOT if _bad_pair(word[_ROOT_Q], word[_ROOT_D]) else 0
    faults |= _BEST if _bad_pair(word[_BEST_Q], word[_BEST_D]) else 0
    faults |= _RESULT if _bad_pair(word[_RESULT_Q], word[_RESULT_D]) else 0
    faults |= _PLAYED if searched and _bad_pair(word[_PLAYED_Q], word[_PLAYED_D]) else 0
    faults |= _ORIG if abs(word[_ORIG_Q]) > 1 or word[_ORIG_D] < 0 or word[_ORIG_D] > 1 else 0
    result = word[_RESULT_Q]
    faults |= 0 if result in (-1, 0, 1) else _FRACTION
    fine = word[_ROOT_M] >= 0 and word[_BEST_M] >= 0 and word[_LEFT] >= 0 and (word[_PLAYED_M] >= 0 or not searched)
    return faults | (0 if fine and not word[_ORIG_M] < 0 else _PLIES)


@_jit
def _bad_position(row: Any) -> Any:
    form = np.int64(row[4]) if row[5] == 0 and row[6] == 0 and row[7] == 0 else np.int64(0)
    large = row[5] != 0 or row[6] != 0 or row[7] != 0
    faults = np.int64(0 if 1 <= form <= 5 or 132 <= form <= 133 else _FORMAT)
    for k in range(4):
        told = np.int64(row[8272 + k])
        faults |= _CASTLING if (told > 1 if form == 1 else told & (told - 1)) else 0
    side = np.int64(row[8276])
    faults |= _SIDE if ((side & (side - 1)) != 0 if form >= 3 or large else side > 1) else 0
    return faults | (_RULE50 if row[8277] > 100 else 0)


@_jit
def frame_faults(rows: Any, words: Any, faults: Any) -> Any:
    """See `chess_rescore_reference.frame_faults`."""
    for i in range(len(rows)):
        row, policy = rows[i], words[i, 2 : 2 + POLICY]
        searched = row[8340] != 0 or row[8341] != 0 or row[8342] != 0 or row[8343] != 0
        found = _bad_position(row) | _bad_values(words[i], searched) | _bad_policy(policy)
        if searched:
            for k in range(2):
                place = np.int64(row[8344 + 2 * k]) + 256 * np.int64(row[8345 + 2 * k])
                if place > POLICY:
                    found |= _INDEX
                elif place < POLICY and not policy[place] >= 0:
                    found |= _NO_PLAYED if k == 0 else _NO_BEST
        faults[i] |= found
