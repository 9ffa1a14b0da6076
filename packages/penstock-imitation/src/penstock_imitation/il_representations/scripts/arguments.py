"""The command line of both programs: `key=value`, as Sacred has it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from penstock.errors import DataError, suggestion
from penstock_imitation.il_representations.envs.config import Config, current

_PYTHON = {"True": "true", "False": "false", "None": "null"}  # as JSON has them


def parsed(arguments: Sequence[str], options: dict[str, Any]) -> tuple[Config, dict[str, Any]]:
    """Return the configuration and the program's `options` from arguments; a leading `with` is ignored."""
    mine, rest = dict(options), list[str]()
    for argument in arguments[1:] if arguments[:1] == ["with"] else arguments:
        name, given, text = argument.partition("=")
        if "." in name:
            rest.append(f"{name}{given}{_PYTHON.get(text, text)}")
        elif not given or name not in options:
            known = [*options, *(f"{part}.<key>" for part in Config.key_names())]
            raise DataError(f"unknown argument {argument!r}{suggestion(name, options)}; there are {', '.join(known)}")
        else:
            mine[name] = _value(text)
    return Config.from_args(rest, current()), mine


def _value(text: str) -> Any:
    """As Python writes True, False and None, or as JSON; else text."""
    try:
        return json.loads(_PYTHON.get(text, text))
    except ValueError:
        return text
