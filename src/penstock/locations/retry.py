"""Repeat requests that failed for a reason that may pass: waits grow twofold from one to the next, with jitter."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from penstock.errors import ArgumentError, DataError
from penstock.locations.objects import TransientError

R = TypeVar("R")

RETRY = ("max_retries", "retry_timeout")
"""The options of a store that say how often requests are repeated."""


@dataclass(frozen=True)
class Retry:
    """How often, how long and when requests are repeated. The defaults outlast an outage of 20 seconds."""

    max_retries: int = 10
    retry_timeout: float = 180.0
    first: float = 0.1
    longest: float = 10.0
    asked: float = 60.0

    def __call__(self, request: Callable[[], R], waiting: Callable[[float, TransientError], None] | None = None) -> R:
        """Return the result of the first try that succeeds."""
        begin = time.monotonic()
        number = 0
        while True:
            try:
                return request()
            except TransientError as error:
                waited = time.monotonic() - begin
                wait = self._wait(number, error.after)
                if number >= self.max_retries or waited + wait > self.retry_timeout:
                    raise _given_up(error, number + 1, waited) from None
                if waiting is not None:
                    waiting(waited, error)
            time.sleep(wait)
            number += 1

    def _wait(self, number: int, after: float) -> float:
        # The generator has its own seed: with the one of `random`, which training sets, all ranks would ask at once.
        jitter = min(self.first * 2**number, self.longest) * random.SystemRandom().uniform(0.5, 1.0)
        return jitter + min(after, self.asked)


def _given_up(error: TransientError, tries: int, waited: float) -> TransientError:
    if tries == 1:
        return error
    advice = "the storage options max_retries and retry_timeout allow more"
    return TransientError(f"{error}; tried {tries} times in {waited:.0f} s, {advice}", error.after)


def retry_of(options: Mapping[str, Any]) -> Retry:
    """Return how requests are repeated, by options or the environment (`PENSTOCK_MAX_RETRIES`, ...)."""
    retry = Retry()
    retries = number_option("max_retries", options, retry.max_retries)
    if retries != int(retries):
        raise ArgumentError(f"expected max_retries to be a whole number, got {retries}")
    timeout = number_option("retry_timeout", options, retry.retry_timeout)
    return replace(retry, max_retries=int(retries), retry_timeout=timeout)


def number_option(name: str, options: Mapping[str, Any], default: float) -> float:
    """Return a number of 0 or more: of an option, of the environment variable `PENSTOCK_<NAME>`, or the default."""
    variable = f"PENSTOCK_{name.upper()}"
    if name in options:
        value = options[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ArgumentError(f"expected the storage option {name} to be a number of 0 or more, got {value!r}")
        return float(value)
    text = os.environ.get(variable, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise DataError(f"expected the variable {variable} to be a number of 0 or more, got {text!r}")
    return value
