"""Environments of datasets: their specs as JSON, and building them again without running what a file names."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, WrapperSpec

from penstock.core.narrowing import is_listed, is_mapping
from penstock.errors import DataError, FormatError, SpecError, UnsafeDataError, require
from penstock.formats.minari.metadata import VERSION

Env = gymnasium.Env[Any, Any]
EnvLike = str | Env | EnvSpec

# Any other wrapper of a dataset needs trust: wrappers of other packages run code that a file chose, and some of
# gymnasium's write files to a folder that a file chose (`RecordVideo`). None of these takes a path or a function.
_SAFE_WRAPPERS = frozenset(
    (
        "AtariPreprocessing", "Autoreset", "ClipAction", "ClipReward", "DelayObservation", "DiscretizeAction",
        "DiscretizeObservation", "DtypeObservation", "FilterObservation", "FlattenObservation", "FrameStackObservation",
        "GrayscaleObservation", "MaxAndSkipObservation", "NormalizeObservation", "NormalizeReward", "OrderEnforcing",
        "PassiveEnvChecker", "RecordEpisodeStatistics", "RepeatAction", "RescaleAction", "RescaleObservation",
        "ReshapeObservation", "ResizeObservation", "StickyAction", "TimeAwareObservation", "TimeLimit",
    )
)  # fmt: skip


def spec_of(env: EnvLike | None, name: str) -> EnvSpec | None:
    """Return the spec of an environment or id, or the spec itself. Raises `SpecError` for anything else."""
    match env:
        case None:
            return None
        case str():
            return gymnasium.spec(env)
        case EnvSpec():
            return env
        case gymnasium.Env():
            return env.spec
        case _:
            raise SpecError(
                f"Unsupported env type: expected `{name}` as str, EnvSpec or gym.Env, got {type(env).__name__}"
            )


def spec_to_json(spec: EnvSpec | None) -> str | None:
    """Return the JSON of a spec; an entry point that is a class or function is written by its name.

    Warns and gives None for a spec that has no JSON (an entry point that is a lambda, arguments that are objects):
    the environment can then not be recovered from the dataset.

    >>> "CartPole" in (spec_to_json(gymnasium.spec("CartPole-v1")) or "")
    True
    """
    if spec is None:
        return None
    named = dataclasses.replace(spec, entry_point=entry_point_name(spec), vector_entry_point=_vector_name(spec))
    try:
        return named.to_json()
    except (TypeError, ValueError) as error:
        warnings.warn(
            f"env_spec is not serializable ({error}); the environment cannot be recovered from the dataset",
            stacklevel=2,
        )
        return None


def entry_point_name(spec: EnvSpec) -> Any:
    """Return the entry point as "module:name" if it can be imported by that name, else the object itself."""
    point = spec.entry_point
    if point is None or isinstance(point, str):
        return point
    name = str(getattr(point, "__qualname__", "<"))
    return point if "<" in name else f"{getattr(point, '__module__', '')}:{name}"


def _vector_name(spec: EnvSpec) -> Any:
    return spec.vector_entry_point if isinstance(spec.vector_entry_point, str) else None


def spec_from_json(stored: Any, where: str) -> EnvSpec | None:
    """Read a stored spec, of this or an older gymnasium; unknown fields are left out. Nothing is imported or made.

    Raises `FormatError` for text that is not a spec.

    >>> spec_from_json('{"id": "CartPole-v1", "autoreset": false, "additional_wrappers": []}', "env_spec").id
    'CartPole-v1'
    """
    if stored is None:
        return None
    try:
        data = dict(json.loads(stored))
        wrappers = tuple(WrapperSpec(**wrapper) for wrapper in data.get("additional_wrappers") or ())
        known = {field.name for field in dataclasses.fields(EnvSpec) if field.init}
        spec = EnvSpec(**{name: value for name, value in data.items() if name in known})
        spec.additional_wrappers = wrappers
        return spec
    except (TypeError, ValueError, RecursionError, gymnasium.error.Error) as error:
        raise FormatError(f"expected the JSON of a Gymnasium spec: {error}", where=where) from error


def recover(spec: EnvSpec, trust: bool, **kwargs: Any) -> Env:
    """Make the environment of a stored spec; `kwargs` override the arguments in the spec.

    Unless `trust`, the id must be registered with the same entry point, constructor arguments must be registered or
    given in `kwargs`, and wrappers must be in a list of gymnasium's wrappers.

    Raises:
        UnsafeDataError: The spec asks for something else; the message shows what.
        ModuleNotFoundError: The package of the entry point is not installed.
    """
    if not trust:
        _check_registered(spec)
        _check_arguments(spec, kwargs)
        _check_wrappers(spec)
    return gymnasium.make(spec, **kwargs)


def _check_arguments(spec: EnvSpec, given: Mapping[str, Any]) -> None:
    """A constructor may read a file that an argument names, or start what it says: `xml_file` of MuJoCo."""
    registered = {"render_mode": None, **gymnasium.registry[spec.id].kwargs}
    missing = object()
    own = {
        name: value
        for name, value in spec.kwargs.items()
        if name not in given and _json_like(registered.get(name, missing)) != _json_like(value)
    }
    if own:
        raise UnsafeDataError(
            f"expected {spec.id} with its registered arguments, got {own} in the dataset's metadata, which its "
            "constructor would take; pass trust=True if they are what you want"
        )


def _json_like(value: Any) -> Any:
    """A value as it is after a way through JSON, for comparing."""
    if is_mapping(value):
        return {str(key): _json_like(inner) for key, inner in value.items()}
    return [_json_like(inner) for inner in value] if is_listed(value) else value


def _check_wrappers(spec: EnvSpec) -> None:
    known = {name: getattr(gymnasium.wrappers, name, None) for name in _SAFE_WRAPPERS}
    safe = {f"{wrapper.__module__}:{wrapper.__name__}" for wrapper in known.values() if wrapper is not None}
    others = [wrapper for wrapper in spec.additional_wrappers if wrapper.entry_point not in safe]
    if others:
        names = ", ".join(f"{wrapper.name} from {wrapper.entry_point!r} with {wrapper.kwargs}" for wrapper in others)
        raise UnsafeDataError(
            f"expected wrappers of gymnasium that neither run code nor write files, got {names} in the dataset's "
            "metadata; pass trust=True if you know where the dataset comes from"
        )


def _check_registered(spec: EnvSpec) -> None:
    known = gymnasium.registry.get(spec.id)
    if known is None:
        module = str(spec.entry_point).partition(":")[0]
        package = module.partition(".")[0]
        if package.isidentifier() and importlib.util.find_spec(package) is None:
            raise ModuleNotFoundError(
                f"No module named '{module}'; install the package that has {spec.id}", name=module
            )
        raise UnsafeDataError(
            f"expected a registered environment, got {spec.id!r} with the entry point {spec.entry_point!r}; import the "
            "package that registers it, or pass trust=True if you know where the dataset comes from"
        )
    if entry_point_name(known) != spec.entry_point:
        raise UnsafeDataError(
            f"expected {spec.id} with its registered entry point {entry_point_name(known)!r}, got {spec.entry_point!r} "
            "in the dataset's metadata; pass trust=True if you know where the dataset comes from"
        )


def check_requirements(requirements: Iterable[str]) -> None:
    """Warn about each pip-style requirement that is malformed, not installed, or installed in another version."""
    parsing: Any = require("packaging.requirements", "minari")
    for text in requirements:
        try:
            requirement = parsing.Requirement(text)
        except parsing.InvalidRequirement:
            warnings.warn(f"Ignoring malformed requirement `{text}`", stacklevel=3)
            continue
        installed = _installed(requirement.name)
        if installed is None:
            warnings.warn(
                f'Package {requirement.name} is not installed. Install it with `pip install "{text}"`', stacklevel=3
            )
        elif not requirement.specifier.contains(installed, prereleases=True):
            warnings.warn(
                f"Installed {requirement.name} {installed} does not meet {requirement.specifier}. We recommend to "
                f'install the required version with `pip install "{text}"`',
                stacklevel=3,
            )


def _installed(package: str) -> str | None:
    if package.lower() == "minari":
        return VERSION  # this door stands in for it
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def get_env_spec_dict(env_spec: EnvSpec) -> dict[str, str]:
    """Return a description of an environment. It is not made, so its spaces are not included."""
    shown = ("entry_point", "nondeterministic", "order_enforce", "disable_env_checker", "kwargs", "additional_wrappers")
    limits = {name: str(getattr(env_spec, name)) for name in ("max_episode_steps", "reward_threshold")}
    code = {name: f"`{getattr(env_spec, name)}`" for name in (*shown, "vector_entry_point")}
    return {"ID": env_spec.id, "entry_point": code.pop("entry_point"), **limits, **code}


def average_return(env: Env, policy: Any, episodes: int) -> float:
    """Return the mean undiscounted return of `policy` over `episodes`, of which the first is reset with the seed 123.

    Raises `DataError` if `episodes` is not positive.
    """
    if episodes < 1:
        raise DataError(f"expected at least one episode to average over, got {episodes}")
    returns: list[float] = []
    observation, _ = env.reset(seed=123)
    while len(returns) < episodes:
        total, done = 0.0, False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
        observation, _ = env.reset()
    return sum(returns) / episodes
