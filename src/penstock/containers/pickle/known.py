"""Values of ours for the classes that experience data is made of: spaces, colour spaces, trajectories, times.

The fields stand in for the fields of the classes named in the data; nothing of theirs is imported or called. Of
Python's library, `deque` and `defaultdict` become lists and dicts; dates and times are themselves.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from penstock.containers.pickle.machine import Machine, Pending, Symbol, brief
from penstock.core.arrays import AnyArray
from penstock.core.narrowing import is_array, is_dict, is_dtype, is_integer, is_listed, is_tuple
from penstock.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Text, Tuple
from penstock.errors import SpecError


class ColorSpace(Enum):
    """Meaning of the channels of image observations."""

    RGB = "RGB"
    GRAY = "GRAY"


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """One demonstration as it was pickled: `T` actions, `T + 1` observations.

    `acts`, `[T, ...]` array; `obs`, an array or a list of dicts; `rews` and `infos`, `T` of each or None;
    `terminal`, whether the environment ended it, None where the file does not say.  Fields are as stored, unchecked.
    """

    acts: Any
    obs: Any
    rews: Any = None
    infos: Any = None
    terminal: bool | None = None


def _named_tuple(m: Machine, _: Symbol, args: tuple[Any, ...]) -> Trajectory:
    """The named tuples of MAGICAL and of early imitation: (acts, obs, rews, infos)."""
    if len(args) != 4:
        raise m.unsafe(f"expected the four fields (acts, obs, rews, infos) of a trajectory, got {len(args)}")
    return Trajectory(*args)


def _empty(m: Machine, symbol: Symbol, args: tuple[Any, ...]) -> Pending:
    """An object that is made empty and gets its `__dict__` as a state."""
    if args:
        raise m.unsafe(f"expected {symbol} without arguments, got {len(args)}")
    return Pending(symbol)


def _finish_trajectory(m: Machine, _: Any, state: Any) -> Trajectory:
    fields = {"acts", "obs", "rews", "infos", "terminal"}
    if not is_dict(state) or not {"acts", "obs"} <= state.keys() <= fields:
        raise m.unsafe(f"expected acts, obs and perhaps rews, infos and terminal of a trajectory, got {_keys(state)}")
    if type(state.get("terminal")) not in (bool, type(None)):
        raise m.unsafe(f"expected whether a trajectory is terminal, got {brief(state['terminal'])}")
    return Trajectory(**state)


def _finish_attributes(m: Machine, _: Any, state: Any) -> dict[Any, Any]:
    """The attributes of an object that is nothing more than these."""
    if not is_dict(state):
        raise m.unsafe(f"expected attributes by their names, got {brief(state)}")
    return state


def _color_space(m: Machine, args: tuple[Any, ...]) -> ColorSpace:
    if len(args) == 1 and type(args[0]) is str and args[0] in ("RGB", "GRAY"):
        return ColorSpace(args[0])
    raise m.unsafe(f"expected a colour space, RGB or GRAY, got {brief(args[0] if args else args)}")


def _inflate(m: Machine, args: tuple[Any, ...]) -> Space:
    """`_inflate_object(space class, keyword arguments)`, as il-representations stores spaces."""
    match args:
        case (Symbol(finish=finish) as symbol, state) if (
            symbol in SPACE_SYMBOLS and finish is not None and is_dict(state)
        ):
            return finish(m, None, state)
        case _:
            raise m.unsafe(f"expected a space and its parts, got {', '.join(brief(part) for part in args[:4])}")


def _space(build: Callable[[Machine, Mapping[str, Any]], Space]) -> Callable[[Machine, Any, Any], Space]:
    """A BUILD that reads a space from the `__dict__` of Gym's or Gymnasium's."""

    def finish(m: Machine, _: Any, state: Any) -> Space:
        if not is_dict(state):
            raise m.unsafe(f"expected the fields of a space, got {brief(state)}")
        try:
            return build(m, state)
        except (KeyError, SpecError) as error:
            raise m.unsafe(f"expected the fields of a space, got {_keys(state)}: {str(error)[:200]}") from error

    return finish


def _box(m: Machine, state: Mapping[str, Any]) -> Space:
    low, high = (_bounds(m, state[name]) for name in ("low", "high"))
    dtype = state.get("dtype", low.dtype)
    if not is_dtype(dtype) or not low.dtype == high.dtype == dtype:
        raise m.unsafe(f"expected bounds of the dtype of their box, got {low.dtype}, {high.dtype} and {brief(dtype)}")
    return Box(low, high, dtype)


def _discrete(m: Machine, state: Mapping[str, Any]) -> Space:
    n, start = _integer(m, state["n"]), _integer(m, state.get("start", 0))
    if n < 1:
        raise m.unsafe(f"expected at least one value of a discrete space, got {n}")
    return Discrete(n, start, _dtype_of(state))


def _multi_discrete(m: Machine, state: Mapping[str, Any]) -> Space:
    nvec, start = _bounds(m, state["nvec"]), state.get("start")
    bounds = nvec if start is None else _bounds(m, start)
    if nvec.dtype.kind not in "iu" or bounds.dtype.kind not in "iu":
        raise m.unsafe(f"expected integers for a space of them, got {nvec.dtype} and {bounds.dtype}")
    return MultiDiscrete(nvec, None if start is None else bounds, _dtype_of(state))


def _multi_binary(m: Machine, state: Mapping[str, Any]) -> Space:
    n = state["n"]
    if is_tuple(n) and len(n) <= 32:
        return MultiBinary(tuple(_integer(m, size) for size in n))
    return MultiBinary(_integer(m, n))


def _text(m: Machine, state: Mapping[str, Any]) -> Space:
    charset = state["_char_str"]
    if type(charset) is not str:
        raise m.unsafe(f"expected characters of a text space, got {brief(charset)}")
    return Text(_integer(m, state["max_length"]), _integer(m, state["min_length"]), charset)


def _tuple(m: Machine, state: Mapping[str, Any]) -> Space:
    spaces = state["spaces"]
    if type(spaces) not in (tuple, list) or not all(isinstance(space, Space) for space in spaces):
        raise m.unsafe(f"expected spaces in a tuple, got {brief(spaces)}")
    m.charge(8 * len(spaces))
    return Tuple(tuple(spaces))


def _dict(m: Machine, state: Mapping[str, Any]) -> Space:
    spaces = state["spaces"]
    if not is_dict(spaces) or not all(type(k) is str and isinstance(v, Space) for k, v in spaces.items()):
        raise m.unsafe(f"expected spaces by their names, got {brief(spaces)}")
    m.charge(32 * len(spaces))
    return Dict(dict(spaces))


def _bounds(m: Machine, value: Any) -> AnyArray:
    if not is_array(value) or value.dtype.kind not in "biuf":
        raise m.unsafe(f"expected an array of numbers for a bound, got {brief(value)}")
    m.charge(value.nbytes)
    return value


def _integer(m: Machine, value: Any) -> int:
    if not is_integer(value) or not -(1 << 63) <= int(value) < 1 << 63:
        raise m.unsafe(f"expected an integer of 64 bits, got {brief(value)}")
    return int(value)


def _dtype_of(state: Mapping[str, Any]) -> np.dtype[Any]:
    dtype = state.get("dtype")
    return dtype if is_dtype(dtype) and dtype.kind in "iu" else np.dtype("int64")


def _keys(state: Any) -> str:
    return f"{', '.join(brief(key) for key in list(state)[:12])}" if is_dict(state) else brief(state)


_SPACES = {
    "Box": (("box",), _box),
    "Discrete": (("discrete",), _discrete),
    "MultiDiscrete": (("multi_discrete",), _multi_discrete),
    "MultiBinary": (("multi_binary",), _multi_binary),
    "Text": (("text",), _text),
    "Tuple": (("tuple", "tuple_space"), _tuple),
    "Dict": (("dict", "dict_space"), _dict),
}
SPACE_SYMBOLS = tuple(
    Symbol(f"{package}.spaces.{module}", name, new=_empty, finish=_space(build))
    for package in ("gym", "gymnasium")
    for name, (modules, build) in _SPACES.items()
    for module in modules
)
_NAMED_TUPLES = (
    ("milbench.baselines.saved_trajectories", "MILBenchTrajectory"),
    ("magical.saved_trajectories", "MAGICALTrajectory"),
    ("imitation.util.rollout", "Trajectory"),
)
_RECORDS = (("imitation.data.types", "Trajectory"), ("imitation.data.types", "TrajectoryWithRew"))
_HOLDERS = (("rlbench.demo", "Demo"), ("rlbench.backend.observation", "Observation"))
KNOWN_SYMBOLS = (
    *SPACE_SYMBOLS,
    *(Symbol(module, name, new=_named_tuple) for module, name in _NAMED_TUPLES),
    *(Symbol(module, name, new=_empty, finish=_finish_trajectory) for module, name in _RECORDS),
    *(Symbol(module, name, new=_empty, finish=_finish_attributes) for module, name in _HOLDERS),
    Symbol("imitation.augment.color", "ColorSpace", call=_color_space),
    Symbol("il_representations.envs.utils", "_inflate_object", call=_inflate),
)


def _deque(m: Machine, args: tuple[Any, ...]) -> list[Any]:
    """Empty, with its items to follow, or with them."""
    match args:
        case ():
            return []
        case (items, *rest) if is_listed(items) and len(rest) <= 1 and all(type(n) in (int, type(None)) for n in rest):
            m.charge(8 * len(items))
            return list(items)
        case _:
            raise m.unsafe(f"expected the items of a deque, got {', '.join(map(brief, args[:3]))}")


def _defaultdict(m: Machine, args: tuple[Any, ...]) -> dict[Any, Any]:
    """Empty, with its items to follow. What makes missing values is not called."""
    if len(args) > 1 or not all(arg is None or isinstance(arg, Symbol) for arg in args):
        raise m.unsafe(f"expected a defaultdict without items, got {', '.join(map(brief, args[:3]))}")
    return {}


def _date(m: Machine, args: tuple[Any, ...]) -> datetime.date:
    match args:
        case (bytes() as raw,) if len(raw) == 4:
            return _made(m, datetime.date, int.from_bytes(raw[:2], "big"), raw[2], raw[3])
        case _:
            raise m.unsafe("expected the four bytes of a date")


def _datetime(m: Machine, args: tuple[Any, ...]) -> datetime.datetime:
    match args:
        case (bytes() as raw, *rest) if len(raw) == 10 and len(rest) <= 1:
            year, microsecond = int.from_bytes(raw[:2], "big"), int.from_bytes(raw[7:], "big")
            zone = _zone(m, rest)
            return _made(m, datetime.datetime, year, raw[2] & 127, *raw[3:7], microsecond, zone, fold=raw[2] >> 7)
        case _:
            raise m.unsafe("expected the ten bytes of a date and time, and perhaps a time zone")


def _time(m: Machine, args: tuple[Any, ...]) -> datetime.time:
    match args:
        case (bytes() as raw, *rest) if len(raw) == 6 and len(rest) <= 1:
            microsecond = int.from_bytes(raw[3:], "big")
            return _made(m, datetime.time, raw[0] & 127, *raw[1:3], microsecond, _zone(m, rest), fold=raw[0] >> 7)
        case _:
            raise m.unsafe("expected the six bytes of a time, and perhaps a time zone")


def _zone(m: Machine, zones: list[Any]) -> datetime.timezone | None:
    if zones and type(zones[0]) is not datetime.timezone:
        raise m.unsafe(f"expected a fixed time zone, got {brief(zones[0])}")
    return zones[0] if zones else None


def _timedelta(m: Machine, args: tuple[Any, ...]) -> datetime.timedelta:
    if len(args) != 3 or not all(type(n) is int for n in args):
        raise m.unsafe("expected days, seconds and microseconds")
    return _made(m, datetime.timedelta, *args)


def _timezone(m: Machine, args: tuple[Any, ...]) -> datetime.timezone:
    match args:
        case (datetime.timedelta(), *rest) if len(rest) <= 1 and all(type(name) is str for name in rest):
            return _made(m, datetime.timezone, *args)
        case _:
            raise m.unsafe("expected the distance from UTC, and perhaps a name")


def _made(m: Machine, kind: Any, *args: Any, **options: Any) -> Any:
    try:
        return kind(*args, **options)
    except (ValueError, OverflowError) as error:
        raise m.error(f"expected a {kind.__name__}: {error}") from error


TIMES = frozenset((datetime.datetime, datetime.date, datetime.time, datetime.timedelta, datetime.timezone))
LIBRARY_SYMBOLS = (
    Symbol("collections", "deque", call=_deque),
    Symbol("collections", "defaultdict", call=_defaultdict),
    Symbol("datetime", "datetime", call=_datetime),
    Symbol("datetime", "date", call=_date),
    Symbol("datetime", "time", call=_time),
    Symbol("datetime", "timedelta", call=_timedelta),
    Symbol("datetime", "timezone", call=_timezone),
    *(
        Symbol(module, name)
        for module in ("builtins", "__builtin__")
        for name in ("list", "dict", "int", "float", "str", "bool")
    ),
)
