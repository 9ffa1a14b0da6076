"""Specs of environments as JSON text, and environments from such text.

A dataset names the environment that it was recorded in. Its file may come from anywhere, and `gymnasium.make` imports
and calls any function that a spec names. Without `trust`, `recover` makes only environments that are registered here.

Other distributions make environments by name, `benchmark/task`: an entry point of the group `penstock.environments`
names a module with the functions of `NamedEnvironments`.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from penstock.core.narrowing import is_listed, is_mapping
from penstock.errors import FormatError, UnsafeDataError, require

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

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


def spec_to_json(spec: Any) -> str | None:
    """Return the JSON of a Gymnasium spec. An entry point that is a class or function is written by its name."""
    if spec is None:
        return None
    vector = spec.vector_entry_point if isinstance(spec.vector_entry_point, str) else None
    named = dataclasses.replace(spec, entry_point=_entry_point_name(spec), vector_entry_point=vector)
    try:
        return str(named.to_json())
    except (TypeError, ValueError):
        return None


def spec_from_json(stored: Any, where: str = "env_spec") -> EnvSpec | None:
    """Read a stored spec, of this or an older Gymnasium. Unknown fields are left out. Nothing is imported or made."""
    if stored is None:
        return None
    gymnasium: Any = require("gymnasium", "gymnasium")
    from gymnasium.envs.registration import EnvSpec, WrapperSpec

    try:
        data = dict(json.loads(stored))
        wrappers = tuple(WrapperSpec(**wrapper) for wrapper in data.get("additional_wrappers") or ())
        known = {field.name for field in dataclasses.fields(EnvSpec) if field.init}
        spec = EnvSpec(**{name: value for name, value in data.items() if name in known})
        spec.additional_wrappers = wrappers
        return spec
    except (TypeError, ValueError, RecursionError, gymnasium.error.Error) as error:
        raise FormatError(f"expected the JSON of a Gymnasium spec: {error}", where=where) from error


def recover(env_spec: str | EnvSpec, *, trust: bool = False, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Make the environment that a dataset was recorded in.

    Without `trust`, the id must be registered here with the same entry point, constructor arguments must be registered
    or given in `kwargs`, and wrappers must be in a list of Gymnasium's wrappers that neither run code nor write files.

    Args:
        env_spec: The entry `env_spec` of the dataset's metadata, or a Gymnasium `EnvSpec`.
        trust: Whether to make any environment that the spec names. The default is False.
        kwargs: Arguments of `gymnasium.make`, which replace arguments in the spec.

    Returns:
        The environment.

    Raises:
        UnsafeDataError: The spec asks for something else; the message shows what.
        ModuleNotFoundError: The package of the entry point is not installed.
        FormatError: The text is not a spec.

    Example:
        >>> import gymnasium, tempfile
        >>> import penstock
        >>> from penstock.envs import recover
        >>> path = f"{tempfile.mkdtemp()}/poles"
        >>> with penstock.record(gymnasium.make("CartPole-v1", max_episode_steps=5), path) as env:
        ...     _ = env.reset(seed=1)
        ...     while not any(env.step(0)[2:4]):
        ...         pass
        >>> recover(penstock.open(path).metadata["env_spec"]).spec.max_episode_steps
        5
    """
    gymnasium: Any = require("gymnasium", "gymnasium")
    spec = spec_from_json(env_spec) if isinstance(env_spec, str) else env_spec
    if spec is None:
        raise FormatError("expected the JSON of a Gymnasium spec, got None", where="env_spec")
    if not trust:
        _check_registered(gymnasium, spec)
        _check_arguments(gymnasium, spec, kwargs)
        _check_wrappers(gymnasium, spec)
    return gymnasium.make(spec, **kwargs)


def _entry_point_name(spec: EnvSpec) -> Any:
    """The entry point as "module:name" if Gymnasium can import that name, else the object itself."""
    point = spec.entry_point
    if point is None or isinstance(point, str):
        return point
    name = str(getattr(point, "__qualname__", "<"))
    return point if "<" in name or "." in name else f"{getattr(point, '__module__', '')}:{name}"


def _check_arguments(gymnasium: Any, spec: EnvSpec, given: Mapping[str, Any]) -> None:
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


def _check_wrappers(gymnasium: Any, spec: EnvSpec) -> None:
    known = [getattr(gymnasium.wrappers, name, None) for name in _SAFE_WRAPPERS]
    safe = {f"{wrapper.__module__}:{wrapper.__name__}" for wrapper in known if wrapper is not None}
    others = [wrapper for wrapper in spec.additional_wrappers if wrapper.entry_point not in safe]
    if others:
        names = ", ".join(f"{wrapper.name} from {wrapper.entry_point!r} with {wrapper.kwargs}" for wrapper in others)
        raise UnsafeDataError(
            f"expected wrappers of gymnasium that neither run code nor write files, got {names} in the dataset's "
            "metadata; pass trust=True if you know where the dataset comes from"
        )


def _check_registered(gymnasium: Any, spec: EnvSpec) -> None:
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
    if (name := _entry_point_name(known)) != spec.entry_point:
        raise UnsafeDataError(
            f"expected {spec.id} with its registered entry point {name!r}, got {spec.entry_point!r} "
            "in the dataset's metadata; pass trust=True if you know where the dataset comes from"
        )


GROUP = "penstock.environments"


class NamedEnvironments(Protocol):
    """The functions of such a module. `settings` are texts `key=value`, as on the command line."""

    def available(self) -> tuple[str, ...]:
        """Return the names of the benchmarks. Nothing is imported for it."""
        ...

    def make(self, env: str, settings: Sequence[str]) -> gymnasium.Env[Any, Any]: ...

    def described(self, env: str, settings: Sequence[str]) -> dict[str, Any]:
        """Return metadata of datasets of this environment, as plain values."""
        ...


@cache
def modules() -> tuple[NamedEnvironments, ...]:
    return tuple(point.load() for point in importlib.metadata.entry_points(group=GROUP))


def benchmarks() -> list[str]:
    """The names before the slash."""
    return [name for module in modules() for name in module.available()]


def makers_of(env: str) -> NamedEnvironments | None:
    """The module that makes `benchmark/task`; None for other names, which are Gymnasium's."""
    benchmark, slash, _ = env.partition("/")
    return next((module for module in modules() if slash and benchmark in module.available()), None)
