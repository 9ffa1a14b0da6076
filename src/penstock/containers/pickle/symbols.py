"""The closed table: every name that a pickle may use, and what it stands for here."""

from __future__ import annotations

from typing import Any

from penstock.containers.pickle.arrays import ARRAY_SYMBOLS, TENSOR_SYMBOLS
from penstock.containers.pickle.known import KNOWN_SYMBOLS, LIBRARY_SYMBOLS
from penstock.containers.pickle.machine import WAY_OUT, Machine, Pending, Symbol, add_items, brief, set_items
from penstock.core.narrowing import is_dict, is_list, is_listed, is_tuple


def find(m: Machine, module: str, name: str) -> Symbol:
    symbol = SYMBOLS.get((module, name))
    if symbol is None:
        allowed = f"expected plain values, NumPy arrays or one of {len(SYMBOLS)} known names (numpy, collections, "
        allowed += "datetime, torch, gym, gymnasium, imitation, magical, il_representations, rlbench)"
        raise m.unsafe(f"{allowed}, got {brief(f'{module}.{name}')}; nothing was imported or run; {WAY_OUT}")
    m.names.add(symbol)
    return symbol


def _encode(m: Machine, args: tuple[Any, ...]) -> bytes:
    """`_codecs.encode(text, "latin1")`: how protocols before 3 write bytes."""
    match args:
        case (str() as text, str() as coding) if coding in ("latin1", "latin-1"):
            m.charge(len(text))
            try:
                return text.encode("latin-1")
            except UnicodeEncodeError as error:
                raise m.error(f"expected bytes written as Latin-1, got U+{ord(text[error.start]):04X}") from None
        case _:
            raise m.unsafe("expected a text and 'latin1' for the bytes that it stands for")


def _ordered_dict(m: Machine, args: tuple[Any, ...]) -> dict[Any, Any]:
    """An empty one whose items follow, or as Python 2 writes it, with a list of pairs."""
    if not args:
        return {}
    pairs = args[0]
    if len(args) > 1 or not is_list(pairs) or not all(is_listed(p) and len(p) == 2 for p in pairs):
        raise m.unsafe("expected nothing or a list of pairs for an ordered dict")
    m.charge(8 * len(pairs))
    mapping: dict[Any, Any] = {}
    set_items(m, mapping, [part for pair in pairs for part in pair])
    return mapping


def _set(m: Machine, args: tuple[Any, ...]) -> set[Any]:
    members: set[Any] = set()
    match args:
        case ():
            pass
        case (items,) if is_list(items):
            m.charge(8 * len(items))
            add_items(m, members, items)
        case _:
            raise m.unsafe("expected a list of what a set contains")
    return members


def _frozenset(m: Machine, args: tuple[Any, ...]) -> frozenset[Any]:
    return frozenset(_set(m, args))


def _bytes(m: Machine, args: tuple[Any, ...]) -> bytes:
    if args:
        raise m.unsafe("expected bytes() without arguments")
    return b""


def _bytearray(m: Machine, args: tuple[Any, ...]) -> bytearray:
    match args:
        case ():
            return bytearray()
        case (bytes() as content,):
            pass
        case (str(), str()):
            content = _encode(m, args)
        case _:
            raise m.unsafe("expected the content of a bytearray")
    m.charge(len(content))
    return bytearray(content)


def _complex(m: Machine, args: tuple[Any, ...]) -> complex:
    match args:
        case (float() as real, float() as imaginary) if type(real) is type(imaginary) is float:
            return complex(real, imaginary)
        case _:
            raise m.unsafe("expected two floats for a complex number")


def _reconstructor(m: Machine, args: tuple[Any, ...]) -> Any:
    """`copyreg._reconstructor(class, base, content)`: how protocols 0 and 1 make objects of known classes."""
    match args:
        case (Symbol(new=new) as symbol, Symbol() as base, content) if new is not None:
            if base is OBJECT and content is None:
                return new(m, symbol, ())
            if base is TUPLE and is_tuple(content):
                return new(m, symbol, content)
            raise m.unsafe(f"expected {symbol} to be made of nothing or of a tuple, got {base}")
        case _:
            raise m.unsafe(f"expected a known class to make an object of, got {', '.join(map(brief, args[:4]))}")


OBJECT = Symbol("builtins", "object")
TUPLE = Symbol("builtins", "tuple")


def _table() -> dict[tuple[str, str], Symbol]:
    plain = [Symbol("_codecs", "encode", call=_encode), Symbol("collections", "OrderedDict", call=_ordered_dict)]
    plain += [Symbol(module, "_reconstructor", call=_reconstructor) for module in ("copyreg", "copy_reg")]
    table = {(s.module, s.name): s for s in (*plain, *ARRAY_SYMBOLS, *KNOWN_SYMBOLS, *LIBRARY_SYMBOLS, *TENSOR_SYMBOLS)}
    builders = {
        "set": _set, "frozenset": _frozenset, "bytes": _bytes, "bytearray": _bytearray, "complex": _complex,
    }  # fmt: skip
    for module in ("builtins", "__builtin__"):
        table |= {(module, name): Symbol(module, name, call=call) for name, call in builders.items()}
        table |= {(module, "object"): OBJECT, (module, "tuple"): TUPLE}
    return table


SYMBOLS = _table()


def reduce(m: Machine, function: Any, args: Any) -> Any:
    """What REDUCE leaves: a symbol's value, or one that waits for its state."""
    if type(function) is not Symbol or not is_tuple(args):
        raise m.unsafe(f"expected a known name and its arguments, got {brief(function)} and {brief(args)}")
    if function.call is None:
        raise m.unsafe(f"expected a function, got {function}")
    return function.call(m, args)


def new_object(m: Machine, cls: Any, args: Any) -> Any:
    if type(cls) is not Symbol or cls.new is None or not is_tuple(args):
        raise m.unsafe(f"expected a known class and its arguments, got {brief(cls)} and {brief(args)}")
    return cls.new(m, cls, args)


def finish(m: Machine, target: Any, state: Any) -> Any:
    """What BUILD makes of an object that waits for its state; the memo gets it too."""
    if is_dict(target) and is_dict(state) and state.keys() <= {"_metadata"}:
        return target  # the versions of modules, which PyTorch adds to their values
    if type(target) is not Pending or target.slots is None or target.symbol.finish is None:
        raise m.unsafe(f"expected a state for an object that waits for one, got one for {brief(target)}")
    value = target.symbol.finish(m, target.args, state)
    for slot in target.slots:
        m.memo[slot] = value
    target.slots = None
    return value
