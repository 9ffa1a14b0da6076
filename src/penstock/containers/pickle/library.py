"""Values of Python's library: `deque` and `defaultdict` become lists and dicts; dates and times are themselves."""

from __future__ import annotations

import datetime
from typing import Any

from penstock.containers.pickle.machine import Machine, Symbol, brief
from penstock.core.narrowing import is_listed


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
