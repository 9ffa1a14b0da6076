"""What all parts of a configuration share: strict keys, checked values, and their forms as mapping, YAML and arguments.

A part is a frozen dataclass whose fields carry a `Check` in their metadata (`key` makes such a field).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from penstock.core.frozen import set_fields
from penstock.errors import DataError, FormatError, require, suggestion
from penstock.files import write_atomic

IGNORED = "__doc__"  # Sacred puts it among the keys of every ingredient


@dataclass(frozen=True)
class Check:
    """A condition on a value, in words and as a function."""

    expected: str
    holds: Callable[[Any], bool]


def key(default: Any, check: Check) -> Any:
    """A dataclass field with a check; a default that is a mapping is copied for each instance."""
    if isinstance(default, Mapping):
        return field(default_factory=lambda: plain(default), metadata={"check": check})
    return field(default=default, metadata={"check": check})


@dataclass(frozen=True)
class Section:
    """A part of a configuration. Abstract: its subclasses name themselves in `section` and have the keys."""

    section: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for each in fields(self):
            check, value = cast("Check", each.metadata["check"]), getattr(self, each.name)
            if not check.holds(value):
                raise DataError(f"expected {check.expected} for {self._place(each.name)}, got {value!r}")
            if isinstance(value, Mapping):  # a copy, so that the caller cannot change it
                set_fields(self, **{each.name: plain(value)})

    def __hash__(self) -> int:
        return hash((type(self), _frozen(self.to_mapping())))

    @classmethod
    def key_names(cls) -> tuple[str, ...]:
        """The names of all keys, in order."""
        return tuple(each.name for each in fields(cls))

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """From a plain mapping of some or all keys; the rest has its defaults. Sacred's `__doc__` is left out."""
        given = {name: value for name, value in cls._mapping(mapping).items() if name != IGNORED}
        for name in given:
            if name not in cls.key_names():
                raise DataError(cls._unknown(name))
        return cls(**given)

    def to_mapping(self) -> dict[str, Any]:
        """All keys and values as plain data that shares nothing with this object."""
        return {name: plain(getattr(self, name)) for name in self.key_names()}

    def updated(self, mapping: Mapping[str, Any]) -> Self:
        """A new one with the values of `mapping`, merged by `update`."""
        return self.from_mapping(update(self.to_mapping(), self._mapping(mapping)))

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> Self:
        """From a YAML file of some or all keys (an empty file: all defaults)."""
        value = _load_yaml(Path(path).read_text("utf-8"), path)
        if value is not None and not isinstance(value, Mapping):
            raise FormatError(f"expected a mapping of keys to values, got {type(value).__name__}", path=path)
        try:
            return cls.from_mapping(cast("Mapping[str, Any]", value or {}))
        except DataError as error:
            raise DataError(f"{error} - in {os.fspath(path)}") from None

    def to_yaml(self, path: str | os.PathLike[str]) -> None:
        """Write all keys to a YAML file, in order."""
        text = require("yaml", "config").safe_dump(self.to_mapping(), sort_keys=False, allow_unicode=True)
        write_atomic(path, text.encode())

    @classmethod
    def from_args(cls, args: Iterable[str], base: Self | None = None) -> Self:
        """From the command line: `key=value`, in a free-form table `key.name=value`; later ones win.

        A value is read as JSON if it is JSON, as YAML (extra `config`) if it starts like a YAML list, table or quoted
        text, and is text else. `base`, or the defaults, has the rest.
        """
        start = cls() if base is None else base
        for arg in args:
            path, separator, text = arg.partition("=")
            if not separator:
                raise DataError(f"expected arguments of the form key=value, got {arg!r}")
            start = start.updated(start._nested(path, _parse(text, arg)))
        return start

    def _nested(self, path: str, value: Any) -> dict[str, Any]:
        name, inside, rest = path.partition(".")
        if inside and name in self.key_names() and not isinstance(getattr(self, name), Mapping):
            raise DataError(f"expected {self._place(name)} without anything below it, got {path!r}")
        return {name: {rest: value} if inside else value}

    @classmethod
    def _mapping(cls, given: object) -> Mapping[str, Any]:
        if not isinstance(given, Mapping):
            raise DataError(f"expected a mapping of the keys of {cls.section or cls.__name__}, got {given!r}")
        return cast("Mapping[str, Any]", given)

    @classmethod
    def _place(cls, name: str) -> str:
        return f"{cls.section}.{name}" if cls.section else name

    @classmethod
    def _unknown(cls, name: object) -> str:
        known = cls.key_names()
        return f"unknown key {cls._place(str(name))!r}{suggestion(str(name), known)}; the keys are {', '.join(known)}"


def _frozen(value: Any) -> Any:
    """Equal, and hashed alike, for equal plain values."""
    if isinstance(value, Mapping):
        return frozenset((name, _frozen(inner)) for name, inner in cast("Mapping[Any, Any]", value).items())
    return tuple(map(_frozen, cast("list[Any]", value))) if isinstance(value, list) else value


def _parse(text: str, arg: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return _load_yaml(text, arg) if text[:1] in {"{", "[", "'", '"'} else text


def _load_yaml(text: str, source: object) -> Any:
    yaml = require("yaml", "config")

    class Strict(yaml.SafeLoader):  # plain values only, and no key twice
        pass

    def table(loader: Any, node: Any) -> dict[Any, Any]:
        names = [loader.construct_object(name, deep=True) for name, _ in node.value]
        if not all(isinstance(name, str) for name in names):
            raise FormatError(f"expected keys that are text, got {names!r}", path=source)
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise FormatError(f"expected every key once, got {twice[0]!r} twice", path=source)
        return {
            name: loader.construct_object(value, deep=True) for name, (_, value) in zip(names, node.value, strict=True)
        }

    Strict.add_constructor("tag:yaml.org,2002:map", table)
    try:
        return yaml.load(text, Loader=Strict)
    except yaml.YAMLError as error:
        raise FormatError(f"expected YAML: {error}", path=source) from error


def update(defaults: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two configurations: where both have a mapping, their keys are merged, else `config` wins.

    Lists are replaced as a whole, None replaces earlier values, and new keys are added (the dataclasses check which
    keys exist). Neither argument is changed, and the result shares nothing with them.

    Args:
        defaults: Mapping with the default values.
        config: Mapping with the values that win.

    Returns:
        The merged configuration.

    Example:
        >>> update({"a": {"x": 1, "y": 2}, "b": [1, 2]}, {"a": {"y": 3}, "b": [4]})
        {'a': {'x': 1, 'y': 3}, 'b': [4]}
    """
    merged: dict[str, Any] = plain(defaults)
    for key, value in config.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = update(cast("Mapping[str, Any]", before), cast("Mapping[str, Any]", value))
        else:
            merged[key] = plain(value)
    return merged


def plain(value: Any) -> Any:
    """A copy in which all mappings are dicts, and all lists and tuples lists; other values are taken as they are."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in cast("list[Any]", value)]
    return value
